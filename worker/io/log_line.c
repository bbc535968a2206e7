#include "worker/io/log_line.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include "worker/core/clean.h"

enum { VALUE_BYTES = 1024 };

static void line_put(struct log_line *l, const char *text, size_t len)
{
    if (l->cut || len > l->limit - l->len) {
        l->cut = true;
        return;
    }
    memcpy(l->text + l->len, text, len);
    l->len += len;
}

void log_line_puts(struct log_line *l, const char *text)
{
    line_put(l, text, strlen(text));
}

/* May stand bare: a reader splits at blanks and '='. */
static bool is_bare(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)s[i] <= ' ' || (unsigned char)s[i] >= 0x7f || strchr("\"=\\", s[i]))
            return false;
    return len > 0;
}

/* A value is cleaned first (one line, no controls, UTF-8), then quoted where needed. It goes in
 * whole or not at all: half a quoted value would swallow what follows. */
void log_line_value(struct log_line *l, const char *raw, size_t raw_len)
{
    char text[VALUE_BYTES];
    char quoted[2 * VALUE_BYTES + 2];
    size_t len = clean_text(text, sizeof(text), raw, raw_len, 0);
    size_t n = 0;

    if (is_bare(text, len)) {
        line_put(l, text, len);
        return;
    }
    quoted[n++] = '"';
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"' || text[i] == '\\')
            quoted[n++] = '\\';
        quoted[n++] = text[i];
    }
    quoted[n++] = '"';
    line_put(l, quoted, n);
}

struct value {
    char text[VALUE_BYTES];
    size_t len;
};

static void value_put(struct value *v, const char *text, size_t len)
{
    size_t room = sizeof(v->text) - v->len;

    len = len < room ? len : room;
    memcpy(v->text + v->len, text, len);
    v->len += len;
}

static void value_string(struct value *v, const char *s, int precision)
{
    if (!s)
        s = "none";
    value_put(v, s, precision < 0 ? strlen(s) : strnlen(s, (size_t)precision));
}

/* One conversion, without its '%'. The arguments are passed on in one va_list by pointer. */
struct spec {
    int precision; /* -1: none */
    char size;     /* 0, 'l', 'L' for ll, 'z', 'j' */
    char kind;
};

static bool spec_read(const char **io_fmt, va_list *args, struct spec *ret)
{
    const char *f = *io_fmt;

    *ret = (struct spec){.precision = -1};
    if (f[0] == '.' && f[1] == '*') {
        ret->precision = va_arg(*args, int);
        f += 2;
    } else if (f[0] == '.' && f[1] >= '0' && f[1] <= '9') {
        ret->precision = f[1] - '0';
        f += 2;
    }
    if (f[0] == 'l' && f[1] == 'l') {
        ret->size = 'L';
        f += 2;
    } else if (*f == 'l' || *f == 'z' || *f == 'j') {
        ret->size = *f++;
    }
    ret->kind = *f;
    if (!*f)
        return false;
    *io_fmt = f + 1;
    return true;
}

static intmax_t arg_signed(va_list *args, char size)
{
    switch (size) {
    case 'l':
        return va_arg(*args, long);
    case 'L':
        return va_arg(*args, long long);
    case 'z':
        return va_arg(*args, ssize_t);
    case 'j':
        return va_arg(*args, intmax_t);
    default:
        return va_arg(*args, int);
    }
}

static uintmax_t arg_unsigned(va_list *args, char size)
{
    switch (size) {
    case 'l':
        return va_arg(*args, unsigned long);
    case 'L':
        return va_arg(*args, unsigned long long);
    case 'z':
        return va_arg(*args, size_t);
    case 'j':
        return va_arg(*args, uintmax_t);
    default:
        return va_arg(*args, unsigned);
    }
}

static bool value_convert(struct value *v, const struct spec *s, va_list *args)
{
    char text[512]; /* the longest double in %f has 309 digits before its point */
    int precision = s->precision < 0 ? 6 : s->precision;

    text[0] = '\0';
    switch (s->kind) {
    case 's':
        value_string(v, va_arg(*args, const char *), s->precision);
        return true;
    case 'd':
    case 'i':
        snprintf(text, sizeof(text), "%jd", arg_signed(args, s->size));
        break;
    case 'u':
        snprintf(text, sizeof(text), "%ju", arg_unsigned(args, s->size));
        break;
    case 'x':
        snprintf(text, sizeof(text), "%jx", arg_unsigned(args, s->size));
        break;
    case 'f':
        snprintf(text, sizeof(text), "%.*f", precision, va_arg(*args, double));
        break;
    case 'g':
        snprintf(text, sizeof(text), "%.*g", precision, va_arg(*args, double));
        break;
    case '%':
        snprintf(text, sizeof(text), "%%");
        break;
    default:
        return false;
    }
    value_put(v, text, strlen(text));
    return true;
}

/* Everything between '=' and the next blank of the format is one value, whatever its arguments
 * hold: they cannot end it. */
static bool pair_value(struct log_line *l, const char **io_fmt, va_list *args)
{
    const char *f = *io_fmt;
    struct value v;
    struct spec s;

    v.len = 0;
    while (*f && *f != ' ') {
        if (*f != '%') {
            value_put(&v, f++, 1);
            continue;
        }
        f++;
        if (!spec_read(&f, args, &s) || !value_convert(&v, &s, args))
            return false;
    }
    log_line_value(l, v.text, v.len);
    *io_fmt = f;
    return true;
}

void log_line_pairs(struct log_line *l, const char *fmt, va_list *args)
{
    if (!fmt)
        return;
    while (*fmt) {
        size_t key = strcspn(fmt, "= %");

        if (key == 0 || fmt[key] != '=') {
            log_line_puts(l, " bad_format=1");
            return;
        }
        log_line_puts(l, " ");
        line_put(l, fmt, key + 1);
        fmt += key + 1;
        if (!pair_value(l, &fmt, args)) {
            log_line_puts(l, " bad_format=1");
            return;
        }
        while (*fmt == ' ')
            fmt++;
    }
}
