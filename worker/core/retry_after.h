/* retry_after.h - the wait a vendor asks for, read by ourselves.
 *
 * Retry-After is seconds or a date (RFC 9110 §10.2.3). libcurl's own reading was measured to
 * give negative waits for past dates, 1 for "1.5" and 0 for nonsense, so it is not used.
 * Here: digits, or a date in the one form that may be sent today (IMF-fixdate, RFC 9110
 * §5.6.7); a wait that is over (negative seconds, a past date) is 0; whatever else is as if
 * the header were absent and the caller's own backoff stands. Of two headers, parse both and
 * take the longer wait.
 *
 * Pure: no clock (the caller tells the time), no locale, no strptime, no allocation. */
#ifndef POSTRIDER_CORE_RETRY_AFTER_H
#define POSTRIDER_CORE_RETRY_AFTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads an IMF-fixdate, as in "Sun, 06 Nov 1994 08:49:37 GMT", as seconds since 1970. The
 * weekday must be one, but need not be the right one. Returns 0, or -EINVAL. */
int http_date_parse(const char *value, size_t len, int64_t *ret_epoch_s);

/* True and *ret_ms in [0, max(cap_ms, 0)], or false when the header says nothing usable.
 * now_s is seconds since 1970: best the answer's own Date, read with http_date_parse, so that
 * a wrong clock on this host cannot stretch the wait. Blanks around the value are ignored.
 * A number too big for 63 bits is nonsense, a smaller one is capped. */
bool retry_after_parse(const char *value, size_t len, int64_t now_s, int64_t cap_ms,
                       int64_t *ret_ms);

#endif
