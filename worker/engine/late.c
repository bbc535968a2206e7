/* late.c - news of attempts that are no longer ours (R7), and vendor ids given twice (R5). */
#include <stdlib.h>
#include <string.h>

#include "worker/core/receipt.h"
#include "worker/engine/internal.h"
#include "worker/engine/queries.h"
#include "worker/io/clock.h"
#include "worker/io/failpoint.h"
#include "worker/io/log.h"

enum { LATE_AT_ONCE = 100, LATE_TRIES = 20 };

enum late_col { /* of late_read */
                LATE_AT,
                LATE_STATE,
                LATE_TOKEN,
                LATE_KIND,
                LATE_PROVIDER,
                LATE_ATTEMPTS,
                LATE_CALLS,
                LATE_DOUBTS,
                LATE_VENDOR_ID,
                LATE_TAKEN,
                LATE_LIFE_MS,
                LATE_DOUBT_AGE_MS,
                LATE_RECORDED,
                LATE_OTHER_ID,
                LATE_REJECTED
};

struct reading { /* a late_read under way */
    struct engine *e;
    size_t n;
    struct late *items[LATE_AT_ONCE];
};

struct writing { /* a late_write under way */
    struct engine *e;
    struct late *item;
    struct late_decision decision;
};

struct late *late_free(struct late *l)
{
    if (l) {
        free(l->vendor_id);
        free(l->code);
        free(l->detail);
        free(l);
    }
    return NULL;
}

static void enqueue(struct engine *e, struct late *l)
{
    l->next = NULL;
    if (++l->tries > LATE_TRIES) {
        log_event(LOG_LEVEL_ERROR, "late_news_dropped", "id=%s token=%lld outcome=%s vendor_id=%s",
                  l->id, (long long)l->token, outcome_name(l->outcome), l->vendor_id);
        late_free(l);
        return;
    }
    *e->late_tail = l;
    e->late_tail = &l->next;
}

void late_news(struct engine *e, const char *id, int64_t token, enum outcome outcome,
               const char *vendor_id, const char *code, const char *detail, const char *phase)
{
    struct late *l = calloc(1, sizeof(*l));

    if (!l)
        return;
    memcpy(l->id, id, sizeof(l->id));
    l->token = token;
    l->outcome = outcome;
    l->vendor_id = vendor_id ? strdup(vendor_id) : NULL;
    l->code = code ? strdup(code) : NULL;
    l->detail = detail ? strdup(detail) : NULL;
    l->phase = phase;
    enqueue(e, l);
}

void late_push(struct engine *e, const struct msg *m)
{
    log_event(LOG_LEVEL_WARN, "late_news", "id=%s token=%lld outcome=%s", m->id,
              (long long)m->batch->token, outcome_name(m->outcome));
    late_news(e, m->id, m->batch->token, m->outcome, m->vendor_id, m->code, m->detail, m->phase);
}

/* ---- one vendor id on two messages ---- */

static uint64_t hash_of(const char *provider, const char *id)
{
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a, 64 bit */

    for (const char *s = provider; *s; s++)
        h = (h ^ (unsigned char)*s) * UINT64_C(1099511628211);
    h = (h ^ 0xffu) * UINT64_C(1099511628211);
    for (const char *s = id; *s; s++)
        h = (h ^ (unsigned char)*s) * UINT64_C(1099511628211);
    return h;
}

static bool doubt_in(struct engine *e, struct queue *q, const char *id)
{
    for (struct msg **at = &q->head; *at; at = &(*at)->next) {
        struct msg *m = *at;

        if (strcmp(m->id, id) != 0)
            continue;
        if (m->decision.state != MSG_SENT)
            return true; /* in doubt already */
        m->outcome = OUTCOME_UNKNOWN;
        free(m->code);
        m->code = strdup("vendor id given twice");
        m->decision.state = MSG_UNKNOWN;
        m->decision.doubts = m->doubts + 1;
        m->decision.reason = "vendor id given twice";
        /* The vendor may be asked whose it is; by id, too, as one is at hand. */
        m->decision.ask = m->vendor->cap.asking != ASKING_NONE;
        m->decision.ask_ms = m->vendor->cap.ask_delay_ms;
        *at = m->next;
        if (!m->next)
            q->tail = at;
        q->n--;
        queue_push(&e->ended, m);
        return true;
    }
    return false;
}

static bool doubt_unstored(struct engine *e, const char *id)
{
    return doubt_in(e, &e->sent, id) || doubt_in(e, &e->ended, id);
}

static void doubt_later(struct late *l)
{
    l->next = l->engine->doubted;
    l->engine->doubted = l;
}

static void on_withdrawn(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct late *l = arg;

    (void)r;
    l->engine->doubts_open--;
    /* A settle that was lost with it is back in its line by now. */
    if (end == PG_COMMITTED || doubt_unstored(l->engine, l->id))
        late_free(l);
    else
        doubt_later(l);
}

/* Its settle is stored, or went ahead on the same connection: this comes after it. */
static void withdraw(struct late *l)
{
    struct pg_params *p = pg_params_new();
    const char *ids[] = {l->id};

    pg_add_uuid_array(p, ids, 1);
    pg_add_text(p, "vendor id given twice");
    if (pg_exec(l->engine->doors[DOOR_SETTLE].pg, QUERY_WITHDRAW, p, on_withdrawn, l) < 0)
        doubt_later(l);
    else
        l->engine->doubts_open++;
}

static void withdraw_again(struct engine *e)
{
    struct late *list = e->doubted;

    if (!e->doors[DOOR_SETTLE].checked)
        return;
    e->doubted = NULL;
    while (list) {
        struct late *l = list;

        list = l->next;
        withdraw(l);
    }
}

static void doubt(struct engine *e, const char *id)
{
    struct late *l;

    if (doubt_unstored(e, id))
        return;
    l = calloc(1, sizeof(*l));
    if (!l) {
        log_event(LOG_LEVEL_ERROR, "doubt_not_stored", "id=%s why=\"vendor id given twice\"", id);
        return;
    }
    l->engine = e;
    memcpy(l->id, id, sizeof(l->id));
    withdraw(l);
}

/* Remembers the last accepted ids, one slot a hash: an answer that belongs to another message is
 * nearly always one given a moment ago on the same connection. Across workers and days the same
 * is found by a query over the table. */
bool seen_twice(struct engine *e, const struct msg *m)
{
    uint64_t hash = hash_of(m->vendor->conf->name, m->vendor_id);
    struct seen_id *slot = &e->seen[hash % SEEN_IDS];

    if (slot->hash == hash && strcmp(slot->id, m->id) != 0 && slot->id[0] != '\0') {
        e->report.duplicate_suspects++;
        log_event(LOG_LEVEL_ERROR, "vendor_id_twice", "provider=%s vendor_id=%s first=%s second=%s",
                  m->vendor->conf->name, m->vendor_id, slot->id, m->id);
        doubt(e, slot->id);
        return true;
    }
    slot->hash = hash;
    memcpy(slot->id, m->id, sizeof(slot->id));
    return false;
}

/* ---- write ---- */

static bool from_receipt(const struct late *l)
{
    return l->phase && strcmp(l->phase, "receipt") == 0;
}

static void on_written(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct writing *w = arg;
    struct engine *e = w->e;

    if (end == PG_COMMITTED && pg_bool(r, 0, 0)) {
        e->report.late_news++;
        e->report.duplicate_suspects += w->decision.duplicate;
        e->report.receipt_contradictions += w->decision.reason == receipt_contradicts;
        if (w->decision.duplicate)
            log_event(LOG_LEVEL_ERROR, "duplicate_suspected", "id=%s vendor_id=%s", w->item->id,
                      w->item->vendor_id);
        late_free(w->item);
    } else {
        enqueue(e, w->item); /* it moved meanwhile, or was not stored: read again */
    }
    free(w);
}

static void write_one(struct engine *e, struct late *l, const struct pg_result *r, size_t row,
                      const struct late_decision *d)
{
    struct writing *w = malloc(sizeof(*w));
    struct pg_params *p = pg_params_new();

    if (!w) {
        pg_params_free(p);
        enqueue(e, l);
        return;
    }
    *w = (struct writing){e, l, *d};
    pg_add_text(p, l->id);
    pg_add_i64(p, pg_i64(r, row, LATE_TOKEN));
    pg_add_text(p, pg_text(r, row, LATE_STATE));
    pg_add_i64(p, pg_i64(r, row, LATE_DOUBTS));
    pg_add_text(p, msg_state_name(d->state));
    pg_add_i64(p, 0);
    pg_add_i64(p, d->doubts);
    pg_add_bool(p, d->taken);
    pg_add_text(p, l->outcome == OUTCOME_ACCEPTED && !d->duplicate ? l->vendor_id : NULL);
    pg_add_text(p, d->reason);
    pg_add_i64(p, l->token);
    pg_add_text(p, outcome_name(l->outcome));
    pg_add_text(p, l->phase ? l->phase : "lost");
    pg_add_text(p, l->code);
    pg_add_text(p, l->detail);
    if (pg_exec(e->doors[DOOR_HOUSE].pg, QUERY_LATE_WRITE, p, on_written, w) < 0) {
        free(w);
        enqueue(e, l);
    }
}

/* ---- read and decide ---- */

static void decide_one(struct engine *e, struct late *l, const struct pg_result *r, size_t row)
{
    enum msg_state state = MSG_UNKNOWN;
    enum outcome recorded = OUTCOME_UNKNOWN;
    struct kind *k = engine_kind(e, pg_text(r, row, LATE_KIND));
    struct policy policy = k ? k->policy : (struct policy){.on_unknown = ON_UNKNOWN_HOLD};
    struct late_view view = {.recorded = !pg_is_null(r, row, LATE_RECORDED),
                             .attempts = (int)pg_i64(r, row, LATE_ATTEMPTS),
                             .doubts = (int)pg_i64(r, row, LATE_DOUBTS),
                             .taken = pg_bool(r, row, LATE_TAKEN),
                             .rejected = pg_bool(r, row, LATE_REJECTED),
                             .now_ms = 0,
                             .expires_ms = pg_i64(r, row, LATE_LIFE_MS)};
    struct late_decision d;

    if (!msg_state_parse(pg_text(r, row, LATE_STATE), &state) ||
        (view.recorded && !outcome_parse(pg_text(r, row, LATE_RECORDED), &recorded))) {
        late_free(l);
        return;
    }
    view.state = state;
    view.recorded_as = recorded;
    view.newer_attempt = state == MSG_SENDING && pg_i64(r, row, LATE_TOKEN) != l->token;
    view.same_vendor_id =
        l->vendor_id && strcmp(pg_text(r, row, LATE_VENDOR_ID), l->vendor_id) == 0;
    d = from_receipt(l) ? receipt_decide(&view) : decide_late(&policy, &view, l->outcome);
    if (d.change)
        failpoint("late_unwritten");
    if (d.change)
        write_one(e, l, r, row, &d);
    else
        late_free(l);
}

static void on_read(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct reading *rd = arg;
    struct engine *e = rd->e;

    e->late_reading = NULL;
    e->late_busy = false;
    for (size_t i = 0; end == PG_COMMITTED && i < pg_rows(r); i++) {
        int64_t at = pg_i64(r, i, 0);

        if (at < 0 || (size_t)at >= rd->n || !rd->items[at])
            continue;
        decide_one(e, rd->items[at], r, i);
        rd->items[at] = NULL;
    }
    for (size_t i = 0; i < rd->n; i++) {
        if (!rd->items[i])
            continue;
        if (end == PG_COMMITTED)
            late_free(rd->items[i]); /* the message is gone: retention */
        else
            enqueue(e, rd->items[i]);
    }
    free(rd);
    if (end == PG_COMMITTED)
        late_turn(e); /* many may have come together */
}

void late_turn(struct engine *e)
{
    struct reading *rd;
    struct pg_params *p;
    const char *ids[LATE_AT_ONCE];
    int64_t tokens[LATE_AT_ONCE];

    withdraw_again(e);
    if (!e->late_head || e->late_busy || !e->doors[DOOR_HOUSE].checked)
        return;
    rd = calloc(1, sizeof(*rd));
    if (!rd)
        return;
    rd->e = e;
    e->late_reading = rd;
    while (e->late_head && rd->n < LATE_AT_ONCE) {
        struct late *l = e->late_head;

        e->late_head = l->next;
        if (!e->late_head)
            e->late_tail = &e->late_head;
        ids[rd->n] = l->id;
        tokens[rd->n] = l->token;
        rd->items[rd->n++] = l;
    }
    p = pg_params_new();
    pg_add_uuid_array(p, ids, rd->n);
    pg_add_i64_array(p, tokens, rd->n);
    e->late_busy = true;
    if (pg_exec(e->doors[DOOR_HOUSE].pg, QUERY_LATE_READ, p, on_read, rd) < 0) {
        e->late_reading = NULL;
        e->late_busy = false;
        for (size_t i = 0; i < rd->n; i++)
            enqueue(e, rd->items[i]);
        free(rd);
    }
}

static void log_unstored(struct engine *e, struct late *l)
{
    e->cut_off++;
    log_event(LOG_LEVEL_ERROR, "unstored", "id=%s token=%lld outcome=%s vendor_id=%s late=1", l->id,
              (long long)l->token, outcome_name(l->outcome), l->vendor_id);
    late_free(l);
}

static void log_list(struct engine *e, struct late *head)
{
    for (struct late *l = head, *next; l; l = next) {
        next = l->next;
        log_unstored(e, l);
    }
}

/* The same for late news as settle_log_unstored for ends: one line each, to be replayed. */
void late_log_unstored(struct engine *e)
{
    struct reading *rd = e->late_reading;

    for (size_t i = 0; rd && i < rd->n; i++) {
        if (rd->items[i])
            log_unstored(e, rd->items[i]);
    }
    free(rd);
    log_list(e, e->late_head);
    log_list(e, e->doubted);
    e->late_reading = NULL;
    e->late_head = e->doubted = NULL;
}
