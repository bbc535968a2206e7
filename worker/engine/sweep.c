/* sweep.c - what dead workers left behind. Every worker sweeps; there is no leader.
 *
 * The sweeper puts nothing back: it says "unknown, the process is lost" to the same classify and
 * decide that judge live calls (R6), and stores the answer by the same fenced settle (R3). It waits
 * when clocks jump (R10). */
#include <stdlib.h>
#include <string.h>

#include "worker/core/classify.h"
#include "worker/engine/internal.h"
#include "worker/engine/queries.h"
#include "worker/io/clock.h"
#include "worker/io/failpoint.h"
#include "worker/io/log.h"

enum { SWEEP_AT_ONCE = 8, LOOK_TOKEN = 0, LOOK_WORKER, LOOK_OVER_MS, LOOK_AGE_MS, LOOK_N };

struct sweeping {
    struct engine *e;
    int64_t token;
};

static struct capability cannot_prove(void)
{
    return (struct capability){.dedup = false};
}

static struct msg *swept_msg(struct engine *e, struct batch *b, const struct pg_result *r,
                             size_t row, int64_t now)
{
    struct msg *m = calloc(1, sizeof(*m));
    struct kind *k = engine_kind(e, pg_text(r, row, 1));
    struct vendor *v = setup_find(e, pg_text(r, row, 2));
    struct capability cap = v ? v->cap : cannot_prove();
    struct evidence ev = {.lost = true};
    struct view view;

    if (!m)
        return NULL;
    m->engine = e;
    m->batch = b;
    m->swept = true;
    m->policy = k ? k->policy : (struct policy){.on_unknown = ON_UNKNOWN_HOLD, .max_attempts = 1};
    memcpy(m->id, pg_text(r, row, 0), UUID_LEN);
    m->attempts = (int)pg_i64(r, row, 3);
    m->calls = (int)pg_i64(r, row, 4) + 1; /* it may have called */
    m->doubts = (int)pg_i64(r, row, 5);
    view = (struct view){.attempts = m->attempts,
                         .calls = m->calls,
                         .doubts = m->doubts,
                         .now_ms = now,
                         .expires_ms = now + pg_i64(r, row, 6),
                         .doubt_since_ms = now - pg_i64(r, row, 7),
                         .started_ms = now - pg_i64(r, row, 8),
                         .jitter = engine_jitter()};
    m->called = true;
    m->has_outcome = true;
    m->outcome = classify(&ev);
    m->phase = "lost";
    m->code = strdup("worker lost");
    m->decision = decide(&m->policy, &cap, &view, m->outcome, -1);
    return m;
}

static void judge_rows(struct engine *e, int64_t token, const struct pg_result *r)
{
    int64_t now = clock_boot_ms();
    struct batch *b = calloc(1, sizeof(*b));

    if (!b)
        return;
    b->token = token;
    b->t0 = now - pg_i64(r, 0, 8);
    b->total = (unsigned)pg_rows(r) + 1; /* one more: it must not end before all are pushed */
    b->next = e->batches;
    if (b->next)
        b->next->prev = b;
    e->batches = b;
    for (size_t i = 0; i < pg_rows(r); i++) {
        struct msg *m = swept_msg(e, b, r, i, now);

        if (!m) {
            b->total--;
            continue;
        }
        e->report.swept_unknown++;
        settle_push(e, m);
    }
    b->total--;
    if (b->total == 0)
        batch_settled(e, b, 0);
}

static void on_rows(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct sweeping *s = arg;

    if (end == PG_COMMITTED && pg_rows(r) > 0) {
        log_event(LOG_LEVEL_WARN, "swept", "token=%lld n=%zu", (long long)s->token, pg_rows(r));
        failpoint("sweep_unsettled");
        judge_rows(s->e, s->token, r);
    } else if (end == PG_COMMITTED) {
        settle_done(s->e, s->token); /* nothing is left under it: forget the lease */
        engine_wake(s->e);
    }
    free(s);
}

static void sweep_one(struct engine *e, int64_t token)
{
    struct sweeping *s = malloc(sizeof(*s));
    struct pg_params *p = pg_params_new();

    if (!s) {
        pg_params_free(p);
        return;
    }
    *s = (struct sweeping){e, token};
    pg_add_i64(p, token);
    if (pg_exec(e->doors[DOOR_HOUSE].pg, QUERY_SWEEP_ROWS, p, on_rows, s) < 0)
        free(s);
}

/* Answers of ours that are still to be stored: we keep trying, and do not judge ourselves. */
static bool in_our_hands(const struct engine *e, int64_t token)
{
    for (const struct batch *b = e->batches; b; b = b->next) {
        if (b->token == token)
            return true;
    }
    return false;
}

static bool is_over(const struct engine *e, const struct pg_result *r, size_t row)
{
    return !pg_is_null(r, row, LOOK_TOKEN) &&
           pg_i64(r, row, LOOK_OVER_MS) > e->setup.config->settle_allowance_ms;
}

static void survey(const struct engine *e, const struct pg_result *r, struct sweep_look *look)
{
    int64_t first = -1;

    *look = (struct sweep_look){.boot_ms = clock_boot_ms(), .lease_ms = engine_lease_ms(e)};
    for (size_t i = 0; i < pg_rows(r); i++) {
        if (pg_is_null(r, i, LOOK_TOKEN)) {
            look->db_ms = pg_i64(r, i, LOOK_OVER_MS);
            continue;
        }
        look->leases++;
        if (!is_over(e, r, i))
            continue;
        look->over++;
        if (look->over_workers == 0) {
            first = pg_i64(r, i, LOOK_WORKER);
            look->over_workers = 1;
        } else if (pg_i64(r, i, LOOK_WORKER) != first) {
            look->over_workers = 2; /* two or more: all the guard asks */
        }
    }
}

static void on_look(void *arg, enum pg_end end, const struct pg_result *r)
{
    static const char *const why[] = {
        [SWEEP_WAIT_FRESH] = "new connection",
        [SWEEP_WAIT_DRIFT] = "database clock and ours moved apart",
        [SWEEP_WAIT_MANY] = "many leases ended at once",
    };
    struct engine *e = arg;
    struct sweep_look look;
    enum sweep_verdict verdict;
    unsigned n = 0;

    e->sweep_busy = false;
    if (end != PG_COMMITTED)
        return;
    survey(e, r, &look);
    verdict = sweep_guard_look(&e->guard, &look);
    e->report.last_sweep_ago_ms = clock_boot_ms(); /* an absolute time; aged when reported */
    if (verdict == SWEEP_WAIT_DRIFT || verdict == SWEEP_WAIT_MANY)
        log_event(LOG_LEVEL_WARN, "sweep_waits", "why=%s ms=%lld", why[verdict],
                  (long long)look.lease_ms);
    if (verdict != SWEEP_GO)
        return;
    for (size_t i = 0; i < pg_rows(r) && n < SWEEP_AT_ONCE; i++) {
        if (is_over(e, r, i) && !in_our_hands(e, pg_i64(r, i, LOOK_TOKEN))) {
            sweep_one(e, pg_i64(r, i, LOOK_TOKEN));
            n++;
        }
    }
}

void sweep_turn(struct engine *e)
{
    if (e->sweep_busy || e->draining || !e->kinds_ok || !e->adopted ||
        !e->doors[DOOR_HOUSE].checked)
        return;
    e->sweep_busy = pg_exec(e->doors[DOOR_HOUSE].pg, QUERY_SWEEP_LOOK, NULL, on_look, e) == 0;
}
