/* utf8.h - one strict way to read UTF-8.
 *
 * Strict as in RFC 3629 and as PostgreSQL is for a UTF8 database: no overlong form, no
 * surrogate, nothing above U+10FFFF, nothing cut short. NUL is an ordinary code point here.
 * Pure: no allocation, no locale. */
#ifndef POSTRIDER_CORE_UTF8_H
#define POSTRIDER_CORE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Reads the code point that begins at s[*io_at] and moves *io_at behind it.
 * Wants *io_at < len. Returns 0, or -EILSEQ with *io_at and *ret_code untouched. */
int utf8_next(const char *s, size_t len, size_t *io_at, uint32_t *ret_code);

#endif
