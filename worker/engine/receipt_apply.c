/* receipt_apply.c - what stored receipts mean for messages. One statement looks at a batch: it
 * applies what it can and names what has to go another way. */
#include <string.h>

#include "worker/engine/queries.h"
#include "worker/engine/receive.h"
#include "worker/io/failpoint.h"
#include "worker/io/log.h"

enum { APPLY_AT_ONCE = 500 };
#define APPLY_SOON_S 0.025

enum apply_col { /* of receipts_apply */
                 APPLY_WHAT,
                 APPLY_MESSAGE,
                 APPLY_TOKEN,
                 APPLY_PROVIDER,
                 APPLY_STATUS,
                 APPLY_VENDOR_ID,
                 APPLY_CODE,
                 APPLY_DETAIL,
                 APPLY_N
};

static const char *text_or_null(const struct pg_result *r, size_t row, int col)
{
    return pg_is_null(r, row, col) ? NULL : pg_text(r, row, col);
}

static void count(struct engine *e, const char *what, const char *provider, const char *status,
                  uint64_t n)
{
    struct report_receipts *c = receipts_count(e, provider);
    uint64_t *field = NULL;

    if (!c)
        return;
    if (strcmp(what, "parked") == 0)
        field = &c->parked;
    else if (strcmp(what, "unmatched") == 0)
        field = &c->unmatched;
    else if (strcmp(what, "given up") == 0)
        field = &c->given_up;
    else if (strcmp(status, "in_transit") == 0)
        field = &c->in_transit;
    else if (strcmp(status, "delivered") == 0)
        field = &c->delivered;
    else if (strcmp(status, "undelivered") == 0)
        field = &c->undelivered;
    else if (strcmp(status, "expired") == 0)
        field = &c->expired;
    if (field)
        *field += n;
}

/* The vendor has what we do not know to be sent. */
static void news(struct engine *e, const struct pg_result *r, size_t row)
{
    log_event(LOG_LEVEL_INFO, "receipt_news", "id=%s provider=%s status=%s",
              pg_text(r, row, APPLY_MESSAGE), pg_text(r, row, APPLY_PROVIDER),
              pg_text(r, row, APPLY_STATUS));
    late_news(e, pg_text(r, row, APPLY_MESSAGE), pg_i64(r, row, APPLY_TOKEN), OUTCOME_ACCEPTED,
              text_or_null(r, row, APPLY_VENDOR_ID), text_or_null(r, row, APPLY_CODE),
              text_or_null(r, row, APPLY_DETAIL), "receipt");
}

static void on_applied(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct receipts *rs = arg;
    struct engine *e = rs->engine;
    int64_t picked = 0;
    bool any_news = false;

    if (end == PG_COMMITTED && pg_rows(r) > 0)
        failpoint("receipts_applied");
    rs->applying = false;
    if (end == PG_FAILED)
        log_event(LOG_LEVEL_ERROR, "receipts_not_applied", "sqlstate=%s error=%s", pg_sqlstate(r),
                  pg_error(r));
    for (size_t i = 0; end == PG_COMMITTED && i < pg_rows(r); i++) {
        const char *what = pg_text(r, i, APPLY_WHAT);

        if (strcmp(what, "picked") == 0) {
            picked = pg_i64(r, i, APPLY_N);
        } else if (strcmp(what, "news") == 0) {
            news(e, r, i);
            any_news = true;
        } else {
            count(e, what, pg_text(r, i, APPLY_PROVIDER), pg_text(r, i, APPLY_STATUS),
                  (uint64_t)pg_i64(r, i, APPLY_N));
        }
    }
    if (any_news)
        late_turn(e); /* it may stop a resend that is about to leave */
    if (picked >= APPLY_AT_ONCE)
        receipts_apply(e);
    else if (rs->again)
        receipts_apply_soon(rs);
}

void receipts_apply_soon(struct receipts *rs)
{
    if (ev_is_active(&rs->soon))
        return;
    ev_timer_set(&rs->soon, APPLY_SOON_S, 0.);
    ev_timer_start(rs->engine->loop, &rs->soon);
}

void receipts_apply(struct engine *e)
{
    struct receipts *rs = e->receipts;
    struct door *door = &e->doors[DOOR_HOUSE];
    struct pg_params *p;

    if (rs->applying) {
        rs->again = true; /* what was stored meanwhile */
        return;
    }
    rs->again = false;
    if (!door->checked)
        return;
    p = pg_params_new();
    pg_add_i64(p, APPLY_AT_ONCE);
    rs->applying = pg_exec(door->pg, QUERY_RECEIPTS_APPLY, p, on_applied, rs) == 0;
}
