/* ask.c - asks vendors what became of messages whose answer was lost.
 *
 * Doubts come from live calls and from the sweeper alike: both were settled with a row in the table
 * `ask`. A look-up changes nothing at the vendor, so it needs no lease: two workers may ask the
 * same. What follows is fenced: good or bad news goes the way of late news (late.c, R7), all else
 * through ask_store, which names the message as it was read (R3). */
#include <stdlib.h>

#include "worker/engine/inquiry.h"
#include "worker/engine/queries.h"
#include "worker/io/clock.h"
#include "worker/io/failpoint.h"
#include "worker/io/log.h"

enum { ASKS_MAX = 64 /* at one vendor, and stored together */, PROVIDERS_MAX = 64 };

struct storing_asks { /* an ask_store under way */
    struct engine *e;
    size_t n;
    struct inquiry *items[];
};

/* With the last answer of a round its results are stored and the next round begins; else the
 * second does it. */
void ask_go_on(struct engine *e)
{
    for (const struct inquiry *q = e->inquiries; q; q = q->next) {
        if (!q->decided)
            return;
    }
    ask_turn(e);
}

/* ---- storing ---- */

static void on_asks_stored(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct storing_asks *s = arg;

    (void)r;
    if (end == PG_FAILED)
        log_event(LOG_LEVEL_ERROR, "ask_store_failed", "n=%zu sqlstate=%s error=%s", s->n,
                  pg_sqlstate(r), pg_error(r));
    for (size_t i = 0; i < s->n; i++)
        inquiry_forget(s->items[i]); /* not stored: its row comes up again, and is asked again */
    ask_go_on(s->e);
    free(s);
}

static const char *next_name(enum ask_next next)
{
    return next == ASK_RESEND ? "resend" : next == ASK_STOP ? "stop" : "again";
}

static int send_asks(struct storing_asks *s)
{
    const char *texts[ASKS_MAX];
    int64_t longs[ASKS_MAX];
    int32_t ints[ASKS_MAX];
    struct pg_params *p = pg_params_new();

#define ASK_EACH(array, expression)                                                                \
    for (size_t i = 0; i < s->n; i++) {                                                            \
        const struct inquiry *q = s->items[i];                                                     \
        (array)[i] = (expression);                                                                 \
    }
    ASK_EACH(texts, q->id)
    pg_add_uuid_array(p, texts, s->n);
    ASK_EACH(longs, q->token)
    pg_add_i64_array(p, longs, s->n);
    ASK_EACH(ints, q->doubts)
    pg_add_i32_array(p, ints, s->n);
    ASK_EACH(texts, next_name(q->decision.next))
    pg_add_text_array(p, texts, s->n);
    ASK_EACH(longs, q->decision.again_ms)
    pg_add_i64_array(p, longs, s->n);
    ASK_EACH(ints, q->decision.misses)
    pg_add_i32_array(p, ints, s->n);
    ASK_EACH(texts, q->decision.reason)
    pg_add_text_array(p, texts, s->n);
    ASK_EACH(ints, q->view.tries)
    pg_add_i32_array(p, ints, s->n);
#undef ASK_EACH
    failpoint("ask_unstored");
    return pg_exec(s->e->doors[DOOR_HOUSE].pg, QUERY_ASK_STORE, p, on_asks_stored, s);
}

static void store(struct engine *e)
{
    struct storing_asks *s = calloc(1, sizeof(*s) + ASKS_MAX * sizeof(s->items[0]));

    if (!s)
        return;
    s->e = e;
    for (struct inquiry *q = e->inquiries; q && s->n < ASKS_MAX; q = q->next) {
        if (q->decided && q->step != INQUIRY_STORING)
            s->items[s->n++] = q;
    }
    if (s->n == 0) {
        free(s);
        return;
    }
    for (size_t i = 0; i < s->n; i++)
        s->items[i]->step = INQUIRY_STORING;
    if (send_asks(s) < 0) {
        for (size_t i = 0; i < s->n; i++)
            s->items[i]->step = INQUIRY_CALLING;
        free(s);
    }
}

/* ---- taking ---- */

static void on_taken(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct engine *e = arg;

    e->asks_busy = false;
    if (end == PG_FAILED)
        log_event(LOG_LEVEL_ERROR, "ask_take_failed", "sqlstate=%s error=%s", pg_sqlstate(r),
                  pg_error(r));
    for (size_t i = 0; end == PG_COMMITTED && i < pg_rows(r); i++) {
        struct inquiry *q = inquiry_new(e, r, i);

        if (q)
            inquiry_begin(q);
    }
}

static int64_t hidden_ms(const struct engine *e)
{
    int64_t longest = 0;

    for (size_t i = 0; i < e->setup.n; i++) {
        if (e->setup.vendors[i]->conf->timeout_ms > longest)
            longest = e->setup.vendors[i]->conf->timeout_ms;
    }
    return 2 * longest + 10000; /* a few pages; were it more, another would ask the same */
}

static size_t open_providers(const struct engine *e, const char **names, int32_t *limits,
                             int32_t *rooms)
{
    int64_t now = clock_boot_ms();
    size_t n = 0;

    for (size_t i = 0; i < e->setup.n && n < PROVIDERS_MAX; i++) {
        const struct vendor *v = e->setup.vendors[i];
        uint32_t limit = plugin_caps(v->plugin)->asks_per_minute;

        int64_t slots = v->conf->in_flight - v->in_air - v->asking;
        int64_t most = ASKS_MAX - (int64_t)v->asking;
        int64_t room = slots < most ? slots : most;

        if (!plugin_asks(v->plugin) || vendor_allowed(v, now) == 0 || room <= 0)
            continue;
        names[n] = v->conf->name;
        rooms[n] = (int32_t)room;
        limits[n++] = limit < INT32_MAX ? (int32_t)limit : INT32_MAX;
    }
    return n;
}

void ask_turn(struct engine *e)
{
    const char *names[PROVIDERS_MAX];
    int32_t limits[PROVIDERS_MAX], rooms[PROVIDERS_MAX];
    struct pg_params *p;
    size_t n;

    if (!e->doors[DOOR_HOUSE].checked)
        return;
    store(e);
    if (e->asks_busy || e->draining || !e->kinds_ok || !e->adopted)
        return;
    n = open_providers(e, names, limits, rooms);
    if (n == 0)
        return;
    p = pg_params_new();
    pg_add_text_array(p, names, n);
    pg_add_i32_array(p, limits, n);
    pg_add_i32_array(p, rooms, n);
    pg_add_i64(p, hidden_ms(e));
    e->asks_busy = pg_exec(e->doors[DOOR_HOUSE].pg, QUERY_ASK_TAKE, p, on_taken, e) == 0;
}

/* The pools are closed after this without a word to on_answer; unsettled doubts keep their rows. */
void ask_close(struct engine *e)
{
    while (e->inquiries)
        inquiry_forget(e->inquiries);
}
