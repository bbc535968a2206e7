/* The kinds: what they ask for, and what follows where a vendor cannot give it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/provider.h"
#include "worker/cli/check.h"
#include "worker/cli/cli.h"
#include "worker/cli/connect.h"
#include "worker/cli/doubt.h"
#include "worker/cli/words.h"
#include "worker/engine/config.h"
#include "worker/engine/plugin.h"
#include "worker/io/pg.h"

/* As sql/001_schema.sql makes them; a test compares. */
static const struct {
    const char *name, *on_unknown;
    int64_t ttl_ms, backoff_base_ms, backoff_cap_ms;
    int attempts, max_calls;
} shipped[] = {{"otp", "resend", 300000, 1000, 30000, 4, 100},
               {"transactional", "resend", 86400000, 2000, 600000, 6, 100},
               {"campaign", "hold", 86400000, 5000, 900000, 4, 100}};

#define KINDS                                                                                      \
    "SELECT name, on_unknown, (extract(epoch FROM ttl) * 1000)::bigint, attempts, "                \
    "cross_vendor_resend, array_to_string(route, E'\\n'), max_calls, backoff_base_ms, "            \
    "backoff_cap_ms FROM postrider.kind ORDER BY lane, name"

/* Lines to a list that ends with NULL. */
static char **route_of(const char *lines)
{
    size_t n = 1;
    char **list;

    for (const char *s = lines; *s; s++)
        n += *s == '\n';
    list = calloc(n + 1, sizeof(*list));
    for (size_t i = 0; list && i < n && *lines; i++) {
        const char *end = strchrnul(lines, '\n');

        list[i] = strndup(lines, (size_t)(end - lines));
        lines = *end ? end + 1 : end;
    }
    return list;
}

static int kind_read(struct check_kind *k, const struct pg_result *r, size_t row)
{
    *k = (struct check_kind){.name = strdup(pg_text(r, row, 0)),
                             .ttl_ms = pg_i64(r, row, 2),
                             .policy = {.max_attempts = (int)pg_i64(r, row, 3),
                                        .cross_vendor_resend = pg_bool(r, row, 4),
                                        .max_calls = (int)pg_i64(r, row, 6),
                                        .backoff_base_ms = pg_i64(r, row, 7),
                                        .backoff_cap_ms = pg_i64(r, row, 8)}};
    if (!pg_is_null(r, row, 5) && !(k->route = route_of(pg_text(r, row, 5))))
        return -ENOMEM;
    if (!k->name)
        return -ENOMEM;
    return on_unknown_parse(pg_text(r, row, 1), &k->policy.on_unknown) ? 0 : -EINVAL;
}

static int load_shipped(struct check *c)
{
    size_t n = sizeof(shipped) / sizeof(shipped[0]);

    c->kinds = calloc(n, sizeof(*c->kinds));
    if (!c->kinds)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        struct check_kind *k = &c->kinds[c->kinds_n++];

        k->name = strdup(shipped[i].name);
        k->ttl_ms = shipped[i].ttl_ms;
        k->policy = (struct policy){.max_attempts = shipped[i].attempts,
                                    .max_calls = shipped[i].max_calls,
                                    .backoff_base_ms = shipped[i].backoff_base_ms,
                                    .backoff_cap_ms = shipped[i].backoff_cap_ms};
        if (!k->name || !on_unknown_parse(shipped[i].on_unknown, &k->policy.on_unknown))
            return -ENOMEM;
    }
    return 0;
}

int check_kinds_load(struct check *c, struct pg_sync *pg, struct err *err)
{
    struct pg_result *r = NULL;
    int rc;

    if (!pg)
        return load_shipped(c);
    rc = cli_try(pg, KINDS, NULL, &r, err);
    if (rc < 0)
        return rc;
    c->kinds = calloc(pg_rows(r) + 1, sizeof(*c->kinds));
    rc = c->kinds ? 0 : -ENOMEM;
    for (size_t i = 0; rc == 0 && i < pg_rows(r); i++)
        rc = kind_read(&c->kinds[c->kinds_n++], r, i);
    c->kinds_read = rc == 0;
    pg_result_free(r);
    return rc;
}

void check_kinds_free(struct check *c)
{
    for (size_t i = 0; i < c->kinds_n; i++) {
        for (char **s = c->kinds[i].route; s && *s; s++)
            free(*s);
        free(c->kinds[i].route);
        free(c->kinds[i].name);
    }
    free(c->kinds);
}

bool check_routed(const struct check_kind *kind, const char *provider)
{
    if (!kind->route)
        return true;
    for (char **s = kind->route; *s; s++) {
        if (strcmp(*s, provider) == 0)
            return true;
    }
    return false;
}

/* ---- what follows -------------------------------------------------------------------------- */

static json_t *follow(const struct check_kind *k, const struct capability *cap)
{
    struct doubt d = doubt_foretell(&k->policy, cap, k->ttl_ms);
    char *text = doubt_words(&d, &k->policy, k->ttl_ms);
    json_t *doc =
        json_pack("{s:s, s:s, s:s, s:b}", "kind", k->name, "after_timeout", text ? text : "",
                  "next", doubt_step_name(d.first), "duplicate_possible", d.duplicate);

    if (d.ask_ms > 0)
        json_object_set_new(doc, "ask_after_ms", json_integer(d.ask_ms));
    free(text);
    return doc;
}

json_t *check_kinds_doc(const struct check *c, const struct config_provider *p,
                        const struct plugin *plugin)
{
    struct capability cap = plugin_capability(plugin, p->timeout_ms);
    json_t *list = json_array();

    for (size_t i = 0; i < c->kinds_n; i++) {
        if (check_routed(&c->kinds[i], p->name))
            json_array_append_new(list, follow(&c->kinds[i], &cap));
    }
    return list;
}

/* ---- faults -------------------------------------------------------------------------------- */

static void refuse_ask(struct check *c, const struct check_kind *k, const char *provider)
{
    char *what = NULL;

    if (asprintf(&what,
                 "kind \"%s\" says on_unknown ask, but provider \"%s\" can neither be asked nor "
                 "de-duplicates",
                 k->name, provider) < 0)
        return;
    check_fault(c, EXIT_CONFIG, what, "choose hold or resend for the kind, or another route");
    free(what);
}

static void judge_route(struct check *c, const struct check_kind *k)
{
    size_t known = 0;
    char *what = NULL;

    for (char **s = k->route; s && *s; s++) {
        if (config_provider_find(c->config, *s))
            known++;
        else
            check_warn(c, "kind \"%s\": its route names \"%s\", which the configuration lacks",
                       k->name, *s);
    }
    if (!k->route || known > 0 ||
        asprintf(&what, "kind \"%s\" has no provider: its route names none of the configuration",
                 k->name) < 0)
        return;
    check_fault(c, EXIT_CONFIG, what, "mend the kind's route, or add the provider");
    free(what);
}

/* A life shorter than the vendor's unit is rounded up, or lost. */
static void judge_validity(struct check *c, const struct check_kind *k, const char *provider,
                           const struct provider_caps *caps)
{
    int64_t unit = caps->validity == PROVIDER_VALIDITY_MIN ? 60000
                   : caps->validity == PROVIDER_VALIDITY_S ? 1000
                                                           : 0;

    if (k->ttl_ms < unit)
        check_warn(c,
                   "kind \"%s\" lives %s, but the vendor of \"%s\" is told lives in %s: it may "
                   "deliver later than that",
                   k->name, words_duration(k->ttl_ms).text, provider,
                   unit == 60000 ? "minutes" : "seconds");
}

static void judge_pair(struct check *c, const struct check_kind *k, const struct config_provider *p,
                       const struct plugin *plugin)
{
    struct capability cap = plugin_capability(plugin, p->timeout_ms);
    struct doubt d = doubt_foretell(&k->policy, &cap, k->ttl_ms);

    if (d.impossible)
        refuse_ask(c, k, p->name);
    judge_validity(c, k, p->name, plugin_caps(plugin));
}

void check_kinds_judge(struct check *c, struct plugin *const *plugins)
{
    for (size_t i = 0; i < c->kinds_n; i++) {
        judge_route(c, &c->kinds[i]);
        for (size_t j = 0; j < c->config->providers_count; j++) {
            if (check_routed(&c->kinds[i], c->config->providers[j].name))
                judge_pair(c, &c->kinds[i], &c->config->providers[j], plugins[j]);
        }
    }
}
