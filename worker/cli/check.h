/* check.h - what `postrider check` finds: one JSON document, for programs as it is, for people as
 * sentences.
 *
 *     {"config", "ok", "faults": [{"what", "cure", "exit"}], "warnings": [text],
 *      "lease": {...}, "providers": [{"name", "plugin", ..., "kinds": [{...}]}], "database": {...}}
 */
#ifndef POSTRIDER_CLI_CHECK_H
#define POSTRIDER_CLI_CHECK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/core/decide.h"

struct config;
struct config_provider;
struct err;
struct pg_sync;
struct plugin;

struct check_kind {
    char *name;
    char **route; /* ends with NULL; NULL: every provider */
    struct policy policy;
    int64_t ttl_ms;
};

struct check {
    const struct config *config;
    struct check_kind *kinds;
    size_t kinds_n;
    bool kinds_read; /* from the database; else they are the ones migrate makes */
    json_t *doc;
    int code; /* exit code so far; the configuration's faults weigh most */
};

/* Adds a fault or a warning; `cure` may be NULL. */
void check_fault(struct check *c, int code, const char *what, const char *cure);
void check_warn(struct check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Fills kinds: from the database, or (pg NULL) those of a new one. 0 or -Exxx. */
int check_kinds_load(struct check *c, struct pg_sync *pg, struct err *err);
void check_kinds_free(struct check *c);

/* Whether each kind can be served by the configuration; plugins as its providers. */
void check_kinds_judge(struct check *c, struct plugin *const *plugins);

/* Schema, identity, durability: fills "database". */
int check_database(struct check *c, struct pg_sync *pg, struct err *err);

/* What follows for each kind routed to this provider after a call whose outcome nobody knows. */
json_t *check_kinds_doc(const struct check *c, const struct config_provider *p,
                        const struct plugin *plugin);

bool check_routed(const struct check_kind *kind, const char *provider);

void check_print(const json_t *doc);

#endif
