/* receive_store.c - callbacks are committed together, and only then is anybody answered. */
#include <stdlib.h>
#include <string.h>

#include "worker/engine/queries.h"
#include "worker/engine/receive.h"
#include "worker/io/failpoint.h"
#include "worker/io/log.h"

enum { EVENTS_AT_ONCE = 500, BODIES_AT_ONCE = 8 * 1024 * 1024 };

static const char *const status_names[PROVIDER_STATUS_MAX_] = {
    "in_transit", "delivered", "undelivered", "expired", "rejected"};

struct callback *callback_free(struct callback *cb)
{
    if (cb) {
        plugin_events_clear(&cb->events);
        free(cb->provider);
        free(cb);
    }
    return NULL;
}

void receive_push(struct receipts *rs, struct callback *cb)
{
    cb->next = NULL;
    *rs->tail = cb;
    rs->tail = &cb->next;
    rs->waiting++;
    if (!rs->storing && !ev_is_active(&rs->gather)) {
        ev_timer_set(&rs->gather, 0., 0.); /* what this turn still brings goes along */
        ev_timer_start(rs->engine->loop, &rs->gather);
    }
}

/* ---- answers ---- */

static void answer(struct receipts *rs, struct callback *cb, bool stored)
{
    struct report_receipts *n = receipts_count(rs->engine, cb->provider);
    struct serve_reply reply = {.status = 503};

    if (n) {
        n->stored += stored;
        n->unstored += !stored;
    }
    if (stored) {
        reply.status = (unsigned)cb->events.status;
        reply.content_type = cb->events.content_type;
        reply.body = cb->events.body;
        reply.body_len = cb->events.body_len;
        cb->events.body = NULL;
    } else {
        reply.headers[0].name = "Retry-After";
        reply.headers[0].value = "10";
    }
    if (cb->later)
        serve_answer(cb->later, &reply);
    else
        free(reply.body);
    callback_free(cb);
}

static void answer_all(struct receipts *rs, struct callback *list, bool stored)
{
    while (list) {
        struct callback *next = list->next;

        answer(rs, list, stored);
        list = next;
    }
}

/* The database refuses one of them: it must not take the others along. */
static void one_by_one(struct receipts *rs, struct callback *list)
{
    struct callback **end = &list;

    for (rs->alone = 0; *end; end = &(*end)->next)
        rs->alone++;
    *end = rs->head;
    if (!rs->head)
        rs->tail = end;
    rs->head = list;
    rs->waiting += rs->alone;
}

/* ---- the commit ---- */

static void on_stored(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct receipts *rs = arg;
    struct callback *list = rs->storing;
    bool stored = end == PG_COMMITTED && !pg_warned(r); /* R12: a warned commit proves nothing */

    if (stored)
        failpoint("receipts_stored");
    rs->storing = NULL;
    if (rs->alone > 0)
        rs->alone--;
    if (end == PG_FAILED)
        log_event(LOG_LEVEL_ERROR, "callbacks_not_stored", "sqlstate=%s error=%s", pg_sqlstate(r),
                  pg_error(r));
    /* Class 22 and 23: a value of one of them. Of anything else all vendors are told to repeat. */
    if (end == PG_FAILED && list->next &&
        (strncmp(pg_sqlstate(r), "22", 2) == 0 || strncmp(pg_sqlstate(r), "23", 2) == 0))
        one_by_one(rs, list);
    else
        answer_all(rs, list, stored);
    if (stored)
        receipts_apply_soon(rs);
    receive_flush(rs);
}

/* One batch, taken from the head of the line; *ret_receipts and *ret_inbounds count its events. */
static struct callback *take(struct receipts *rs, size_t *ret_n, size_t *ret_receipts,
                             size_t *ret_inbounds)
{
    struct callback *list = rs->head, **end = &list;
    size_t n = 0, receipts = 0, inbounds = 0, bytes = 0;

    do {
        receipts += (*end)->events.receipts_n;
        inbounds += (*end)->events.inbounds_n;
        bytes += (*end)->body_len;
        n++;
        end = &(*end)->next;
    } while (*end && rs->alone == 0 && n < EVENTS_AT_ONCE && bytes < BODIES_AT_ONCE &&
             receipts + inbounds + (*end)->events.receipts_n + (*end)->events.inbounds_n <=
                 EVENTS_AT_ONCE);
    rs->head = *end;
    if (!rs->head)
        rs->tail = &rs->head;
    *end = NULL;
    rs->waiting -= n;
    *ret_n = n;
    *ret_receipts = receipts;
    *ret_inbounds = inbounds;
    return list;
}

/* ---- parameters ---- */

/* Room for one column after another. */
struct columns {
    struct pg_params *p;
    const char **texts;
    const void **blobs;
    size_t *sizes;
    int32_t *ints;
    int64_t *longs;
};

static void add_calls(struct columns *c, const struct callback *list, size_t n)
{
    size_t i = 0;

    for (const struct callback *cb = list; cb; cb = cb->next)
        c->texts[i++] = cb->provider;
    pg_add_text_array(c->p, c->texts, n);
    i = 0;
    for (const struct callback *cb = list; cb; cb = cb->next)
        c->texts[i++] = cb->method;
    pg_add_text_array(c->p, c->texts, n);
    i = 0;
    for (const struct callback *cb = list; cb; cb = cb->next, i++) {
        c->texts[i] = cb->query;
        c->blobs[i] = cb->body;
        c->sizes[i] = cb->body_len;
    }
    pg_add_text_array(c->p, c->texts, n);
    pg_add_bytes_array(c->p, c->blobs, c->sizes, n);
}

/* A column of texts, `expression` of `event`, in the order of the calls. */
#define TEXT_COLUMN(c, list, type, field, expression)                                              \
    do {                                                                                           \
        size_t i_ = 0;                                                                             \
        for (const struct callback *cb_ = (list); cb_; cb_ = cb_->next) {                          \
            for (size_t j_ = 0; j_ < cb_->events.field##_n; j_++) {                                \
                const struct type *event = &cb_->events.field[j_];                                 \
                (c)->texts[i_++] = (expression);                                                   \
            }                                                                                      \
        }                                                                                          \
        pg_add_text_array((c)->p, (c)->texts, i_);                                                 \
    } while (0)

static void add_receipts(struct columns *c, const struct callback *list)
{
    size_t i = 0;
    int32_t no = 0;

    for (const struct callback *cb = list; cb; cb = cb->next) {
        no++;
        for (size_t j = 0; j < cb->events.receipts_n; j++, i++) {
            c->ints[i] = no;
            c->longs[i] = cb->events.receipts[j].at_ms;
        }
    }
    pg_add_i32_array(c->p, c->ints, i);
    TEXT_COLUMN(c, list, plugin_receipt, receipts, event->ref);
    TEXT_COLUMN(c, list, plugin_receipt, receipts, event->vendor_id);
    TEXT_COLUMN(c, list, plugin_receipt, receipts, status_names[event->status]);
    TEXT_COLUMN(c, list, plugin_receipt, receipts, event->code);
    TEXT_COLUMN(c, list, plugin_receipt, receipts, event->detail);
    pg_add_i64_array(c->p, c->longs, i);
}

static void add_inbounds(struct columns *c, const struct callback *list)
{
    size_t i = 0;
    int32_t no = 0;

    for (const struct callback *cb = list; cb; cb = cb->next) {
        no++;
        for (size_t j = 0; j < cb->events.inbounds_n; j++)
            c->ints[i++] = no;
    }
    pg_add_i32_array(c->p, c->ints, i);
    TEXT_COLUMN(c, list, plugin_inbound, inbounds, event->from);
    TEXT_COLUMN(c, list, plugin_inbound, inbounds, event->to);
    TEXT_COLUMN(c, list, plugin_inbound, inbounds, event->text);
    TEXT_COLUMN(c, list, plugin_inbound, inbounds, event->id);
}

static struct pg_params *params_of(const struct callback *list, size_t n, size_t receipts,
                                   size_t inbounds)
{
    size_t most = n > receipts ? n : receipts;
    struct columns c;

    if (inbounds > most)
        most = inbounds;
    c = (struct columns){.p = NULL,
                         .texts = calloc(most, sizeof(*c.texts)),
                         .blobs = calloc(most, sizeof(*c.blobs)),
                         .sizes = calloc(most, sizeof(*c.sizes)),
                         .ints = calloc(most, sizeof(*c.ints)),
                         .longs = calloc(most, sizeof(*c.longs))};
    if (c.texts && c.blobs && c.sizes && c.ints && c.longs) {
        c.p = pg_params_new();
        add_calls(&c, list, n);
        add_receipts(&c, list);
        add_inbounds(&c, list);
    }
    free(c.texts);
    free(c.blobs);
    free(c.sizes);
    free(c.ints);
    free(c.longs);
    return c.p;
}

/* A batch at a time: the busier the database, the larger the next one. */
void receive_flush(struct receipts *rs)
{
    struct door *door = &rs->engine->doors[DOOR_SETTLE];
    size_t n, receipts, inbounds;
    struct pg_params *p;

    if (rs->storing || !rs->head)
        return;
    rs->storing = take(rs, &n, &receipts, &inbounds);
    p = params_of(rs->storing, n, receipts, inbounds);
    if (!p || pg_exec(door->pg, QUERY_RECEIPTS_STORE, p, on_stored, rs) < 0) {
        struct callback *list = rs->storing;

        rs->storing = NULL;
        answer_all(rs, list, false);
        answer_all(rs, rs->head, false); /* the connection is down */
        rs->head = NULL;
        rs->tail = &rs->head;
        rs->waiting = 0;
        rs->alone = 0;
    }
}
