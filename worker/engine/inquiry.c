/* inquiry.c - one message asked about: the call, its pages, the judgement, and what follows. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/inquiry.h"
#include "worker/engine/queries.h"
#include "worker/io/clock.h"
#include "worker/io/log.h"

enum { PAGES_MAX = 20 };

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

/* ---- one inquiry ---- */

void inquiry_forget(struct inquiry *q)
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

struct inquiry *inquiry_new(struct engine *e, const struct pg_result *r, size_t row)
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
        inquiry_forget(q);
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
    inquiry_forget(q);
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
    ask_go_on(e);
}

static void on_matched(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct inquiry *q = arg;

    if (end != PG_COMMITTED || pg_rows(r) == 0)
        inquiry_forget(q); /* asked again when it shows up again */
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
        inquiry_forget(q);
}

/* ---- calling ---- */

static void next_page(struct inquiry *q)
{
    free(q->cursor);
    q->cursor = q->answer.cursor;
    q->answer.cursor = NULL;
    q->question.cursor = q->cursor;
    inquiry_begin(q);
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

void inquiry_begin(struct inquiry *q)
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
        inquiry_forget(q);
    }
    err_done(&err);
}
