/* claim.c - takes due messages, in committed batches, only as many as can start at once. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/internal.h"
#include "worker/engine/queries.h"
#include "worker/io/clock.h"
#include "worker/io/failpoint.h"
#include "worker/io/log.h"

enum { URGENT_MAX = 64 };
#define FULL_RANGE_EVERY_MS 1000 /* how long a bound may hide rows that committed late */
#define BULK_WAIT_MS        50   /* a bulk lane with work waits no longer for a larger batch */

enum claim_col {
    COL_ID,
    COL_KIND,
    COL_RECIPIENT,
    COL_BODY,
    COL_SENDER,
    COL_KEY,
    COL_META,
    COL_PROVIDER,
    COL_ATTEMPTS,
    COL_CALLS,
    COL_DOUBTS,
    COL_LIFE_MS,
    COL_DOUBT_AGE_MS,
    COL_EXPIRES_MS,
    COL_DUE,
    COL_ASKED,
    COL_VALIDITY_MS
};

struct claiming { /* a claim under way */
    struct engine *e;
    struct lane *lane;
    struct vendor *vendor;
    int64_t token, t0;
    unsigned limit;
};

/* ---- rows ---- */

/* R9: the database tells durations; they become moments of our own steady clock. */
static int64_t boot_of(const struct pg_result *r, size_t row, int col, int64_t t0, int sign)
{
    int64_t ms = pg_i64(r, row, col);

    if (ms > INT64_MAX / 4)
        ms = INT64_MAX / 4;
    return t0 + sign * ms;
}

/* Copies the row's texts into one allocation. Column order as in `cols`; NULL stays NULL. */
static int copy_texts(struct msg *m, const struct pg_result *r, size_t row)
{
    static const int cols[] = {COL_RECIPIENT, COL_BODY, COL_SENDER, COL_META, COL_KIND, COL_DUE};
    const char **out[] = {&m->recipient, &m->body, &m->sender, &m->meta, &m->kind_name, &m->due};
    size_t size = 0;
    char *at;

    for (size_t i = 0; i < sizeof(cols) / sizeof(*cols); i++)
        size += pg_text_len(r, row, cols[i]) + 1;
    m->texts = at = malloc(size);
    if (!at)
        return -ENOMEM;
    for (size_t i = 0; i < sizeof(cols) / sizeof(*cols); i++) {
        size_t len = pg_text_len(r, row, cols[i]);

        if (pg_is_null(r, row, cols[i]))
            continue;
        memcpy(at, pg_text(r, row, cols[i]), len);
        at[len] = '\0';
        *out[i] = at;
        at += len + 1;
    }
    m->body_len = pg_text_len(r, row, COL_BODY);
    return 0;
}

static void copy_uuid(char out[UUID_LEN + 1], const char *text)
{
    size_t len = strnlen(text, UUID_LEN);

    memcpy(out, text, len);
    out[len] = '\0';
}

/* A version 7 UUID begins with its milliseconds: twelve hex digits and a dash among them. */
int64_t uuid_created_ms(const char *id)
{
    int64_t ms = 0;

    for (int i = 0; i < 13; i++) {
        int c = (unsigned char)id[i];

        if (c >= '0' && c <= '9')
            ms = ms * 16 + (c - '0');
        else if (c >= 'a' && c <= 'f')
            ms = ms * 16 + (c - 'a' + 10);
    }
    return ms;
}

static struct msg *msg_from_row(const struct claiming *ask, const struct pg_result *r, size_t row)
{
    struct engine *e = ask->e;
    struct msg *m = calloc(1, sizeof(*m));
    struct kind *k;

    if (!m || copy_texts(m, r, row) < 0) {
        msg_free(m);
        return NULL;
    }
    m->engine = e;
    copy_uuid(m->id, pg_text(r, row, COL_ID));
    copy_uuid(m->key, pg_text(r, row, pg_is_null(r, row, COL_KEY) ? COL_ID : COL_KEY));
    m->vendor = setup_find(e, pg_text(r, row, COL_PROVIDER));
    k = engine_kind(e, m->kind_name);
    if (k)
        m->policy = k->policy;
    m->lane = ask->lane->no;
    m->attempts = (int)pg_i64(r, row, COL_ATTEMPTS);
    m->calls = (int)pg_i64(r, row, COL_CALLS);
    m->doubts = (int)pg_i64(r, row, COL_DOUBTS);
    m->expires = boot_of(r, row, COL_LIFE_MS, ask->t0, 1);
    m->doubt_since = boot_of(r, row, COL_DOUBT_AGE_MS, ask->t0, -1);
    m->created_ms = uuid_created_ms(m->id);
    m->expires_ms = pg_i64(r, row, COL_EXPIRES_MS);
    m->asked = pg_bool(r, row, COL_ASKED);
    m->validity_ms = pg_i64(r, row, COL_VALIDITY_MS);
    return m;
}

static void batch_add(struct engine *e, struct batch *b)
{
    b->next = e->batches;
    if (b->next)
        b->next->prev = b;
    e->batches = b;
}

void batch_settled(struct engine *e, struct batch *b, unsigned n)
{
    b->settled += n;
    if (b->settled < b->total)
        return;
    if (!b->done_sent)
        settle_done(e, b->token);
    if (b->prev)
        b->prev->next = b->next;
    else
        e->batches = b->next;
    if (b->next)
        b->next->prev = b->prev;
    free(b);
}

static void hand_over(struct engine *e, struct lane *lane, struct batch *b, struct queue *rows)
{
    struct msg *m;

    while ((m = queue_pop(rows))) {
        m->batch = b;
        b->total++;
        m->vendor->claimed++;
        e->in_hand++;
        queue_push(&lane->ready, m);
    }
    e->report.claims++;
    e->report.claimed += b->total;
    batch_add(e, b);
}

/* All rows of a claim, or none of them: then the claim is given back whole. */
static int take_rows(struct claiming *ask, const struct pg_result *r, size_t rows)
{
    struct engine *e = ask->e;
    struct batch *b = calloc(1, sizeof(*b));
    struct queue taken;
    struct msg *m;

    queue_init(&taken);
    for (size_t i = 0; b && i < rows; i++) {
        m = msg_from_row(ask, r, i);
        if (!m || !m->vendor) { /* out of memory, or a reload took the vendor away meanwhile */
            msg_free(m);
            free(b);
            b = NULL;
            break;
        }
        queue_push(&taken, m);
    }
    if (!b) {
        while ((m = queue_pop(&taken)))
            msg_free(m);
        return -ENOMEM;
    }
    b->token = ask->token;
    b->t0 = ask->t0;
    b->end = lease_end(ask->t0, engine_lease_ms(e));
    hand_over(e, ask->lane, b, &taken);
    return 0;
}

static void move_bound(struct lane *lane, const struct pg_result *r, size_t trailer)
{
    free(lane->after_due);
    free(lane->after_id);
    lane->after_due = lane->after_id = NULL;
    if (!lane->more)
        return; /* the lane was read to its end: next time from its head */
    lane->after_due = strdup(pg_text(r, trailer, COL_DUE));
    lane->after_id = strdup(pg_text(r, trailer, COL_ID));
}

static void on_claimed_rows(struct claiming *ask, const struct pg_result *r)
{
    struct engine *e = ask->e;
    struct lane *lane = ask->lane;
    size_t rows = pg_rows(r);
    int64_t picked;

    if (rows == 0 || pg_cols(r) <= COL_VALIDITY_MS) {
        claim_lost(e, ask->token);
        return;
    }
    picked = pg_i64(r, rows - 1, COL_ATTEMPTS);
    lane->more = picked >= (int64_t)ask->limit;
    move_bound(lane, r, rows - 1);
    e->report.last_claim_ago_ms = clock_boot_ms(); /* an absolute time; aged when reported */
    if (picked == 0) {
        token_back(e, ask->token);
    } else if (pg_warned(r)) {
        log_event(LOG_LEVEL_ERROR, "claim_not_trusted", "token=%lld why=%s", (long long)ask->token,
                  "COMMIT came with a warning"); /* R12: it may not last */
        claim_lost(e, ask->token);
        e->claim_pause_until = clock_boot_ms() + 1000;
    } else if (rows > 1 && take_rows(ask, r, rows - 1) < 0) {
        claim_lost(e, ask->token);
    }
}

static void on_claimed(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct claiming *ask = arg;
    struct engine *e = ask->e;

    if (end == PG_COMMITTED && pg_rows(r) > 1)
        failpoint("claim_committed");
    ask->lane->asking = false;
    ask->lane->asked = 0;
    ask->vendor->claimed -= ask->limit;
    if (end == PG_COMMITTED) {
        on_claimed_rows(ask, r);
    } else if (end == PG_LOST) {
        claim_lost(e, ask->token); /* it may have committed: not ours, whatever it was */
    } else {
        log_event(LOG_LEVEL_ERROR, "claim_failed", "lane=%d sqlstate=%s error=%s", ask->lane->no,
                  pg_sqlstate(r), pg_error(r));
        e->claim_pause_until = clock_boot_ms() + 500 + (int64_t)(engine_jitter() * 1000);
    }
    if (ask->lane->wake)
        dispatch_urgent(e, ask->lane);
    free(ask);
    engine_wake(e);
}

/* ---- when, and how many ---- */

static double reserved_above(const struct engine *e, int lane)
{
    double share = 0;

    for (int i = 0; i < lane; i++)
        share += e->lanes[i].reserved;
    return share < 0.9 ? share : 0.9;
}

static unsigned asked_in_all(const struct engine *e)
{
    unsigned n = 0;

    for (int i = 0; i < LANES_MAX; i++)
        n += e->lanes[i].asked;
    return n;
}

static unsigned less_reserve(unsigned slots, double share)
{
    return slots - (unsigned)(slots * share);
}

static unsigned room_for(const struct engine *e, const struct lane *lane, const struct vendor *v,
                         int64_t now)
{
    double share = reserved_above(e, lane->no);
    unsigned all = less_reserve((unsigned)e->setup.config->in_flight, share);
    unsigned used = e->in_hand + asked_in_all(e);
    unsigned allowed = vendor_allowed(v, now);
    unsigned theirs = vendor_slots(v);
    unsigned room;

    theirs = less_reserve(allowed < theirs ? allowed : theirs, share);
    if (used >= all || v->claimed >= theirs)
        return 0;
    room = all - used < theirs - v->claimed ? all - used : theirs - v->claimed;
    /* What is asked for counts as used until the answer comes: an urgent lane, which seldom has
     * many, must not keep the others waiting for it. */
    if (lane->wake && room > URGENT_MAX)
        return URGENT_MAX;
    return room < BATCH_MAX ? room : BATCH_MAX;
}

/* A bulk lane takes fewer, larger batches: each claim is a commit. */
static bool worth_it(const struct lane *lane, const struct vendor *v, unsigned room, int64_t now)
{
    unsigned good = (unsigned)v->conf->in_flight / 12;

    if (lane->wake || v->in_air == 0 || now >= lane->poll_at + BULK_WAIT_MS)
        return true;
    return room >= (good < BATCH_MAX ? good : BATCH_MAX);
}

static bool kind_blocked(const struct engine *e, const struct kind *k)
{
    /* At most once rests on durable commits (R12): without them such kinds wait. */
    return !e->durable && k->policy.on_unknown != ON_UNKNOWN_RESEND;
}

struct pick { /* kinds of one lane that go to one vendor now */
    const char *kinds[64], *providers[64];
    size_t n;
    struct vendor *vendor;
};

static void pick_kinds(struct engine *e, struct lane *lane, int64_t now, struct pick *p)
{
    size_t first = lane->turn++ % e->kinds_n;

    *p = (struct pick){.n = 0};
    for (size_t i = 0; i < e->kinds_n && p->n < 64; i++) {
        const struct kind *k = &e->kinds[(first + i) % e->kinds_n];
        struct vendor *v;

        if (k->lane != lane->no || kind_blocked(e, k))
            continue;
        v = setup_route(e, k, now);
        if (!v || (p->vendor && v != p->vendor))
            continue;
        p->vendor = v;
        p->kinds[p->n] = k->name;
        p->providers[p->n++] = v->conf->name;
    }
}

static size_t open_vendors(const struct engine *e, int64_t now, const char **ret, size_t max)
{
    size_t n = 0;

    for (size_t i = 0; i < e->setup.n && n < max; i++) {
        if (vendor_allowed(e->setup.vendors[i], now) > 0)
            ret[n++] = e->setup.vendors[i]->conf->name;
    }
    return n;
}

static int ask(struct engine *e, struct lane *lane, const struct pick *pick, unsigned limit,
               int64_t now)
{
    struct pg *pg = e->doors[lane->wake ? DOOR_URGENT : DOOR_BULK].pg;
    struct pg_params *p;
    struct claiming *a;
    const char *open[64];
    size_t n = open_vendors(e, now, open, 64);
    bool full = now - lane->full_at >= FULL_RANGE_EVERY_MS || !lane->after_due || !lane->after_id;

    a = calloc(1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    *a = (struct claiming){e, lane, pick->vendor, e->tokens[0], now, limit};
    p = pg_params_new();
    pg_add_i64(p, a->token);
    pg_add_i64(p, e->worker_id);
    pg_add_i64(p, lane->no);
    pg_add_text_array(p, pick->kinds, pick->n);
    pg_add_text_array(p, pick->providers, pick->n);
    pg_add_text_array(p, open, n);
    pg_add_i64(p, limit);
    pg_add_i64(p, engine_lease_ms(e));
    pg_add_text(p, full ? NULL : lane->after_due);
    pg_add_text(p, full ? NULL : lane->after_id);
    failpoint("claim_unsent");
    if (pg_exec(pg, QUERY_CLAIM, p, on_claimed, a) < 0) {
        free(a);
        return -ENOTCONN;
    }
    failpoint("claim_sent");
    token_used(e);
    lane->full_at = full ? now : lane->full_at;
    lane->asking = true;
    lane->asked = limit;
    pick->vendor->claimed += limit;
    return 0;
}

static bool lane_wants(const struct engine *e, const struct lane *lane, int64_t now)
{
    if (!lane->used || lane->asking || e->tokens_n == 0)
        return false;
    if (!e->doors[lane->wake ? DOOR_URGENT : DOOR_BULK].checked)
        return false;
    return lane->hint || lane->more || now >= lane->poll_at;
}

/* Whether a worker in health would claim now: for those who watch it, so neither a database that is
 * away nor a claim that fails is an excuse. */
bool claim_wanted(struct engine *e)
{
    int64_t now = clock_boot_ms();

    for (int i = 0; i < LANES_MAX && e->kinds_n > 0; i++) {
        const struct lane *lane = &e->lanes[i];
        struct pick pick;

        if (!lane->used)
            continue;
        pick_kinds(e, &e->lanes[i], now, &pick);
        if (lane->asking || (pick.vendor && room_for(e, lane, pick.vendor, now) > 0))
            return true;
    }
    return e->kinds_n == 0; /* it did not come so far as to know its lanes */
}

void claim_turn(struct engine *e)
{
    int64_t now = clock_boot_ms();

    if (!engine_may_claim(e))
        return;
    for (int i = 0; i < LANES_MAX; i++) {
        struct lane *lane = &e->lanes[i];
        struct pick pick;
        unsigned room;

        if (!lane_wants(e, lane, now))
            continue;
        pick_kinds(e, lane, now, &pick);
        room = pick.vendor ? room_for(e, lane, pick.vendor, now) : 0;
        if (room == 0 || !worth_it(lane, pick.vendor, room, now))
            continue;
        if (ask(e, lane, &pick, room, now) < 0)
            return;
        lane->hint = false;
        lane->poll_at = now + e->setup.config->poll_ms +
                        (int64_t)(engine_jitter() * 0.1 * (double)e->setup.config->poll_ms);
    }
}
