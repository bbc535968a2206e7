/* when.h - times as vendors write them. Pure: no clock, no time zone of the machine. */
#ifndef POSTRIDER_KIT_WHEN_H
#define POSTRIDER_KIT_WHEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WHEN_SIZE = 32 };

/* "2026-11-30T22:30:00Z"; and with another separator and no Z: "2026-11-30 22:30:00", shifted by
 * `offset_min` minutes (Tashkent: 300). Both round down to the second. */
const char *when_rfc3339(int64_t unix_ms, char buf[WHEN_SIZE]);
const char *when_local(int64_t unix_ms, int offset_min, char buf[WHEN_SIZE]);
const char *when_date(int64_t unix_ms, int offset_min, char buf[WHEN_SIZE]); /* "2026-11-30" */

/* RFC 3339 (any offset, fractions), "YYYY-MM-DD HH:MM[:SS]" at `offset_min`, and RFC 2822
 * ("Mon, 30 Nov 2026 22:30:00 +0000"). False: none of these. */
bool when_parse(const char *text, int offset_min, int64_t *ret_unix_ms);

/* A lifetime in the vendor's unit: rounded down to `unit_ms`, kept within [min, max] units. */
int64_t when_validity(int64_t validity_ms, int64_t unit_ms, int64_t min, int64_t max);

#endif
