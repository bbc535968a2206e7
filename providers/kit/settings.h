/* settings.h - reading a plugin's "settings" strictly: a mistake is refused with its name and a
 * cure before the first message.
 *
 *     struct settings s;
 *     int r = settings_begin(&s, host, settings_json, report);
 *     self->account = settings_text(&s, "account_sid", NULL);      // NULL default: required
 *     self->url     = settings_url(&s, "url", "https://api.vendor.example");
 *     self->wait_s  = settings_int(&s, "timeout_s", 30, 1, 600);
 *     r = settings_end(&s);   // refuses unknown members, with the near match; 0, -EINVAL, -ENOMEM
 *
 * The first refusal wins and later reads give harmless values (NULL, the fallback). Texts are owned
 * by the caller (free), also after a failed settings_end. Names are borrowed: write literals. */
#ifndef POSTRIDER_KIT_SETTINGS_H
#define POSTRIDER_KIT_SETTINGS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "providers/provider.h"

enum { SETTINGS_MAX = 32 };

struct settings {
    const struct provider_host *host;
    struct provider_report *report;
    json_t *root;
    const char *asked[SETTINGS_MAX]; /* names read so far: what may be there */
    size_t asked_n;
    const char *missing; /* a required one that lacks: refused at the end, unless it is mistyped */
    int error;
};

/* Root must be an object. 0, -EINVAL (refused), -ENOMEM; after a failure settings_end still has
 * to be called. */
int settings_begin(struct settings *s, const struct provider_host *host, const char *json,
                   struct provider_report *report);
int settings_end(struct settings *s);

bool settings_has(struct settings *s, const char *name);
/* A string without control characters, never empty: an unset secret must not read as "none".
 * `fallback` NULL: required; "": may lack, and gives NULL then. */
char *settings_text(struct settings *s, const char *name, const char *fallback);
/* The same, with line ends allowed: a PEM key. */
char *settings_lines(struct settings *s, const char *name, const char *fallback);
/* An http(s) URL without user, query or fragment; a slash at its end is dropped. */
char *settings_url(struct settings *s, const char *name, const char *fallback);
int64_t settings_int(struct settings *s, const char *name, int64_t fallback, int64_t min,
                     int64_t max);
bool settings_bool(struct settings *s, const char *name, bool fallback);
/* One of `words` (NULL-terminated); returns its index. */
size_t settings_word(struct settings *s, const char *name, const char *const *words,
                     size_t fallback);
/* An array of strings, e.g. two tokens while one is rotated; a single string counts as one.
 * NULL-terminated, one allocation per text and one for the list; free with settings_list_free.
 * NULL when it lacks. */
char **settings_list(struct settings *s, const char *name);
void settings_list_free(char **list);
/* Any other member, for the plugin to read itself. Borrowed until settings_end; NULL when it
 * lacks. */
const json_t *settings_json(struct settings *s, const char *name);
/* Refuses on the plugin's behalf; returns -EINVAL. */
int settings_refuse(struct settings *s, const char *name, const char *cure, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
