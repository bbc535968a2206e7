/* settle.c - stores how messages ended, in batches, until it is stored.
 *
 * Answers are kept until PostgreSQL has them. A settle is idempotent (id, token and `sending`
 * are named, rule R3), so one whose COMMIT answer was lost is simply sent again; rows that no
 * longer match are late news. */
#include <stdlib.h>
#include <string.h>

#include "worker/engine/internal.h"
#include "worker/engine/queries.h"
#include "worker/io/clock.h"
#include "worker/io/failpoint.h"
#include "worker/io/log.h"

enum { STORING_MAX = 8 }; /* settles under way at once */

struct storing { /* one settle under way */
    struct storing *prev, *next;
    struct engine *e;
    bool common; /* settle_sent */
    size_t n, done_n;
    int64_t *done;
    struct msg *rows[]; /* sorted by id */
};

/* ---- which end, and when ---- */

static bool is_common(const struct msg *m)
{
    return m->has_outcome && m->outcome == OUTCOME_ACCEPTED && m->decision.state == MSG_SENT &&
           m->attempts <= 1 && m->calls == 1 && m->doubts == 0 && !m->parts && !m->swept &&
           m->tries == 0;
}

/* Counts from the moment nothing is being stored: the busier the database, the larger the
 * batches, as in group commit. */
static void start_timer(struct engine *e)
{
    if (e->settles_open > 0 || ev_is_active(&e->settle_timer))
        return;
    ev_timer_set(&e->settle_timer, (double)e->setup.config->settle_ms / 1000.0, 0.);
    ev_timer_start(e->loop, &e->settle_timer);
}

void settle_push(struct engine *e, struct msg *m)
{
    if (e->sent.n + e->ended.n + e->storing == 0)
        e->unsettled_since = clock_boot_ms();
    queue_push(is_common(m) ? &e->sent : &e->ended, m);
    if (e->sent.n >= BATCH_MAX || e->ended.n >= BATCH_MAX)
        e->settle_urgent = true;
    start_timer(e);
}

void settle_done(struct engine *e, int64_t token)
{
    /* Forgetting this costs a look by the sweeper, nothing else. */
    list_push(&e->done, &e->done_n, &e->done_cap, token);
}

/* ---- after the commit ---- */

static void end_msg(struct engine *e, struct msg *m)
{
    batch_settled(e, m->batch, 1);
    e->report.settled++;
    msg_free(m);
}

/* Another judged our attempt meanwhile. What never left is news as well: it clears the doubt. */
static void tell_late(struct engine *e, struct msg *m)
{
    e->report.settled_stale++;
    if (!m->has_outcome) {
        m->outcome = OUTCOME_UNREACHED;
        m->phase = http_phase_name(HTTP_PHASE_QUEUE);
    }
    late_push(e, m);
}

static void stored(struct storing *s, const struct pg_result *r)
{
    struct engine *e = s->e;
    bool doubted = false;

    /* Positions that no longer matched: a sweeper was faster, or this is a replay. */
    for (size_t i = 0; i < pg_rows(r); i++) {
        int64_t at = pg_i64(r, i, 0);

        if (at >= 0 && (size_t)at < s->n && !s->rows[at]->swept)
            tell_late(e, s->rows[at]);
    }
    for (size_t i = 0; i < s->n; i++) {
        doubted = doubted || s->rows[i]->outcome == OUTCOME_UNKNOWN;
        end_msg(e, s->rows[i]);
    }
    if (doubted)
        receipts_apply(
            e); /* one that came before the answer may settle it before a resend leaves */
    e->report.settles++;
    e->unsettled_since = clock_boot_ms(); /* what is left came after the last success, nearly */
    e->report.last_settle_ago_ms = clock_boot_ms(); /* an absolute time; aged when reported */
}

/* ---- when it did not commit ---- */

/* A row whose own data the database refuses (a trigger, a constraint) must not hold up the
 * others: after two refusals alone it is stored as unknown with the database's words. */
static void make_unknown(struct msg *m, const struct pg_result *r)
{
    struct view view = {.attempts = m->attempts, .doubts = m->doubts};

    log_event(LOG_LEVEL_ERROR, "settle_refused", "id=%s outcome=%s sqlstate=%s error=%s", m->id,
              outcome_name(m->outcome), pg_sqlstate(r), pg_error(r));
    m->decision = decide_unstorable(&view);
    m->outcome = OUTCOME_UNKNOWN;
    free(m->detail);
    m->detail = strdup(pg_error(r));
    free(m->code);
    m->code = strdup(pg_sqlstate(r));
}

static bool transient(const struct pg_result *r)
{
    const char *s = pg_sqlstate(r);

    /* Classes: connection, roll back and try again, resources, operator intervention, system. */
    return strncmp(s, "08", 2) == 0 || strncmp(s, "40", 2) == 0 || strncmp(s, "53", 2) == 0 ||
           strncmp(s, "57", 2) == 0 || strncmp(s, "58", 2) == 0 || strncmp(s, "55", 2) == 0 ||
           strcmp(s, "25006") == 0;
}

static void keep(struct storing *s, bool lost)
{
    struct engine *e = s->e;

    for (size_t i = s->n; i-- > 0;) {
        struct msg *m = s->rows[i];

        m->batch->done_sent = false;
        queue_push_front(lost && is_common(m) ? &e->sent : &e->ended, m);
    }
    for (size_t i = 0; i < s->done_n; i++)
        settle_done(e, s->done[i]); /* the database knows if it is too early, and keeps it */
}

static void abandon(struct storing *s)
{
    struct msg *m = s->rows[0];

    m->batch->done_sent = true; /* never by us: the row is still sending under it */
    batch_settled(s->e, m->batch, 1);
    msg_free(m);
    for (size_t i = 0; i < s->done_n; i++)
        settle_done(s->e, s->done[i]);
}

static void not_stored(struct storing *s, enum pg_end end, const struct pg_result *r)
{
    struct engine *e = s->e;
    bool again = end == PG_LOST || transient(r);

    if (!again) {
        log_event(LOG_LEVEL_ERROR, "settle_failed", "n=%zu sqlstate=%s error=%s", s->n,
                  pg_sqlstate(r), pg_error(r));
        for (size_t i = 0; i < s->n; i++) {
            if (++s->rows[i]->tries > 2 && s->n == 1)
                make_unknown(s->rows[i], r);
        }
    }
    if (s->n == 1 && s->rows[0]->tries > 6)
        abandon(s); /* its lease ends, and the sweeper says so again */
    else
        keep(s, again);
    if (end != PG_LOST)
        e->settle_pause_until = clock_boot_ms() + 100;
}

static void storing_free(struct storing *s)
{
    free(s->done);
    free(s);
}

static void on_stored(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct storing *s = arg;
    struct engine *e = s->e;

    if (end == PG_COMMITTED)
        failpoint("settle_committed");
    *(s->prev ? &s->prev->next : &e->settling) = s->next;
    if (s->next)
        s->next->prev = s->prev;
    e->storing -= s->n;
    e->settles_open--;
    if (end == PG_COMMITTED)
        stored(s, r);
    else
        not_stored(s, end, r);
    storing_free(s);
    if (e->sent.n + e->ended.n + e->done_n > 0)
        start_timer(e);
    engine_wake(e);
}

/* ---- parameters ---- */

static int by_id(const void *a, const void *b)
{
    const struct msg *const *x = a, *const *y = b;

    return memcmp((*x)->id, (*y)->id, UUID_LEN);
}

/* Columns of the rows, gathered for one array parameter after another. */
struct columns {
    const struct storing *s;
    struct pg_params *p;
    const char **texts;
    int64_t *longs;
    int32_t *ints;
};

#define TEXTS(c, expression)                                                                       \
    do {                                                                                           \
        for (size_t i_ = 0; i_ < (c)->s->n; i_++) {                                                \
            const struct msg *m = (c)->s->rows[i_];                                                \
            (c)->texts[i_] = (expression);                                                         \
        }                                                                                          \
        pg_add_text_array((c)->p, (c)->texts, (c)->s->n);                                          \
    } while (0)
#define LONGS(c, expression)                                                                       \
    do {                                                                                           \
        for (size_t i_ = 0; i_ < (c)->s->n; i_++) {                                                \
            const struct msg *m = (c)->s->rows[i_];                                                \
            (c)->longs[i_] = (expression);                                                         \
        }                                                                                          \
        pg_add_i64_array((c)->p, (c)->longs, (c)->s->n);                                           \
    } while (0)
#define INTS(c, expression)                                                                        \
    do {                                                                                           \
        for (size_t i_ = 0; i_ < (c)->s->n; i_++) {                                                \
            const struct msg *m = (c)->s->rows[i_];                                                \
            (c)->ints[i_] = (expression);                                                          \
        }                                                                                          \
        pg_add_i32_array((c)->p, (c)->ints, (c)->s->n);                                            \
    } while (0)

static void add_ids(struct columns *c)
{
    for (size_t i = 0; i < c->s->n; i++) {
        c->texts[i] = c->s->rows[i]->id;
        c->longs[i] = c->s->rows[i]->batch->token;
    }
    pg_add_uuid_array(c->p, c->texts, c->s->n);
    pg_add_i64_array(c->p, c->longs, c->s->n);
}

static int64_t delay_of(const struct msg *m, int64_t now)
{
    return m->decision.state == MSG_PENDING && m->decision.due_ms > now ? m->decision.due_ms - now
                                                                        : 0;
}

static void add_full(struct columns *c, int64_t now)
{
    add_ids(c);
    TEXTS(c, msg_state_name(m->decision.state));
    LONGS(c, delay_of(m, now));
    TEXTS(c, m->has_outcome ? NULL : m->due);
    INTS(c, m->decision.attempts);
    INTS(c, m->called);
    INTS(c, m->decision.doubts);
    TEXTS(c, m->vendor_id);
    TEXTS(c, m->decision.reason);
    TEXTS(c, m->has_outcome ? outcome_name(m->outcome) : NULL);
    TEXTS(c, m->phase);
    TEXTS(c, m->code);
    TEXTS(c, m->detail);
    LONGS(c, now - m->batch->t0);
}

static struct pg_params *params_of(const struct storing *s)
{
    struct columns c = {.s = s, .p = pg_params_new()};
    size_t n = s->n > 0 ? s->n : 1;

    c.texts = calloc(n, sizeof(*c.texts));
    c.longs = calloc(n, sizeof(*c.longs));
    c.ints = calloc(n, sizeof(*c.ints));
    if (!c.p || !c.texts || !c.longs || !c.ints) {
        pg_params_free(c.p);
        c.p = NULL;
    } else if (s->common) {
        add_ids(&c);
        TEXTS(&c, m->vendor_id);
        pg_add_i64_array(c.p, s->done, s->done_n);
    } else {
        add_full(&c, clock_boot_ms());
        pg_add_i64_array(c.p, s->done, s->done_n);
        LONGS(&c, m->decision.ask ? m->decision.ask_ms : -1);
        TEXTS(&c, m->parts);
    }
    free(c.texts);
    free(c.longs);
    free(c.ints);
    return c.p;
}

/* ---- flushing ---- */

/* A claim all of whose rows are stored or in this very settle is over: its lease row goes in the
 * same commit. Otherwise it goes with a later one (batch_settled). */
static int collect_done(struct storing *s)
{
    struct engine *e = s->e;

    s->done = calloc(s->n + e->done_n + 1, sizeof(*s->done));
    if (!s->done)
        return -1;
    for (size_t i = 0; i < s->n; i++)
        s->rows[i]->batch->here++;
    for (size_t i = 0; i < s->n; i++) {
        struct batch *b = s->rows[i]->batch;

        if (b->here > 0 && b->settled + b->here == b->total) {
            s->done[s->done_n++] = b->token;
            b->done_sent = true;
        }
        b->here = 0;
    }
    for (size_t i = 0; i < e->done_n; i++)
        s->done[s->done_n++] = e->done[i];
    e->done_n = 0;
    return 0;
}

static struct storing *storing_new(struct engine *e, struct queue *from, bool common)
{
    size_t n = from->n < BATCH_MAX ? from->n : BATCH_MAX;
    struct storing *s;

    if (n > 0 && from->head->tries > 0)
        n = 1; /* refused in company: one at a time, to find the one */
    s = calloc(1, sizeof(*s) + n * sizeof(s->rows[0]));
    if (!s)
        return NULL;
    s->e = e;
    s->common = common;
    for (; s->n < n; s->n++)
        s->rows[s->n] = queue_pop(from);
    qsort(s->rows, s->n, sizeof(s->rows[0]), by_id);
    return s;
}

static bool flush_one(struct engine *e, struct queue *from, bool common)
{
    struct storing *s = storing_new(e, from, common);
    struct pg_params *p;

    if (!s)
        return false;
    p = collect_done(s) == 0 ? params_of(s) : NULL;
    if (s->n > 0)
        failpoint("settle_unsent");
    if (!p || pg_exec(e->doors[DOOR_SETTLE].pg, common ? QUERY_SETTLE_SENT : QUERY_SETTLE, p,
                      on_stored, s) < 0) {
        keep(s, true);
        storing_free(s);
        return false;
    }
    if (s->n > 0)
        failpoint("settle_sent");
    s->next = e->settling;
    if (s->next)
        s->next->prev = s;
    e->settling = s;
    e->storing += s->n;
    e->settles_open++;
    return true;
}

void settle_flush(struct engine *e)
{
    int64_t now = clock_boot_ms();

    e->settle_urgent = false;
    if (!e->doors[DOOR_SETTLE].checked || now < e->settle_pause_until)
        return;
    while (e->sent.n > 0 && e->settles_open < STORING_MAX) {
        if (!flush_one(e, &e->sent, true))
            return;
    }
    while (e->ended.n > 0 && e->settles_open < STORING_MAX) {
        if (!flush_one(e, &e->ended, false))
            return;
    }
    if (e->done_n > 0 && e->settles_open == 0)
        flush_one(e, &e->sent, true); /* no rows: only leases that are over */
}

/* At the end of a drain that could not store everything: one line an answer, to be replayed. */
void settle_log_unstored(struct engine *e)
{
    struct queue *queues[] = {&e->sent, &e->ended};
    struct storing *s;
    struct msg *m;

    while ((s = e->settling)) { /* sent to a database that did not answer */
        e->settling = s->next;
        for (size_t i = 0; i < s->n; i++)
            queue_push(&e->ended, s->rows[i]);
        storing_free(s);
    }
    for (size_t i = 0; i < 2; i++) {
        while ((m = queue_pop(queues[i]))) {
            e->cut_off++;
            log_event(LOG_LEVEL_ERROR, "unstored", "id=%s token=%lld outcome=%s vendor_id=%s",
                      m->id, (long long)m->batch->token,
                      m->has_outcome ? outcome_name(m->outcome) : "none", m->vendor_id);
            msg_free(m);
        }
    }
}
