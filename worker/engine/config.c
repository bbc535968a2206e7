#include "worker/engine/config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/core/err.h"
#include "worker/core/near.h"
#include "worker/engine/config_json.h"

enum { PROVIDER_NAME_MAX = 63, RECEIPT_TOKEN_MIN = 16, RECEIPT_TOKEN_MAX = 128 };

/* ---- one setting -------------------------------------------------------------------------- */

static const struct config_setting *setting_find(const struct config_setting *table,
                                                 const char *name)
{
    for (; table->name; table++)
        if (strcmp(table->name, name) == 0)
            return table;
    return NULL;
}

/* Refuses a key the table does not know. */
static int check_keys(const struct config_source *source, const struct config_place *at,
                      const json_t *object, const struct config_setting *table, struct err *err)
{
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)object, key, value) {
        struct config_place here = {.up = at, .key = key, .hidden = true};
        struct near near;

        if (setting_find(table, key))
            continue;
        near_init(&near, key);
        for (const struct config_setting *s = table; s->name; s++)
            near_try(&near, s->name);
        const char *meant = near_best(&near);
        return config_fail(source, &here, err, "unknown key \"%s\"%s%s%s", key,
                           meant ? ", did you mean \"" : "", meant ? meant : "",
                           meant ? "\"?" : "");
    }
    return 0;
}

static int refuse_value(const struct config_source *source, const struct config_place *at,
                        const struct config_setting *s, const json_t *value, const char *allowed,
                        struct err *err)
{
    char *shown = NULL;

    /* A place for secrets shows nothing; elsewhere the value as written, secrets unread. */
    if (s->type != CONFIG_SECRET && s->type != CONFIG_OBJECT)
        shown = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (shown)
        config_fail(source, at, err, "is %.60s, must be %s", shown, allowed);
    else
        config_fail(source, at, err, "must be %s", allowed);
    free(shown);
    return -EINVAL;
}

static int read_int(const struct config_source *source, const struct config_place *at,
                    const struct config_setting *s, const json_t *value, int64_t *ret,
                    struct err *err)
{
    char allowed[96];

    if (json_is_integer(value)) {
        *ret = json_integer_value(value);
        if (*ret >= s->min && *ret <= s->max)
            return 0;
    }
    snprintf(allowed, sizeof(allowed), "a whole number from %" PRId64 " to %" PRId64, s->min,
             s->max);
    return refuse_value(source, at, s, value, allowed, err);
}

static int read_text(const struct config_source *source, const struct config_place *at,
                     const struct config_setting *s, const json_t *value, char **ret,
                     struct err *err)
{
    if (config_is_secret(value))
        return config_read_secret(source, at, value, ret, err);
    if (!json_is_string(value) || json_string_length(value) == 0)
        return refuse_value(source, at, s, value,
                            s->type == CONFIG_SECRET
                                ? "a string, {\"env\": \"NAME\"} or {\"file\": \"PATH\"}"
                                : "a string that is not empty",
                            err);
    *ret = strdup(json_string_value(value));
    return *ret ? 0 : -ENOMEM;
}

static bool is_choice(const char *choices, const char *word)
{
    size_t len = strlen(word);

    for (const char *p = choices; *p;) {
        size_t n = strcspn(p, "|");

        if (n == len && strncmp(p, word, n) == 0)
            return true;
        p += n + (p[n] == '|');
    }
    return false;
}

static int read_choice(const struct config_source *source, const struct config_place *at,
                       const struct config_setting *s, const json_t *value, char **ret,
                       struct err *err)
{
    const char *word = json_string_value(value);
    char allowed[96];

    if (word && is_choice(s->choices, word)) {
        *ret = strdup(word);
        return *ret ? 0 : -ENOMEM;
    }
    snprintf(allowed, sizeof(allowed), "one of %s", s->choices);
    return refuse_value(source, at, s, value, allowed, err);
}

static int read_setting(const struct config_source *source, const struct config_place *at,
                        const struct config_setting *s, const json_t *value, void *base,
                        struct err *err)
{
    void *field = (char *)base + s->offset;

    switch (s->type) {
    case CONFIG_INT:
        return read_int(source, at, s, value, field, err);
    case CONFIG_TEXT:
    case CONFIG_SECRET:
        return read_text(source, at, s, value, field, err);
    case CONFIG_CHOICE:
        return read_choice(source, at, s, value, field, err);
    case CONFIG_OBJECT:
        break;
    }
    if (json_is_object(value))
        return 0;
    return refuse_value(source, at, s, value, "an object", err);
}

static int set_default(const struct config_setting *s, void *base)
{
    void *field = (char *)base + s->offset;

    if (s->type == CONFIG_INT) {
        *(int64_t *)field = s->def;
    } else if (s->def_text) {
        char *copy = strdup(s->def_text);

        if (!copy)
            return -ENOMEM;
        *(char **)field = copy;
    }
    return 0;
}

/* Fills `base` from an object; null is as good as absent. */
static int read_table(const struct config_source *source, const struct config_place *at,
                      const json_t *object, const struct config_setting *table, void *base,
                      struct err *err)
{
    int r = check_keys(source, at, object, table, err);

    for (const struct config_setting *s = table; s->name && r == 0; s++) {
        struct config_place here = {.up = at, .key = s->name};
        const json_t *value = json_object_get(object, s->name);

        if (value && !json_is_null(value))
            r = read_setting(source, &here, s, value, base, err);
        else if (s->required)
            r = config_fail(source, at, err, "\"%s\" is missing: %s", s->name, s->help);
        else
            r = set_default(s, base);
    }
    return r;
}

/* ---- meaning of single values ------------------------------------------------------------- */

static bool read_port(const char *digits, int *ret_port)
{
    char *end;

    if (*digits < '0' || *digits > '9' || strlen(digits) > 5)
        return false;
    long port = strtol(digits, &end, 10);
    *ret_port = (int)port;
    return *end == '\0' && port <= 65535;
}

/* "127.0.0.1:8025", "localhost:0", "[::1]:8025". */
static int split_listen(struct config *c, bool *ret_ok)
{
    const char *colon = strrchr(c->listen, ':');
    const char *host = c->listen;
    size_t host_len = colon ? (size_t)(colon - host) : 0;

    *ret_ok = false;
    if (host_len >= 2 && host[0] == '[' && host[host_len - 1] == ']') {
        host++;
        host_len -= 2;
    } else if (host_len > 0 && memchr(host, ':', host_len)) {
        return 0; /* an IPv6 address without brackets */
    }
    if (host_len == 0 || !read_port(colon + 1, &c->listen_port))
        return 0;
    c->listen_host = strndup(host, host_len);
    *ret_ok = true;
    return c->listen_host ? 0 : -ENOMEM;
}

static int check_listen(const struct config_source *source, const json_t *root, struct config *c,
                        struct err *err)
{
    struct config_place top = {0}, here = {.up = &top, .key = "listen"};
    const json_t *written = json_object_get(root, "listen");
    bool ok;

    if (!c->listen)
        return 0;
    if (strncmp(c->listen, "unix:", 5) == 0)
        return config_fail(source, &here, err, "unix sockets are not supported yet, use HOST:PORT");
    int r = split_listen(c, &ok);
    if (r < 0 || ok)
        return r;
    return refuse_value(source, &here, setting_find(config_settings, "listen"), written,
                        "HOST:PORT, such as \"127.0.0.1:8025\"", err);
}

static int check_public_url(const struct config_source *source, const json_t *root,
                            const struct config *c, struct err *err)
{
    struct config_place top = {0}, here = {.up = &top, .key = "public_url"};

    if (!c->public_url || ((strncmp(c->public_url, "https://", 8) == 0 ||
                            strncmp(c->public_url, "http://", 7) == 0) &&
                           !strpbrk(c->public_url, "?# ")))
        return 0;
    return refuse_value(source, &here, setting_find(config_settings, "public_url"),
                        json_object_get(root, "public_url"),
                        "an http:// or https:// address without ? and #", err);
}

/* ---- providers ---------------------------------------------------------------------------- */

/* The name becomes a key in SQL, a metrics label and a word on the command line. */
static bool provider_name_ok(const char *name)
{
    size_t len = strlen(name);

    return len > 0 && len <= PROVIDER_NAME_MAX && *name != '-' && *name != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == len;
}

static int read_plugin_settings(const struct config_source *source, const struct config_place *at,
                                const json_t *object, struct config_provider *p, struct err *err)
{
    struct config_place here = {.up = at, .key = "settings"};
    const json_t *written = json_object_get(object, "settings");
    json_t *settings;
    int r;

    if (!written || json_is_null(written)) {
        p->settings_json = strdup("{}");
        return p->settings_json ? 0 : -ENOMEM;
    }
    settings = json_deep_copy(written); /* messages show what was written, not the secrets */
    if (!settings)
        return -ENOMEM;
    r = config_expand(source, &here, &settings, err);
    if (r == 0 && !json_is_object(settings))
        r = config_fail(source, &here, err, "must be an object");
    if (r == 0 && !(p->settings_json = json_dumps(settings, JSON_COMPACT)))
        r = -ENOMEM;
    json_decref(settings);
    return r;
}

/* It stands in URLs that vendors call, and is all that guards those who sign nothing. */
static int check_receipt_token(const struct config_source *source, const struct config_place *at,
                               const struct config_provider *p, struct err *err)
{
    struct config_place here = {.up = at, .key = "receipt_token"};
    size_t len = p->receipt_token ? strlen(p->receipt_token) : 0;

    if (!p->receipt_token ||
        (len >= RECEIPT_TOKEN_MIN && len <= RECEIPT_TOKEN_MAX &&
         strspn(p->receipt_token,
                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == len))
        return 0;
    return config_fail(source, &here, err, "must be %d to %d letters, digits, _ or -",
                       RECEIPT_TOKEN_MIN, RECEIPT_TOKEN_MAX);
}

static int read_provider(const struct config_source *source, const struct config_place *at,
                         const json_t *object, struct config_provider *p, struct err *err)
{
    int r;

    if (!provider_name_ok(at->key))
        return config_fail(source, at, err,
                           "a provider's name has 1 to 63 letters, digits, _ - or . and begins "
                           "with none of - and .");
    if (!json_is_object(object))
        return config_fail(source, at, err, "must be an object");
    p->name = strdup(at->key);
    if (!p->name)
        return -ENOMEM;
    r = read_table(source, at, object, config_provider_settings, p, err);
    if (r == 0)
        r = check_receipt_token(source, at, p, err);
    return r < 0 ? r : read_plugin_settings(source, at, object, p, err);
}

static int read_providers(const struct config_source *source, const json_t *root, struct config *c,
                          struct err *err)
{
    struct config_place top = {0}, at = {.up = &top, .key = "providers"};
    json_t *object = json_object_get(root, "providers"), *value;
    size_t count = json_object_size(object);
    const char *name;
    int r;

    if (count == 0)
        return config_fail(source, &at, err, "must name at least one provider");
    c->providers = calloc(count, sizeof(*c->providers));
    if (!c->providers)
        return -ENOMEM;
    json_object_foreach (object, name, value) { /* jansson keeps the order of the file */
        struct config_place here = {.up = &at, .key = name};

        r = read_provider(source, &here, value, &c->providers[c->providers_count++], err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- numbers against each other ----------------------------------------------------------- */

int64_t config_lease_margin_ms(const struct config *config)
{
    int64_t polls = 3 * config->poll_ms;

    return polls > CONFIG_LEASE_MARGIN_MIN_MS ? polls : CONFIG_LEASE_MARGIN_MIN_MS;
}

/* R4: a call starts only while the lease outlasts it; a lease that never does would claim and
 * give back for ever. */
static int check_lease(const struct config_source *source, const struct config_place *at,
                       const struct config *c, const struct config_provider *p, struct err *err)
{
    struct config_place here = {.up = at, .key = "timeout_ms"};
    int64_t margin = config_lease_margin_ms(c);
    int64_t need = p->timeout_ms + c->settle_allowance_ms + margin;
    int64_t usable = c->lease_s * 990;

    if (need < usable)
        return 0;
    config_fail(source, &here, err,
                "timeout_ms %" PRId64 " + settle_allowance_ms %" PRId64 " + margin %" PRId64
                " make %" PRId64 " ms, must be less than 99 %% of lease_s %" PRId64 ", %" PRId64
                " ms",
                p->timeout_ms, c->settle_allowance_ms, margin, need, c->lease_s, usable);
    err_hint(err, "raise lease_s to %" PRId64 " or lower timeout_ms", need / 990 + 1);
    return -EINVAL;
}

static int check_times(const struct config_source *source, const struct config *c, struct err *err)
{
    struct config_place top = {0}, providers = {.up = &top, .key = "providers"};

    for (size_t i = 0; i < c->providers_count; i++) {
        const struct config_provider *p = &c->providers[i];
        struct config_place at = {.up = &providers, .key = p->name};
        struct config_place here = {.up = &at, .key = "connect_timeout_ms"};
        int r;

        if (p->connect_timeout_ms > p->timeout_ms)
            return config_fail(source, &here, err,
                               "is %" PRId64 ", must not exceed timeout_ms, %" PRId64,
                               p->connect_timeout_ms, p->timeout_ms);
        r = check_lease(source, &at, c, p, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- whole file --------------------------------------------------------------------------- */

static int read_root(const struct config_source *source, const json_t *root, struct config *c,
                     struct err *err)
{
    struct config_place top = {0};
    int r;

    if (!json_is_object(root))
        return config_fail(source, &top, err, "must be a JSON object");
    r = read_table(source, &top, root, config_settings, c, err);
    if (r == 0)
        r = check_listen(source, root, c, err);
    if (r == 0)
        r = check_public_url(source, root, c, err);
    if (r == 0)
        r = read_providers(source, root, c, err);
    if (r == 0)
        r = check_times(source, c, err);
    return r;
}

int config_parse(const char *text, size_t len, const char *name, struct config **ret_config,
                 struct err *err)
{
    struct config *c = calloc(1, sizeof(*c));
    struct config_source source = {.name = name, .text = text, .len = len, .config = c};
    json_error_t je;
    int r;

    if (!c)
        return -ENOMEM;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    if (!root && json_error_code(&je) == json_error_out_of_memory)
        r = -ENOMEM;
    else if (!root)
        r = err_set(err, -EINVAL, "%s: line %d: %s", name, je.line > 0 ? je.line : 1, je.text);
    else
        r = read_root(&source, root, c, err);
    json_decref(root);
    if (r < 0) {
        config_free(c);
        return r;
    }
    *ret_config = c;
    return 0;
}

/* ---- the end ------------------------------------------------------------------------------ */

static void wipe(char *secret)
{
    if (secret)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

static void free_texts(const struct config_setting *table, void *base)
{
    for (; table->name; table++) {
        char *text;

        if (table->type == CONFIG_INT || table->type == CONFIG_OBJECT)
            continue;
        memcpy(&text, (char *)base + table->offset, sizeof(text));
        wipe(text);
    }
}

struct config *config_free(struct config *config)
{
    if (!config)
        return NULL;
    for (size_t i = 0; i < config->providers_count; i++) {
        free_texts(config_provider_settings, &config->providers[i]);
        free(config->providers[i].name);
        wipe(config->providers[i].settings_json);
    }
    for (size_t i = 0; i < config->notes_count; i++)
        free(config->notes[i]);
    free_texts(config_settings, config);
    free(config->providers);
    free(config->notes);
    free(config->listen_host);
    free(config);
    return NULL;
}

const struct config_provider *config_provider_find(const struct config *config, const char *name)
{
    for (size_t i = 0; i < config->providers_count; i++)
        if (strcmp(config->providers[i].name, name) == 0)
            return &config->providers[i];
    return NULL;
}
