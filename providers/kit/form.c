#include "providers/kit/form.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void form_done(struct form *f)
{
    free(f->text);
    *f = (struct form){0};
}

/* Room for `more` bytes and the NUL; NULL: no memory, now or before. */
static char *room(struct form *f, size_t more)
{
    size_t cap = f->cap ? f->cap : 128;
    char *grown;

    if (f->error)
        return NULL;
    if (more > SIZE_MAX / 4 - f->len)
        goto none;
    while (cap < f->len + more + 1)
        cap *= 2;
    if (cap != f->cap) {
        grown = realloc(f->text, cap);
        if (!grown)
            goto none;
        f->text = grown;
        f->cap = cap;
    }
    return f->text + f->len;
none:
    f->error = -ENOMEM;
    return NULL;
}

static void add(struct form *f, const char *text, size_t len)
{
    char *at = room(f, len);

    if (!at)
        return;
    if (len > 0)
        memcpy(at, text, len);
    at[len] = '\0';
    f->len += len;
}

void form_raw(struct form *f, const char *text)
{
    add(f, text, strlen(text));
}

void form_printf(struct form *f, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    int n;

    va_start(args, fmt);
    n = vasprintf(&text, fmt, args);
    va_end(args);
    if (n < 0) {
        f->error = -ENOMEM;
        return;
    }
    add(f, text, (size_t)n);
    free(text);
}

/* RFC 3986, 2.3: unreserved. */
static int plain(unsigned char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

void form_escape(struct form *f, const char *text, size_t len)
{
    static const char hex[] = "0123456789ABCDEF";
    char *at = len < SIZE_MAX / 16 ? room(f, len * 3) : NULL;
    char *begin = at;

    if (!at) {
        f->error = -ENOMEM;
        return;
    }
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];

        if (plain(c)) {
            *at++ = (char)c;
        } else {
            *at++ = '%';
            *at++ = hex[c >> 4];
            *at++ = hex[c & 15];
        }
    }
    *at = '\0';
    f->len += (size_t)(at - begin);
}

void form_add(struct form *f, const char *name, const char *value)
{
    if (value)
        form_add_n(f, name, value, strlen(value));
}

void form_add_n(struct form *f, const char *name, const char *value, size_t len)
{
    char last = f->len > 0 ? f->text[f->len - 1] : '?';

    if (!value)
        return;
    if (last != '?' && last != '&')
        add(f, "&", 1);
    form_escape(f, name, strlen(name));
    add(f, "=", 1);
    form_escape(f, value, len);
}

void form_add_i64(struct form *f, const char *name, int64_t value)
{
    char digits[24];
    int n = snprintf(digits, sizeof(digits), "%" PRId64, value);

    form_add_n(f, name, digits, (size_t)n);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

long form_decode(char *text, int plus)
{
    char *to = text;

    for (const char *from = text; *from; from++) {
        char c = *from;

        if (c == '+' && plus) {
            c = ' ';
        } else if (c == '%') {
            int high = hex_digit(from[1]);
            int low = high < 0 ? -1 : hex_digit(from[2]);

            if (low < 0 || (high == 0 && low == 0))
                return -1;
            c = (char)(high * 16 + low);
            from += 2;
        }
        *to++ = c;
    }
    *to = '\0';
    return to - text;
}
