/* mask.h - what must never be shown, taken out of what is.
 *
 * Every value that came from a provider's settings counts as secret, except for a few that are
 * known to be none (url, from, …) and stand in the file as they are; what came from {"env"} or
 * {"file"} is always one. A secret is found however it is written: plain, percent-encoded, as a
 * form or a JSON string writes it. Where it is short, or a number, only as a word of its own, or
 * every text would be full of holes.
 *
 * What is derived from a secret (a Basic header, a signature) cannot be found so: headers that
 * carry such things are hidden by their name. */
#ifndef POSTRIDER_CLI_MASK_H
#define POSTRIDER_CLI_MASK_H

#include <stdbool.h>
#include <stddef.h>

struct config_provider;
struct err;
struct mask;

/* Wipes on free; NULL is fine, and returns NULL. */
struct mask *mask_new(void);
struct mask *mask_free(struct mask *m);

/* 0 or -ENOMEM. Copied; NULL and "" are no secrets. */
int mask_add(struct mask *m, const char *secret);

/* All values of p's settings; `path` is the file p was read from. 0, -ENOMEM or -EINVAL. */
int mask_add_settings(struct mask *m, const char *path, const struct config_provider *p,
                      struct err *err);

/* The text with each secret as "****". The caller frees; NULL when out of memory. */
char *mask_text(const struct mask *m, const char *text, size_t len);

/* A header's value: the same, or nothing of it but the scheme where the name says secret. */
char *mask_header(const struct mask *m, const char *name, const char *value);

#endif
