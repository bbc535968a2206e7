/* ask.c - asks vendors what became of messages whose answer was lost.
 *
 * Doubts come from live calls and from the sweeper alike: both were settled with a row in the table
 * `ask`. A look-up changes nothing at the vendor, so it needs no lease: two workers may ask the
 * same. What follows is fenced: good or bad news goes the way of late news (late.c, R7), all else
 * through ask_store, which names the message as it was read (R3). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/internal.h"
#include "worker/engine/queries.h"
#include "worker/io/clock.h"
#include "worker/io/failpoint.h"
#include "worker/io/log.h"

enum { ASKS_MAX = 64, PAGES_MAX = 20, PROVIDERS_MAX = 64 };

enum ask_col { /* of ask_take */
               ASK_ID,
               ASK_TOKEN,
               ASK_DOUBTS,
               ASK_KIND,
               ASK_RECIPIENT,
               ASK_BODY,
               ASK_SENDER,
               ASK_KEY,
               ASK_META,
               ASK_PROVIDER,
               ASK_ATTEMPTS,
               ASK_CALLS,
               ASK_VENDOR_ID,
               ASK_CANCELED,
               ASK_TRIED,
               ASK_MISSES,
               ASK_EXPIRES_MS,
               ASK_LIFE_MS,
               ASK_VALIDITY_MS,
               ASK_DOUBT_AGE_MS,
               ASK_NOW_MS,
               ASK_ATTEMPT
};

enum inquiry_step { INQUIRY_CALLING = 0, INQUIRY_MATCHING, INQUIRY_STORING };

struct inquiry { /* one message asked about */
    struct inquiry *next;
    struct engine *engine;
    struct vendor *vendor;
    enum inquiry_step step;
    char id[UUID_LEN + 1], key[UUID_LEN + 1];
    char *kind, *recipient, *body, *sender, *meta, *vendor_id, *cursor;
    int64_t token, attempt; /* of the row as read; of the attempt in doubt */
    int doubts;
    unsigned pages;
    uint64_t token_generation;
    struct provider_msg msg;
    struct provider_question question;
    struct policy policy;
    struct ask_view view;
    struct ask_decision decision;
    bool decided;
    struct plugin_answer answer;
};

struct storing_asks { /* an ask_store under way */
    struct engine *e;
    size_t n;
    struct inquiry *items[];
};

/* ---- one inquiry ---- */

static void forget(struct inquiry *q)
{
    struct inquiry **at = &q->engine->inquiries;

    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
    q->engine->asks_open--;
    q->vendor->asking--;
    free(q->kind);
    free(q->recipient);
    free(q->body);
    free(q->sender);
    free(q->meta);
    free(q->vendor_id);
    free(q->cursor);
    plugin_answer_clear(&q->answer);
    free(q);
}

static char *copy(const struct pg_result *r, size_t row, int col)
{
    return pg_is_null(r, row, col) ? NULL : strndup(pg_text(r, row, col), pg_text_len(r, row, col));
}

static void copy_uuid(char out[UUID_LEN + 1], const char *text)
{
    size_t len = strnlen(text, UUID_LEN);

    memcpy(out, text, len);
    out[len] = '\0';
}

static void read_question(struct inquiry *q, const struct pg_result *r, size_t row)
{
    int64_t now_ms = pg_i64(r, row, ASK_NOW_MS);

    q->msg = (struct provider_msg){.key = q->key,
                                   .recipient = q->recipient,
                                   .body = q->body,
                                   .body_len = pg_text_len(r, row, ASK_BODY),
                                   .sender = q->sender,
                                   .kind = q->kind,
                                   .meta_json = q->meta,
                                   .created_ms = uuid_created_ms(q->id),
                                   .expires_ms = pg_i64(r, row, ASK_EXPIRES_MS),
                                   .id = q->id,
                                   .validity_ms = pg_i64(r, row, ASK_VALIDITY_MS)};
    q->question = (struct provider_question){.msg = &q->msg,
                                             .vendor_id = q->vendor_id,
                                             .from_ms = now_ms - pg_i64(r, row, ASK_DOUBT_AGE_MS),
                                             .to_ms = now_ms};
}

static void read_view(struct inquiry *q, const struct pg_result *r, size_t row)
{
    int64_t now = clock_boot_ms();

    q->view = (struct ask_view){.tries = (int)pg_i64(r, row, ASK_TRIED),
                                .misses = (int)pg_i64(r, row, ASK_MISSES),
                                .attempts = (int)pg_i64(r, row, ASK_ATTEMPTS),
                                .calls = (int)pg_i64(r, row, ASK_CALLS),
                                .now_ms = now,
                                .expires_ms = now + pg_i64(r, row, ASK_LIFE_MS),
                                .doubt_since_ms = now - pg_i64(r, row, ASK_DOUBT_AGE_MS),
                                .canceled = pg_bool(r, row, ASK_CANCELED)};
}

/* NULL: the provider is gone, or out of memory; the row comes up again. */
static struct inquiry *inquiry_new(struct engine *e, const struct pg_result *r, size_t row)
{
    struct vendor *v = setup_find(e, pg_text(r, row, ASK_PROVIDER));
    struct kind *k = engine_kind(e, pg_text(r, row, ASK_KIND));
    struct inquiry *q = v ? calloc(1, sizeof(*q)) : NULL;

    if (!q)
        return NULL;
    q->engine = e;
    q->vendor = v;
    q->next = e->inquiries;
    e->inquiries = q;
    e->asks_open++;
    v->asking++;
    q->kind = copy(r, row, ASK_KIND);
    q->recipient = copy(r, row, ASK_RECIPIENT);
    q->body = copy(r, row, ASK_BODY);
    q->sender = copy(r, row, ASK_SENDER);
    q->meta = copy(r, row, ASK_META);
    q->vendor_id = copy(r, row, ASK_VENDOR_ID);
    if (!q->kind || !q->recipient || !q->body) {
        forget(q);
        return NULL;
    }
    copy_uuid(q->id, pg_text(r, row, ASK_ID));
    copy_uuid(q->key, pg_text(r, row, pg_is_null(r, row, ASK_KEY) ? ASK_ID : ASK_KEY));
    q->token = pg_i64(r, row, ASK_TOKEN);
    q->attempt = pg_i64(r, row, ASK_ATTEMPT);
    q->doubts = (int)pg_i64(r, row, ASK_DOUBTS);
    q->policy = k ? k->policy : (struct policy){.on_unknown = ON_UNKNOWN_HOLD};
    read_question(q, r, row);
    read_view(q, r, row);
    return q;
}

/* ---- what follows ---- */

static enum finding finding_of(enum provider_finding word)
{
    static const enum finding map[PROVIDER_FINDING_MAX_] = {
        [PROVIDER_CANNOT_SAY] = FINDING_CANNOT_SAY,
        [PROVIDER_HAS_IT] = FINDING_HAS_IT,
        [PROVIDER_REFUSED_IT] = FINDING_REFUSED_IT,
        [PROVIDER_NEVER_SEEN] = FINDING_NEVER_SEEN,
    };
    return (unsigned)word < PROVIDER_FINDING_MAX_ ? map[word] : FINDING_CANNOT_SAY;
}

static const char *finding_name(enum finding finding)
{
    static const char *const names[FINDING_MAX_] = {"cannot say", "has it", "refused it",
                                                    "never seen"};

    return (unsigned)finding < FINDING_MAX_ ? names[finding] : names[FINDING_CANNOT_SAY];
}

static void count_finding(struct report_findings *f, enum finding finding)
{
    switch (finding) {
    case FINDING_HAS_IT:
        f->has_it++;
        break;
    case FINDING_REFUSED_IT:
        f->refused_it++;
        break;
    case FINDING_NEVER_SEEN:
        f->never_seen++;
        break;
    case FINDING_CANNOT_SAY:
    case FINDING_MAX_:
    default:
        f->cannot_say++;
        break;
    }
}

static void news(struct inquiry *q, enum outcome outcome, const char *vendor_id)
{
    late_news(q->engine, q->id, q->attempt, outcome, vendor_id, q->answer.code, q->answer.detail,
              "asked");
    forget(q);
}

/* With the last answer of a round its results are stored and the next round begins; else the
 * second does it. */
static void go_on(struct engine *e)
{
    for (const struct inquiry *q = e->inquiries; q; q = q->next) {
        if (!q->decided)
            return;
    }
    ask_turn(e);
}

static void conclude(struct inquiry *q, enum finding finding, const char *vendor_id)
{
    struct engine *e = q->engine;

    count_finding(&q->vendor->findings, finding);
    q->view.now_ms = clock_boot_ms();
    q->view.jitter = engine_jitter();
    q->decision =
        decide_ask(&q->policy, &q->vendor->cap, &q->view, finding, q->answer.retry_after_ms);
    log_event(LOG_LEVEL_DEBUG, "asked", "id=%s provider=%s finding=%s next=%d code=%s detail=%s",
              q->id, q->vendor->conf->name, finding_name(finding), (int)q->decision.next,
              q->answer.code, q->answer.detail);
    switch (q->decision.next) {
    case ASK_ACCEPTED:
        news(q, OUTCOME_ACCEPTED, vendor_id);
        break;
    case ASK_REJECTED:
        news(q, OUTCOME_REJECTED, NULL);
        break;
    case ASK_NOT_TAKEN:
        news(q, OUTCOME_REFUSED, NULL);
        break;
    case ASK_AGAIN:
    case ASK_RESEND:
    case ASK_STOP:
    default:
        q->vendor->possible_duplicates += q->decision.next == ASK_RESEND;
        q->decided = true;
        break;
    }
    go_on(e);
}

static void on_matched(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct inquiry *q = arg;

    if (end != PG_COMMITTED || pg_rows(r) == 0)
        forget(q); /* asked again when it shows up again */
    else if (pg_is_null(r, 0, 0))
        conclude(q, FINDING_NEVER_SEEN, NULL); /* they are all other messages of ours */
    else
        conclude(q, FINDING_HAS_IT, pg_text(r, 0, 0));
}

/* Texts look alike: which of the vendor's messages is not another one of ours? */
static void match(struct inquiry *q)
{
    struct pg_params *p = pg_params_new();

    q->step = INQUIRY_MATCHING;
    pg_add_text(p, q->id);
    pg_add_text(p, q->vendor->conf->name);
    pg_add_text_array(p, (const char *const *)q->answer.ids, q->answer.ids_n);
    if (pg_exec(q->engine->doors[DOOR_HOUSE].pg, QUERY_OWN_ID, p, on_matched, q) < 0)
        forget(q);
}

/* ---- calling ---- */

static void begin(struct inquiry *q);

static void next_page(struct inquiry *q)
{
    free(q->cursor);
    q->cursor = q->answer.cursor;
    q->answer.cursor = NULL;
    q->question.cursor = q->cursor;
    begin(q);
}

static void on_answer(void *arg, const struct http_result *r)
{
    struct inquiry *q = arg;
    struct vendor *v = q->vendor;
    struct provider_reply reply = vendor_reply(r);

    plugin_ask_judge(v->plugin, &q->question, &reply, clock_real_ms() / 1000, &q->answer);
    if (!r->complete)
        log_event(LOG_LEVEL_WARN, "ask_unanswered", "provider=%s phase=%s error=%s", v->conf->name,
                  http_phase_name(r->phase), r->error);
    if (q->answer.fault)
        log_event(LOG_LEVEL_ERROR, "plugin_fault", "provider=%s fault=%s", v->conf->name,
                  q->answer.fault);
    if (q->answer.login)
        login_refused(q->engine, v, q->token_generation);
    else if (r->complete)
        login_proven(v, q->token_generation);
    if (q->answer.cursor && ++q->pages < PAGES_MAX)
        next_page(q);
    else if (q->answer.cursor || q->answer.login)
        conclude(q, FINDING_CANNOT_SAY, NULL); /* not to its end */
    else if (q->answer.finding == PROVIDER_HAS_IT && q->answer.ids_n > 0 && vendor_keeps_ids(v))
        match(q);
    else
        conclude(q, finding_of(q->answer.finding), q->answer.ids_n > 0 ? q->answer.ids[0] : NULL);
}

static void begin(struct inquiry *q)
{
    struct vendor *v = q->vendor;
    struct plugin_request built = {0};
    struct http_request request;
    struct err err = ERR_INIT;
    int rc;

    q->step = INQUIRY_CALLING;
    q->msg.token = v->login.token;
    q->token_generation = v->login.generation;
    rc = plugin_ask(v->plugin, &q->question, &built, &err);
    if (rc == 0) {
        request = vendor_request(v, &built);
        request.may_repeat = true; /* it changes nothing */
        request.arg = q;
        rc = http_start(v->pool, &request, on_answer, NULL, &err);
    }
    plugin_request_clear(&built);
    if (rc == -ENODATA) {
        q->decision = (struct ask_decision){.next = ASK_STOP, .reason = "nothing to ask by"};
        q->decided = true;
    } else if (rc < 0) {
        log_event(LOG_LEVEL_ERROR, "ask_not_started", "id=%s provider=%s error=%s", q->id,
                  v->conf->name, err_text(&err));
        forget(q);
    }
    err_done(&err);
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
        forget(s->items[i]); /* not stored: its row comes up again, and is asked again */
    go_on(s->e);
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
            begin(q);
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

        int64_t room = v->conf->in_flight - v->in_air - v->asking;

        if (!plugin_asks(v->plugin) || vendor_allowed(v, now) == 0 || room <= 0)
            continue;
        names[n] = v->conf->name;
        rooms[n] = room < ASKS_MAX ? (int32_t)room : ASKS_MAX;
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
    if (e->asks_busy || e->draining || !e->kinds_ok || !e->adopted || e->asks_open >= ASKS_MAX)
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
        forget(e->inquiries);
}
