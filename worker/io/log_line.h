/* log_line.h - builds one log line in bounded memory; log.c decides which and where it goes.
 *
 * Pure: no clock, no I/O, no allocation. What does not fit is left out whole and `cut` is set. */
#ifndef POSTRIDER_IO_LOG_LINE_H
#define POSTRIDER_IO_LOG_LINE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* PIPE_BUF: the kernel takes such a line whole or not at all, so that lines of two processes on
 * one pipe never mix. */
enum { LOG_LINE_BYTES = 4096 };

struct log_line {
    char text[LOG_LINE_BYTES];
    size_t len;
    size_t limit; /* <= LOG_LINE_BYTES; rises at the end to let the tail in */
    bool cut;
};

/* Our own words, as they are. */
void log_line_puts(struct log_line *l, const char *text);

/* Outside words: cleaned (one line, no controls, UTF-8), then quoted where needed. */
void log_line_value(struct log_line *l, const char *raw, size_t raw_len);

/* " key=value" for each pair of a format as log_event takes it; the arguments are used up. */
void log_line_pairs(struct log_line *l, const char *fmt, va_list *args);

#endif
