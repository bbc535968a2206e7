/* house.c - connections, whose database this is, and what has to be done now and then. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/engine/internal.h"
#include "worker/engine/queries.h"
#include "worker/io/clock.h"
#include "worker/io/log.h"

#define STALL_MS 10000

static const char *const door_names[DOORS] = {"urgent", "bulk", "settle", "house"};

/* ---- is this the database we may send from? (R12) ---- */

static void judge_house(struct engine *e, const struct pg_result *r, int first_col)
{
    const char *identity = pg_text(r, 0, first_col), *adopted = pg_text(r, 0, first_col + 1);
    bool was = e->adopted, durable = pg_bool(r, 0, first_col + 2);

    e->adopted = strcmp(identity, adopted) == 0;
    if (!e->adopted && (was || !e->cautious))
        log_event(LOG_LEVEL_ERROR, "cautious", "why=%s adopted=%s found=%s hint=%s",
                  "this is not the database that was adopted: nothing is sent", adopted, identity,
                  "if this copy shall send, run: postrider adopt");
    e->cautious = !e->adopted;
    if (!durable && (e->durable || !e->told_durable)) {
        log_event(LOG_LEVEL_ERROR, "not_durable", "why=%s",
                  "fsync, full_page_writes or synchronous_commit is off: kinds that hold or ask "
                  "are not sent");
        e->told_durable = true;
    }
    e->durable = durable;
}

static void judge_schema(struct engine *e, int64_t version)
{
    int wanted = e->options->schema_version;

    e->report.schema_version = (int)version;
    e->report.schema_wanted = wanted;
    e->schema_ok = version == wanted;
    if (!e->schema_ok)
        log_event(LOG_LEVEL_ERROR, "schema_differs", "found=%lld wanted=%d hint=%s",
                  (long long)version, wanted,
                  "run: postrider migrate (older), or upgrade postrider (newer)");
}

static void door_checked(struct door *d)
{
    struct engine *e = d->engine;

    d->checked = true;
    if (d == &e->doors[DOOR_HOUSE]) {
        sweep_guard_reset(&e->guard); /* R10: after a reconnect, distrust */
        kinds_load(e);
        claim_tokens(e);
        claim_release_lost(e);
    }
    for (int i = 0; i < LANES_MAX; i++)
        e->lanes[i].hint = true; /* what came while nobody listened */
    e->settle_urgent = true;
    engine_wake(e);
}

static void on_checked(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct door *d = arg;

    if (end != PG_COMMITTED || pg_rows(r) == 0) {
        d->check_at = clock_boot_ms() + 1000;
        if (end == PG_FAILED)
            log_event(LOG_LEVEL_ERROR, "house_not_read",
                      "connection=%s sqlstate=%s error=%s hint=%s", d->name, pg_sqlstate(r),
                      pg_error(r),
                      "run: postrider migrate; connect as a member of postrider_worker");
        return;
    }
    judge_house(d->engine, r, 0);
    judge_schema(d->engine, pg_i64(r, 0, 3));
    if (d->engine->schema_ok)
        door_checked(d);
    else
        d->check_at = clock_boot_ms() + 5000;
}

static void on_hello(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct door *d = arg;
    struct engine *e = d->engine;

    if (end != PG_COMMITTED || pg_rows(r) == 0) {
        on_checked(arg, end, r);
        return;
    }
    e->worker_id = pg_i64(r, 0, 0);
    e->hello_done = true;
    e->clock_skew_ms = pg_i64(r, 0, 4) - clock_real_ms();
    judge_house(e, r, 1);
    judge_schema(e, pg_i64(r, 0, 5));
    log_event(LOG_LEVEL_INFO, "connected", "worker=%lld schema=%d clock_skew_ms=%lld",
              (long long)e->worker_id, e->report.schema_version, (long long)e->clock_skew_ms);
    if (e->schema_ok)
        door_checked(d);
    else
        d->check_at = clock_boot_ms() + 5000;
}

static char *caps_json(const struct vendor *v)
{
    const struct provider_caps *c = plugin_caps(v->plugin);
    static const char *const dedup[] = {"none", "replay", "reject"};
    char *text = NULL;

    /* Only numbers and words of ours: nothing in it needs escaping. */
    if (asprintf(&text,
                 "{\"dedup\": \"%s\", \"window_s\": %lld, \"timeout_ms\": %lld, "
                 "\"askable\": %s, \"askable_by_id\": %s, \"keeps_ids\": %s}",
                 c->dedup < 3 ? dedup[c->dedup] : "none", (long long)(c->dedup_window_ms / 1000),
                 (long long)v->conf->timeout_ms, v->cap.asking == ASKING_BY_KEY ? "true" : "false",
                 v->cap.asking == ASKING_BY_ID ? "true" : "false",
                 vendor_keeps_ids(v) ? "true" : "false") < 0)
        return NULL;
    return text;
}

static int say_hello(struct door *d)
{
    struct engine *e = d->engine;
    size_t n = e->setup.n;
    const char **names = calloc(n, sizeof(*names)), **plugins = calloc(n, sizeof(*plugins));
    char **caps = calloc(n, sizeof(*caps)), host[256] = "";
    struct pg_params *p = pg_params_new();
    int rc = -ENOMEM;

    gethostname(host, sizeof(host) - 1);
    for (size_t i = 0; names && plugins && caps && i < n; i++) {
        names[i] = e->setup.vendors[i]->conf->name;
        plugins[i] = plugin_name(e->setup.vendors[i]->plugin);
        caps[i] = caps_json(e->setup.vendors[i]);
    }
    if (p && names && plugins && caps) {
        pg_add_text(p, host);
        pg_add_i64(p, getpid());
        pg_add_text(p, POSTRIDER_VERSION);
        pg_add_text_array(p, names, n);
        pg_add_text_array(p, plugins, n);
        pg_add_text_array(p, (const char *const *)caps, n);
        rc = pg_exec(d->pg, QUERY_HELLO, p, on_hello, d);
    }
    for (size_t i = 0; caps && i < n; i++)
        free(caps[i]);
    free(caps);
    free(names);
    free(plugins);
    return rc;
}

static void check_door(struct door *d)
{
    d->check_at = INT64_MAX; /* until the answer says otherwise */
    if (d == &d->engine->doors[DOOR_HOUSE] && !d->engine->hello_done)
        say_hello(d);
    else
        pg_exec(d->pg, QUERY_CHECK_HOUSE, NULL, on_checked, d);
}

/* ---- connections ---- */

static void note_db(struct engine *e, bool up, const char *why)
{
    if (e->report.db_up == up)
        return;
    e->report.db_up = up;
    e->report.db_since_ms = clock_boot_ms(); /* an absolute time; aged when reported */
    report_set(&e->report.db_error, why);
    e->report.db_reconnects += up;
}

static void on_up(void *arg)
{
    struct door *d = arg;

    note_db(d->engine, true, "");
    check_door(d);
}

static void on_down(void *arg, const char *why)
{
    struct door *d = arg;

    if (d->checked || !d->told_down)
        log_event(LOG_LEVEL_WARN, "database_down", "connection=%s why=%s", d->name, why);
    d->told_down = true;
    d->checked = false;
    d->check_at = INT64_MAX;
    note_db(d->engine, false, why);
}

static void on_notify(void *arg, const char *channel, const char *payload)
{
    struct door *d = arg;

    (void)channel;
    (void)payload;
    for (int i = 0; i < LANES_MAX; i++)
        d->engine->lanes[i].hint = d->engine->lanes[i].hint || d->engine->lanes[i].wake;
    claim_turn(d->engine); /* at once: a code does not wait for the end of this turn */
}

int house_open(struct engine *e, const char *dsn, struct err *err)
{
    e->report.last_claim_ago_ms = clock_boot_ms();
    for (int i = 0; i < DOORS; i++) {
        struct door *d = &e->doors[i];
        struct pg_events events = {
            .on_up = on_up, .on_down = on_down, .on_notify = on_notify, .arg = d};
        int rc;

        *d = (struct door){.engine = e, .name = door_names[i], .check_at = INT64_MAX};
        rc = pg_new(e->loop, dsn, d->name, i == DOOR_URGENT ? "postrider" : NULL, STALL_MS, &events,
                    &d->pg, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

void house_close(struct engine *e)
{
    for (int i = 0; i < DOORS; i++)
        pg_free(e->doors[i].pg);
}

/* ---- now and then ---- */

static void on_counts(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct engine *e = arg;

    if (end != PG_COMMITTED)
        return;
    report_clear(&e->report, REPORT_COUNTS);
    for (size_t i = 0; i < pg_rows(r); i++)
        report_add_count(&e->report, pg_text(r, i, 0), pg_text(r, i, 1), pg_i64(r, i, 2));
    e->report.counts_ago_ms = clock_boot_ms(); /* an absolute time; aged when reported */
}

static void on_lanes(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct engine *e = arg;

    if (end != PG_COMMITTED)
        return;
    report_clear(&e->report, REPORT_LANES);
    for (size_t i = 0; i < pg_rows(r); i++)
        report_add_lane(&e->report, pg_text(r, i, 0),
                        pg_is_null(r, i, 1) ? AGE_NONE : pg_i64(r, i, 1));
}

static void on_workers(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct engine *e = arg;

    if (end != PG_COMMITTED)
        return;
    report_clear(&e->report, REPORT_WORKERS);
    for (size_t i = 0; i < pg_rows(r); i++) {
        struct report_worker *w =
            report_add_worker(&e->report, pg_text(r, i, 0), pg_text(r, i, 1), pg_text(r, i, 3));

        if (!w)
            return;
        w->pid = pg_i64(r, i, 2);
        w->seen_ago_ms = pg_i64(r, i, 4);
        w->in_air = pg_i64(r, i, 5);
        w->draining = pg_bool(r, i, 6);
        w->self = pg_i64(r, i, 0) == e->worker_id;
    }
}

static void on_health(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct engine *e = arg;

    if (end != PG_COMMITTED || pg_rows(r) == 0)
        return;
    e->clock_skew_ms = pg_i64(r, 0, 0) - clock_real_ms();
    e->report.live_tuples = pg_i64(r, 0, 1);
    e->report.dead_tuples = pg_i64(r, 0, 2);
    e->report.oldest_snapshot_ms = pg_is_null(r, 0, 3) ? AGE_NONE : pg_i64(r, 0, 3);
    e->report.oldest_snapshot_pid = pg_i64(r, 0, 4);
}

static void on_hung_up(void *arg, enum pg_end end, const struct pg_result *r)
{
    (void)arg;
    if (end == PG_COMMITTED && pg_i64(r, 0, 0) > 0)
        log_event(LOG_LEVEL_WARN, "hung_up", "n=%lld why=%s", (long long)pg_i64(r, 0, 0),
                  "sessions hung in the midst of a statement");
}

static void on_done(void *arg, enum pg_end end, const struct pg_result *r)
{
    const char *what = arg;

    if (end == PG_FAILED)
        log_event(LOG_LEVEL_ERROR, "house_keeping_failed", "what=%s sqlstate=%s error=%s", what,
                  pg_sqlstate(r), pg_error(r));
}

/* Settings and identity may change under a connection that stays up. */
static void on_rechecked(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct engine *e = arg;

    if (end != PG_COMMITTED || pg_rows(r) == 0)
        return;
    judge_house(e, r, 0);
    engine_wake(e);
}

static void keep_house(struct engine *e, struct pg *pg)
{
    static char fold[] = "fold_counters", expire[] = "expire", partitions[] = "partitions";
    unsigned s = e->seconds++;

    pg_exec(pg, QUERY_FOLD, NULL, on_done, fold);
    if (s % 3600 == 0)
        pg_exec(pg, QUERY_PARTITIONS, NULL, on_done, partitions);
    for (int i = 0; s % 5 == 2 && i < LANES_MAX; i++) {
        struct pg_params *p;

        if (!e->lanes[i].used)
            continue;
        p = pg_params_new();
        pg_add_i64(p, i);
        pg_exec(pg, QUERY_EXPIRE, p, on_done, expire);
    }
    if (s % 5 == 0)
        kinds_load(e);
    if (s % 5 == 4)
        pg_exec(pg, QUERY_HANG_UP, NULL, on_hung_up, e);
    if (s % 2 == 0) {
        pg_exec(pg, QUERY_COUNTS, NULL, on_counts, e);
        pg_exec(pg, QUERY_LANES, NULL, on_lanes, e);
    }
    if (s % 5 == 1) {
        pg_exec(pg, QUERY_WORKERS, NULL, on_workers, e);
        pg_exec(pg, QUERY_HEALTH, NULL, on_health, e);
    }
    if (s % 5 == 3)
        house_beat(e, false);
    if (s % (e->cautious ? 2 : 5) == 1)
        pg_exec(pg, QUERY_CHECK_HOUSE, NULL, on_rechecked, e);
}

void house_second(struct engine *e)
{
    int64_t now = clock_boot_ms();
    struct pg *pg = e->doors[DOOR_HOUSE].pg;

    for (int i = 0; i < DOORS; i++) {
        if (now >= e->doors[i].check_at && pg_is_up(e->doors[i].pg))
            check_door(&e->doors[i]);
    }
    if (!e->doors[DOOR_HOUSE].checked || pg_pending(pg) > 16)
        return; /* behind: do not pile up */
    keep_house(e, pg);
    claim_tokens(e);
    claim_release_lost(e);
    login_turn(e);
    ask_turn(e);
    late_turn(e);
    if (now >= e->sweep_at) {
        int64_t pause = engine_lease_ms(e) / 8;

        sweep_turn(e);
        e->sweep_at = now + (pause < 5000 ? pause : 5000);
    }
}

/* `postrider provider list` reads them. Names of providers and words of ours need no escaping. */
static void print_doors(FILE *out, const struct engine *e)
{
    static const char *const doors[] = {"open", "paused", "held"};
    int64_t now = clock_boot_ms();

    for (size_t i = 0; i < e->setup.n; i++) {
        const struct vendor *v = e->setup.vendors[i];
        enum report_door door = vendor_door(v, now);

        fprintf(out, "%s\"%s\": {\"door\": \"%s\"", i > 0 ? ", " : "", v->conf->name, doors[door]);
        if (door != REPORT_OPEN)
            fprintf(out, ", \"why\": \"%s\"", vendor_shut_why(v, now));
        fputc('}', out);
    }
}

static char *beat_text(const struct engine *e)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    if (!out)
        return NULL;
    fprintf(out,
            "{\"in_air\": %u, \"draining\": %s, \"settled\": %llu, \"claimed\": %llu, "
            "\"doors\": {",
            e->in_air, e->draining ? "true" : "false", (unsigned long long)e->report.settled,
            (unsigned long long)e->report.claimed);
    print_doors(out, e);
    fputs("}}", out);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

void house_beat(struct engine *e, bool stopped)
{
    char *text = beat_text(e);

    if (text && e->hello_done && e->doors[DOOR_HOUSE].checked) {
        struct pg_params *p = pg_params_new();

        pg_add_i64(p, e->worker_id);
        pg_add_text(p, text);
        pg_add_bool(p, stopped);
        pg_exec(e->doors[DOOR_HOUSE].pg, QUERY_BEAT, p, NULL, NULL);
    }
    free(text);
}
