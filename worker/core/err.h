/* err.h - what went wrong, in words, beside an -Exxx return value.
 *
 * Base of every layer: core and io never log; they fill a `struct err` and return the
 * code, and whoever handles the failure prints it once. `message` names the thing,
 * `hint` names the cure. Initialise with ERR_INIT; err_done frees. All functions accept
 * err == NULL (the caller does not want the words). Not thread safe, none needed. */
#ifndef POSTRIDER_CORE_ERR_H
#define POSTRIDER_CORE_ERR_H

struct err {
    char *message; /* owned; NULL while nothing went wrong */
    char *hint;    /* owned; NULL when there is no better advice than the message */
};

#define ERR_INIT                                                                                   \
    {                                                                                              \
        0, 0                                                                                       \
    }

/* Replaces the message (and drops the hint); returns `code` so that a caller can write
 * `return err_set(err, -EINVAL, "…", …)`. Out of memory leaves message NULL. */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Adds the cure to a message already set. */
void err_hint(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts "prefix: " before a message already set (a file, a provider's name). */
void err_prefix(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The message, or "out of memory" when it could not be kept. Borrowed. */
const char *err_text(const struct err *err);

void err_done(struct err *err);

#endif
