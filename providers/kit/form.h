/* form.h - percent-encoding: queries and application/x-www-form-urlencoded bodies.
 *
 * Everything but A-Z a-z 0-9 - . _ ~ is written as %XX, a blank as %20, so that no vendor's
 * decoder can read a `+`, `&` or `#` of a text as something else. Pure. */
#ifndef POSTRIDER_KIT_FORM_H
#define POSTRIDER_KIT_FORM_H

#include <stddef.h>
#include <stdint.h>

/* A growing text. Zero it (`= {0}`); `error` sticks, so a chain of calls is checked once at its
 * end. */
struct form {
    char *text; /* NUL-terminated; NULL while empty */
    size_t len, cap;
    int error; /* 0 or -ENOMEM */
};
void form_done(struct form *f);

void form_raw(struct form *f, const char *text);       /* as it is: an URL's beginning */
void form_printf(struct form *f, const char *fmt, ...) /* the same, formatted */
    __attribute__((format(printf, 2, 3)));
void form_escape(struct form *f, const char *text, size_t len); /* percent-encoded */
/* name=value, both escaped, with '&' before it unless the text is empty or ends in '?' or '&'.
 * A NULL value adds nothing. */
void form_add(struct form *f, const char *name, const char *value);
void form_add_n(struct form *f, const char *name, const char *value, size_t len);
void form_add_i64(struct form *f, const char *name, int64_t value);

/* Decodes one component in place ('+' is a blank when `plus`). Returns its length, or -1 for a
 * broken escape or a decoded NUL. */
long form_decode(char *text, int plus);

#endif
