#include "worker/core/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static char *format(const char *fmt, va_list ap)
{
    char *text = NULL;

    return vasprintf(&text, fmt, ap) < 0 ? NULL : text;
}

int err_set(struct err *err, int code, const char *fmt, ...)
{
    va_list ap;

    if (!err)
        return code;
    va_start(ap, fmt);
    char *text = format(fmt, ap); /* before freeing: the old message may be an argument */
    va_end(ap);
    err_done(err);
    err->message = text;
    return code;
}

void err_hint(struct err *err, const char *fmt, ...)
{
    va_list ap;

    if (!err)
        return;
    va_start(ap, fmt);
    char *text = format(fmt, ap);
    va_end(ap);
    free(err->hint);
    err->hint = text;
}

void err_prefix(struct err *err, const char *fmt, ...)
{
    va_list ap;
    char *joined = NULL;

    if (!err || !err->message)
        return;
    va_start(ap, fmt);
    char *prefix = format(fmt, ap);
    va_end(ap);
    if (prefix && asprintf(&joined, "%s: %s", prefix, err->message) >= 0) {
        free(err->message);
        err->message = joined;
    }
    free(prefix);
}

const char *err_text(const struct err *err)
{
    return err && err->message ? err->message : "out of memory";
}

void err_done(struct err *err)
{
    if (!err)
        return;
    free(err->message);
    free(err->hint);
    err->message = NULL;
    err->hint = NULL;
}
