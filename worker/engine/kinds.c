/* kinds.c - the rules of each kind, reread from the table every few seconds. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/internal.h"
#include "worker/engine/queries.h"
#include "worker/io/log.h"

static void kind_done(struct kind *k)
{
    free(k->name);
    for (size_t i = 0; k->route && k->route[i]; i++)
        free(k->route[i]);
    free(k->route);
}

static void free_list(struct kind *kinds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        kind_done(&kinds[i]);
    free(kinds);
}

void kinds_free(struct engine *e)
{
    free_list(e->kinds, e->kinds_n);
    e->kinds = NULL;
    e->kinds_n = 0;
}

/* Lines to a NULL-terminated list. */
static char **route_of(const char *lines)
{
    size_t n = 1;
    char **list;

    for (const char *s = lines; *s; s++)
        n += *s == '\n';
    list = calloc(n + 1, sizeof(*list));
    for (size_t i = 0; list && i < n; i++) {
        const char *end = strchrnul(lines, '\n');

        list[i] = strndup(lines, (size_t)(end - lines));
        lines = *end ? end + 1 : end;
    }
    return list;
}

/* What waits in a former lane is sent, but no slots are kept for it and nothing new comes there. */
static int kind_read(struct kind *k, const struct pg_result *r, size_t row)
{
    bool former = pg_bool(r, row, 11);

    *k = (struct kind){.name = strdup(pg_text(r, row, 0)),
                       .lane = (int)pg_i64(r, row, 1),
                       .reserved = former ? 0 : strtod(pg_text(r, row, 2), NULL),
                       .wake = !former && pg_bool(r, row, 10),
                       .policy = {.max_attempts = (int)pg_i64(r, row, 5),
                                  .max_calls = (int)pg_i64(r, row, 6),
                                  .backoff_base_ms = pg_i64(r, row, 7),
                                  .backoff_cap_ms = pg_i64(r, row, 8),
                                  .cross_vendor_resend = pg_bool(r, row, 9)}};
    if (!pg_is_null(r, row, 3) && !(k->route = route_of(pg_text(r, row, 3))))
        return -ENOMEM;
    if (!k->name || k->lane < 0 || k->lane >= LANES_MAX ||
        !on_unknown_parse(pg_text(r, row, 4), &k->policy.on_unknown))
        return -EINVAL;
    return 0;
}

/* `ask` needs a vendor that can be asked or that de-duplicates; else it would be at most once
 * under a false name. */
int kinds_check(const struct engine *e, struct err *err)
{
    for (size_t i = 0; i < e->kinds_n; i++) {
        const struct kind *k = &e->kinds[i];

        for (size_t j = 0; k->policy.on_unknown == ON_UNKNOWN_ASK &&
                           (k->route ? k->route[j] != NULL : j < e->setup.n);
             j++) {
            const struct vendor *v = k->route ? setup_find(e, k->route[j]) : e->setup.vendors[j];

            if (v && !v->cap.dedup && v->cap.asking != ASKING_BY_KEY) {
                err_set(err, -EINVAL,
                        "kind \"%s\" says on_unknown ask, but provider \"%s\" can neither be "
                        "asked nor de-duplicates",
                        k->name, v->conf->name);
                err_hint(err, "choose hold or resend for the kind, or another route");
                return -EINVAL;
            }
        }
    }
    return 0;
}

static void lanes_from_kinds(struct engine *e)
{
    for (int i = 0; i < LANES_MAX; i++) {
        e->lanes[i].used = false;
        e->lanes[i].wake = false;
        e->lanes[i].reserved = 0;
    }
    for (size_t i = 0; i < e->kinds_n; i++) {
        struct lane *lane = &e->lanes[e->kinds[i].lane];

        lane->used = true;
        lane->wake = lane->wake || e->kinds[i].wake;
        lane->reserved += e->kinds[i].reserved;
    }
}

static void on_kinds(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct engine *e = arg;
    size_t n = end == PG_COMMITTED ? pg_rows(r) : 0;
    struct kind *kinds = n > 0 ? calloc(n, sizeof(*kinds)) : NULL, *old;
    struct err err = ERR_INIT;
    size_t old_n;

    if (!kinds) {
        if (end == PG_COMMITTED)
            log_event(LOG_LEVEL_ERROR, "no_kinds", NULL);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (kind_read(&kinds[i], r, i) < 0) {
            log_event(LOG_LEVEL_ERROR, "kind_refused", "kind=%s", pg_text(r, i, 0));
            free_list(kinds, i + 1);
            return; /* the rules we have stay in force */
        }
    }
    old = e->kinds;
    old_n = e->kinds_n;
    e->kinds = kinds;
    e->kinds_n = n;
    if (kinds_check(e, &err) < 0) {
        log_event(LOG_LEVEL_ERROR, "kinds_refused", "error=%s hint=%s", err_text(&err), err.hint);
        e->kinds = old;
        e->kinds_n = old_n;
        free_list(kinds, n);
        if (!e->kinds_ok)
            e->refused = true; /* at start this is a configuration fault */
    } else {
        free_list(old, old_n);
        lanes_from_kinds(e);
        e->kinds_ok = true;
    }
    err_done(&err);
    engine_wake(e);
}

void kinds_load(struct engine *e)
{
    if (e->doors[DOOR_HOUSE].checked)
        pg_exec(e->doors[DOOR_HOUSE].pg, QUERY_KINDS, NULL, on_kinds, e);
}
