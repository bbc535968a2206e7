/* config.h - the one configuration file, read strictly.
 *
 * JSON. An unknown key, a duplicate key, a value of the wrong type or out of range refuses the
 * whole file, with line, key, value, what is allowed and the nearest known key: a worker that
 * starts runs what was written. A string may be written as {"env": "NAME"} or {"file": "PATH"}
 * (one line end at the file's end is dropped), also anywhere inside "settings"; what came that
 * way, and everything that may hold a password, is never printed.
 *
 * Every setting stands in one table (config_settings, config_provider_settings): the parser,
 * `postrider check` and the test of the documentation read the same rows. */
#ifndef POSTRIDER_ENGINE_CONFIG_H
#define POSTRIDER_ENGINE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct provider_caps;

/* Kept free in every lease beside call and settle: a claim's way back and the wait before the
 * call starts. Three polls, and never less than this (see config_lease_margin_ms). */
#define CONFIG_LEASE_MARGIN_MIN_MS 1000

struct config_provider {
    char *name;   /* as in the file; also the name in SQL and metrics */
    char *plugin; /* bare name, or a path with a slash */
    int64_t in_flight;
    int64_t rate_per_s; /* 0: none */
    char *rate_unit;    /* "message" | "segment" */
    int64_t connect_timeout_ms;
    int64_t timeout_ms; /* the whole call, connect included */
    int64_t idle_ms;
    char *receipt_token; /* NULL: no receipts; never print */
    char *ca_file;       /* NULL: the system's */
    char *settings_json; /* JSON object for the plugin, secrets already strings: never print */
};

/* Durations carry their unit in the name. Texts are NULL when not set. */
struct config {
    char *database; /* libpq DSN; may hold a password: never print */
    char *listen;   /* as written; NULL: no HTTP */
    char *listen_host;
    int listen_port; /* 0: the kernel picks one */
    int64_t in_flight;
    int64_t lease_s;
    int64_t poll_ms;
    int64_t settle_ms;
    int64_t settle_allowance_ms;
    int64_t drain_s;
    char *admin_token; /* never print */
    char *public_url;
    char *log_level;                   /* "error" | "warn" | "info" | "debug" */
    struct config_provider *providers; /* in file order, at least one */
    size_t providers_count;
    char **notes; /* what reading noticed; config_warnings tells them */
    size_t notes_count;
};

/* Reads a file. Messages begin with the path. -ENOENT and the like: could not read; -EINVAL:
 * refused; -ENOMEM. The caller owns *ret_config (config_free). */
int config_load(const char *path, struct config **ret_config, struct err *err);

/* The same from memory; `name` stands in messages. {"file"} and {"env"} are still followed. */
int config_parse(const char *text, size_t len, const char *name, struct config **ret_config,
                 struct err *err);

/* NULL is fine. Returns NULL. Secrets are wiped. */
struct config *config_free(struct config *config);

const struct config_provider *config_provider_find(const struct config *config, const char *name);

/* The part of each lease that is neither call nor settle, for this configuration. */
int64_t config_lease_margin_ms(const struct config *config);

/* What only the opened plugin can tell: its vendor's window must outlast the lease (rule R2),
 * its worst documented answer must fit into the timeout. 0 or -EINVAL with both numbers. The
 * checks without a plugin (connect <= timeout; timeout + settle_allowance + margin < 99 % of
 * the lease, rule R4) are part of config_parse. */
int config_check_plugin(const struct config *config, const struct config_provider *provider,
                        const struct provider_caps *caps, struct err *err);

/* Calls `warn` for everything that is allowed but worth a word (`check`, worker's start). */
typedef void config_warn_fn(void *arg, const char *text);
void config_warnings(const struct config *config, config_warn_fn *warn, void *arg);

/* Whether a running worker may go from `now` to `next` (SIGHUP). -EINVAL names the first
 * setting that needs a restart. */
int config_reload_check(const struct config *now, const struct config *next, struct err *err);

enum config_type {
    CONFIG_INT,
    CONFIG_TEXT,
    CONFIG_SECRET, /* text that is never printed */
    CONFIG_CHOICE, /* one of `choices`, separated by | */
    CONFIG_OBJECT, /* providers, settings */
};

struct config_setting {
    const char *name;
    enum config_type type;
    int64_t def, min, max; /* CONFIG_INT */
    const char *def_text;  /* NULL: not set */
    const char *choices;   /* CONFIG_CHOICE */
    bool required;
    bool reloadable;
    size_t offset;    /* of the field in its struct; not for CONFIG_OBJECT */
    const char *help; /* one line */
};

/* End with name == NULL. */
extern const struct config_setting config_settings[];
extern const struct config_setting config_provider_settings[];

#endif
