/* The kinds: what they ask for, and what follows where a vendor cannot give it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/provider.h"
#include "worker/cli/check.h"
#include "worker/cli/cli.h"
#include "worker/cli/connect.h"
#include "worker/cli/words.h"
#include "worker/engine/config.h"
#include "worker/io/pg.h"

/* As sql/001_schema.sql makes them; a test compares. */
static const struct {
    const char *name, *on_unknown;
    int64_t ttl_ms;
    int attempts;
} shipped[] = {{"otp", "resend", 300000, 4},
               {"transactional", "resend", 86400000, 6},
               {"campaign", "hold", 86400000, 4}};

#define KINDS                                                                                      \
    "SELECT name, on_unknown, (extract(epoch FROM ttl) * 1000)::bigint, attempts, "                \
    "cross_vendor_resend, array_to_string(route, E'\\n') FROM postrider.kind ORDER BY lane, name"

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
                             .attempts = (int)pg_i64(r, row, 3),
                             .cross_vendor_resend = pg_bool(r, row, 4)};
    if (!pg_is_null(r, row, 5) && !(k->route = route_of(pg_text(r, row, 5))))
        return -ENOMEM;
    if (!k->name)
        return -ENOMEM;
    return on_unknown_parse(pg_text(r, row, 1), &k->on_unknown) ? 0 : -EINVAL;
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
        k->attempts = shipped[i].attempts;
        if (!k->name || !on_unknown_parse(shipped[i].on_unknown, &k->on_unknown))
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

/* The end of "sent again under the same key for WINDOW, then ...". */
static const char *after_window(const struct check_kind *k)
{
    return k->on_unknown == ON_UNKNOWN_RESEND ? "again though the vendor has forgotten the key: a "
                                                "duplicate is possible, and counted"
                                              : "shown as unknown and not sent again";
}

static int say_dedup(const struct check_kind *k, int64_t window_ms, bool *ret_duplicate, char **ret)
{
    struct words life = words_duration(k->ttl_ms), window = words_duration(window_ms);

    *ret_duplicate = false;
    if (k->ttl_ms <= window_ms)
        return asprintf(ret,
                        "sent again under the same key for %s, which covers its life (%s by "
                        "default): not doubled",
                        window.text, life.text);
    *ret_duplicate = k->on_unknown == ON_UNKNOWN_RESEND;
    return asprintf(ret, "sent again under the same key for %s, then %s", window.text,
                    after_window(k));
}

static int say_without(const struct check_kind *k, bool *ret_duplicate, char **ret)
{
    *ret_duplicate = k->on_unknown == ON_UNKNOWN_RESEND;
    if (k->on_unknown == ON_UNKNOWN_HOLD)
        return asprintf(ret, "not sent again, but shown as unknown until a receipt, the vendor's "
                             "log or an operator settles it");
    if (k->on_unknown == ON_UNKNOWN_ASK)
        return asprintf(ret, "impossible: this vendor can neither be asked nor de-duplicates");
    return asprintf(ret,
                    "sent again while it lives (%s), in at most %d attempts: the phone may get it "
                    "up to %d times, and each possible duplicate is counted",
                    words_duration(k->ttl_ms).text, k->attempts, k->attempts);
}

char *check_after_timeout(const struct check_kind *kind, const struct provider_caps *caps,
                          bool *ret_duplicate)
{
    char *text = NULL, *more = NULL;
    bool roams = kind->cross_vendor_resend && kind->on_unknown == ON_UNKNOWN_RESEND;
    int rc;

    if (caps->dedup != PROVIDER_DEDUP_NONE && !roams)
        rc = say_dedup(kind, caps->dedup_window_ms, ret_duplicate, &text);
    else
        rc = say_without(kind, ret_duplicate, &text);
    if (rc < 0)
        return NULL;
    if (roams &&
        asprintf(&more, "%s; another vendor may be tried (cross_vendor_resend)", text) >= 0) {
        free(text);
        text = more;
    }
    return text;
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

void check_kinds_judge(struct check *c, const struct provider_caps *caps)
{
    for (size_t i = 0; i < c->kinds_n; i++) {
        const struct check_kind *k = &c->kinds[i];

        judge_route(c, k);
        for (size_t j = 0; j < c->config->providers_count; j++) {
            const char *provider = c->config->providers[j].name;

            if (k->on_unknown == ON_UNKNOWN_ASK && check_routed(k, provider) &&
                caps[j].dedup == PROVIDER_DEDUP_NONE && caps[j].ask == PROVIDER_ASK_NONE)
                refuse_ask(c, k, provider);
        }
    }
}
