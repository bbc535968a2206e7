/* config_json.h - what config.c needs beyond jansson: places and secrets.
 *
 * jansson keeps no positions. A `struct config_place` is the path to a value, as a chain on
 * the stack of whoever walks down; its line is found again in the text when a message wants
 * it. Private to the configuration. */
#ifndef POSTRIDER_ENGINE_CONFIG_JSON_H
#define POSTRIDER_ENGINE_CONFIG_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct err;
struct config;

struct config_place {
    const struct config_place *up; /* NULL: this is the whole file */
    const char *key;               /* NULL: an array's element */
    size_t index;
    bool hidden; /* the message itself names the key: not in its path */
};

struct config_source {
    const char *name; /* of the file, for messages */
    const char *text; /* valid JSON, or the lines are wrong */
    size_t len;
    struct config *config; /* being built; receives notes */
};

/* "NAME: line N: PATH: ..." and -EINVAL. */
int config_fail(const struct config_source *source, const struct config_place *at, struct err *err,
                const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* The line of the place's key, from 1; 0 when it is not found. */
size_t config_line(const struct config_source *source, const struct config_place *at);

/* Whether the value is {"env": ...} or {"file": ...}. */
bool config_is_secret(const json_t *value);

/* Follows such a value. The caller owns *ret_text and wipes it. */
int config_read_secret(const struct config_source *source, const struct config_place *at,
                       const json_t *value, char **ret_text, struct err *err);

/* Replaces every such value inside *io_value by its text; *io_value itself may be replaced. */
int config_expand(const struct config_source *source, const struct config_place *at,
                  json_t **io_value, struct err *err);

/* Remembers a sentence for config_warnings. */
int config_note(struct config *config, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
