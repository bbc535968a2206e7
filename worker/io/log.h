/* log.h - one line an event on stderr, in logfmt, for people and for machines.
 *
 *     ts=2026-11-30T12:00:00.123Z level=info event=claimed kind=otp n=3
 *
 * The journal stamps lines itself, so `ts` is left out when stderr is the journal, and the
 * line starts with the journal's <N> priority instead. A value that is not a plain word is quoted
 * and escaped: no value can start a line, a pair or a terminal sequence of its own.
 *
 * Never here: a message's text, a code, a full phone number (log_mask_phone). An event that
 * repeats faster than the limit is counted instead of written, and the count is said in the first
 * line that gets through again (`suppressed=N`).
 *
 * Logging cannot fail and does not wait: a line that stderr does not take at once (EAGAIN, closed,
 * disk full) is dropped and counted, and the next line that gets through says so (`lost=N`).
 * SIGPIPE must be ignored by the process. One thread. */
#ifndef POSTRIDER_IO_LOG_H
#define POSTRIDER_IO_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level {
    LOG_LEVEL_DEBUG = 0,
    LOG_LEVEL_INFO,
    LOG_LEVEL_WARN,
    LOG_LEVEL_ERROR,
    LOG_LEVEL_OFF /* as a filter: nothing is written */
};

/* Writes one event. `event` is a plain word (letters, digits, '_', '-', '.') chosen by us.
 * `pairs` is NULL or "key=%s other=%d": pairs parted by one space, each value one conversion or
 * a literal word. Conversions: %s (NULL reads "none"), %.*s, %d %i %u %x with l, ll, z, j, and %f
 * %g with a precision. The compiler checks the arguments; anything else ends the line with
 * bad_format=1. */
void log_event(enum log_level level, const char *event, const char *pairs, ...)
    __attribute__((format(printf, 3, 4)));

/* Events below `level` are not written. Default LOG_LEVEL_INFO. */
void log_set_level(enum log_level level);
enum log_level log_get_level(void);

/* "debug", "info", "warn", "error", "off". Returns 0 or -EINVAL. */
int log_level_parse(const char *text, enum log_level *ret_level);
const char *log_level_name(enum log_level level);

/* At most `per_second` lines of one event a second (default 20, 0 = no limit). Errors too: a
 * thousand equal errors a second help nobody. */
void log_set_rate(unsigned per_second);

/* Writes what is still suppressed or lost, event by event; call it at the end and about once a
 * second if silence after a burst should not hide it. */
void log_flush(void);

/* Enough for every masked number, with its zero byte. */
enum { LOG_PHONE_MAX = 24 };

/* Hides the middle of a number: "+998901234567" becomes "+99890*****67". Short or odd input is
 * hidden nearly whole; more than LOG_PHONE_MAX - 1 characters are cut. Returns `out`. */
const char *log_mask_phone(const char *number, char out[static LOG_PHONE_MAX]);

/* For tests: another descriptor than 2, the journal's form or not, and a clock (monotonic ms and
 * wall ms; NULL = the real ones). Forgets every count. */
struct log_sink {
    int fd;
    bool journal;
    int64_t (*now_ms)(void);
    int64_t (*wall_ms)(void);
};
void log_set_sink(const struct log_sink *sink);

#endif
