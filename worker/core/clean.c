#include "worker/core/clean.h"

#include "worker/core/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char ellipsis[] = "\xe2\x80\xa6";
static const char replacement[] = "\xef\xbf\xbd";

enum {
    PIECE_MAX = sizeof("\\u{9f}"), /* the longest a character becomes, with its NUL */
    MASK_FROM = 4,                 /* digits a run needs to be hidden */
};

struct piece {
    char bytes[PIECE_MAX];
    size_t len;
};

/* The next run of digits in the text: where it ends, and whether it is hidden. */
struct run {
    size_t end;
    bool hidden;
};

static bool is_digit(uint32_t code)
{
    static const uint32_t zeros[] = {'0', 0x660, 0x6f0, 0x966, 0xff10}; /* ASCII, Arabic (two),
                                                                           Devanagari, full-width */
    for (size_t i = 0; i < sizeof(zeros) / sizeof(*zeros); i++) {
        if (code >= zeros[i] && code <= zeros[i] + 9)
            return true;
    }
    return false;
}

/* Would act on a terminal, break a line, or show text in another order than it is. */
static bool is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0xad || code == 0x61c ||
           (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2060 && code <= 0x206f) || code == 0xfeff ||
           (code >= 0xe0000 && code <= 0xe007f);
}

static bool is_joint(uint32_t code)
{
    return code == ' ' || code == '-' || code == '.' || code == 0xa0 || is_control(code);
}

static struct run find_run(const char *text, size_t len, size_t at)
{
    struct run run = {.end = at};
    size_t digits = 0;
    bool joint = false;
    uint32_t code;

    while (at < len && utf8_next(text, len, &at, &code) == 0) {
        if (is_digit(code)) {
            digits++;
            run.end = at;
            joint = false;
        } else if (is_joint(code) && !joint) {
            joint = true;
        } else {
            break;
        }
    }
    run.hidden = digits >= MASK_FROM;
    return run;
}

static void copy(struct piece *p, const char *bytes, size_t len)
{
    memcpy(p->bytes, bytes, len);
    p->len = len;
}

static void escape(struct piece *p, uint32_t code)
{
    if (code == '\n')
        copy(p, "\\n", 2);
    else if (code == '\r')
        copy(p, "\\r", 2);
    else if (code == '\t')
        copy(p, "\\t", 2);
    else if (code <= 0xff)
        p->len = (size_t)snprintf(p->bytes, sizeof(p->bytes), "\\u{%x}", code & 0xffu);
    else
        copy(p, replacement, sizeof(replacement) - 1);
}

/* What the character at *io_at becomes; moves *io_at behind it. */
static void next_piece(const char *text, size_t len, bool mask, size_t *io_at, struct run *io_run,
                       struct piece *ret)
{
    size_t begin = *io_at;
    uint32_t code;

    if (utf8_next(text, len, io_at, &code) < 0) {
        ++*io_at;
        copy(ret, replacement, sizeof(replacement) - 1);
        return;
    }
    if (is_control(code)) {
        escape(ret, code);
        return;
    }
    if (mask && is_digit(code)) {
        if (begin >= io_run->end)
            *io_run = find_run(text, len, begin);
        if (io_run->hidden) {
            copy(ret, "*", 1);
            return;
        }
    }
    copy(ret, text + begin, *io_at - begin);
}

size_t clean_text(char *dst, size_t size, const char *text, size_t len, unsigned int flags)
{
    const size_t mark = sizeof(ellipsis) - 1;
    struct run run = {0};
    struct piece piece = {.len = 0};
    size_t out = 0, keep = 0; /* keep: as much as leaves room for the ellipsis */

    if (size == 0)
        return 0;
    for (size_t at = 0; at < len;) {
        next_piece(text, len, flags & CLEAN_MASK_DIGITS, &at, &run, &piece);
        if (piece.len > size - 1 - out) {
            out = keep;
            if (mark <= size - 1 - out) {
                memcpy(dst + out, ellipsis, mark);
                out += mark;
            }
            break;
        }
        memcpy(dst + out, piece.bytes, piece.len);
        out += piece.len;
        if (out + mark <= size - 1)
            keep = out;
    }
    dst[out] = '\0';
    return out;
}
