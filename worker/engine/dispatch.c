/* dispatch.c - calls vendors for claimed messages, and judges what came back. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/core/classify.h"
#include "worker/core/clean.h"
#include "worker/core/phone.h"
#include "worker/core/text.h"
#include "worker/engine/internal.h"
#include "worker/engine/queries.h"
#include "worker/io/clock.h"
#include "worker/io/failpoint.h"
#include "worker/io/log.h"

/* ---- the air ---- */

static void air_enter(struct engine *e, struct msg *m)
{
    m->air_prev = NULL;
    m->air_next = e->air;
    if (e->air)
        e->air->air_prev = m;
    e->air = m;
    e->in_air++;
    m->vendor->in_air++;
}

static void air_leave(struct engine *e, struct msg *m)
{
    *(m->air_prev ? &m->air_prev->air_next : &e->air) = m->air_next;
    if (m->air_next)
        m->air_next->air_prev = m->air_prev;
    e->in_air--;
    m->vendor->in_air--;
}

/* ---- ends ---- */

/* The message leaves the ready queues and the air; storing what became of it is settle's. */
static void finish(struct engine *e, struct msg *m)
{
    m->vendor->claimed--;
    e->in_hand--;
    settle_push(e, m);
}

static struct view view_of(const struct msg *m, int64_t now)
{
    return (struct view){.attempts = m->attempts,
                         .calls = m->calls,
                         .doubts = m->doubts,
                         .now_ms = now,
                         .expires_ms = m->expires,
                         .doubt_since_ms = m->doubt_since,
                         .started_ms = m->batch->t0,
                         .has_vendor_id = m->vendor_id != NULL,
                         .asked = m->asked,
                         .jitter = engine_jitter()};
}

/* Never tried: attempt and due time come back (R8, J75). */
static void give_back(struct engine *e, struct msg *m)
{
    struct view view = view_of(m, clock_boot_ms());

    m->has_outcome = false;
    m->decision = decide_back(&view);
    e->report.given_back++;
    finish(e, m);
}

/* Ends before any call with the reason given; nothing was sent. */
static void end_unsent(struct engine *e, struct msg *m, const char *reason, const char *detail)
{
    struct view view = view_of(m, clock_boot_ms());

    m->has_outcome = true;
    m->outcome = OUTCOME_REJECTED;
    m->phase = http_phase_name(HTTP_PHASE_QUEUE);
    m->code = strdup(reason);
    m->detail = detail ? strdup(detail) : NULL;
    m->decision = decide_unfit(&view, reason);
    finish(e, m);
}

/* ---- the gate (R4), asked by libcurl in the last moment before bytes leave ---- */

static bool may_start(void *arg)
{
    struct msg *m = arg;
    const struct engine *e = m->engine;
    int64_t now = clock_boot_ms();

    m->gate_shut = e->leaving || now >= m->expires ||
                   !lease_allows(now, m->vendor->conf->timeout_ms,
                                 e->setup.config->settle_allowance_ms, m->batch->end);
    if (!m->gate_shut && m->lane == 0 && m->calls == 0)
        histogram_add_us(&m->engine->report.otp,
                         (clock_real_ms() + e->clock_skew_ms - m->created_ms) * 1000);
    if (!m->gate_shut)
        failpoint("call_permitted");
    return !m->gate_shut;
}

/* ---- after a call ---- */

static void count_outcome(struct report_outcomes *o, enum outcome outcome)
{
    uint64_t *const counter[OUTCOME_MAX_] = {
        [OUTCOME_ACCEPTED] = &o->accepted,   [OUTCOME_REJECTED] = &o->rejected,
        [OUTCOME_THROTTLED] = &o->throttled, [OUTCOME_HELD] = &o->held,
        [OUTCOME_UNREACHED] = &o->unreached, [OUTCOME_REFUSED] = &o->refused,
        [OUTCOME_UNKNOWN] = &o->unknown,
    };
    ++*counter[outcome];
}

static enum outcome outcome_of(enum provider_outcome word)
{
    static const enum outcome map[PROVIDER_OUTCOME_MAX_] = {
        [PROVIDER_ACCEPTED] = OUTCOME_ACCEPTED,   [PROVIDER_REJECTED] = OUTCOME_REJECTED,
        [PROVIDER_THROTTLED] = OUTCOME_THROTTLED, [PROVIDER_HELD] = OUTCOME_HELD,
        [PROVIDER_REFUSED] = OUTCOME_REFUSED,     [PROVIDER_UNKNOWN] = OUTCOME_UNKNOWN,
    };
    return (unsigned)word < PROVIDER_OUTCOME_MAX_ ? map[word] : OUTCOME_UNKNOWN;
}

/* A line each. Without memory for it the message has one id. */
static char *joined(char **parts, size_t n)
{
    size_t size = 1;
    char *text, *at;

    for (size_t i = 0; i < n; i++)
        size += strlen(parts[i]) + 1;
    text = at = malloc(size);
    for (size_t i = 0; text && i < n; i++) {
        at = stpncpy(at, parts[i], size - (size_t)(at - text));
        *at++ = '\n';
    }
    if (text)
        at[-1] = '\0';
    return text;
}

static void take_verdict(struct msg *m, struct plugin_verdict *verdict)
{
    m->vendor_id = verdict->id;
    m->code = verdict->code;
    m->detail = verdict->detail;
    verdict->id = verdict->code = verdict->detail = NULL;
    m->parts = verdict->parts_n > 1 ? joined(verdict->parts, verdict->parts_n) : NULL;
}

/* libcurl's words may quote the vendor's bytes, and have to be text the database takes. */
static char *cleaned(const char *words)
{
    char text[200];

    clean_text(text, sizeof(text), words, strlen(words), 0);
    return strdup(text);
}

/* Ahead of the message's own end on the same connection: whoever said STOP gets nothing more. */
static void suppress(const struct msg *m)
{
    struct pg_params *p = pg_params_new();

    log_event(LOG_LEVEL_INFO, "opted_out", "id=%s provider=%s", m->id, m->vendor->conf->name);
    pg_add_text(p, m->recipient);
    pg_add_text(p, "all");
    pg_add_text(p, "vendor");
    pg_add_text(p, m->vendor->conf->name);
    pg_exec(m->engine->doors[DOOR_SETTLE].pg, QUERY_SUPPRESS, p, NULL, NULL);
}

/* Turns the call's evidence into an outcome; returns the vendor's wish in ms or -1. *ret_login: the
 * vendor refused the login's token. */
static int64_t judge(struct msg *m, const struct http_result *r, bool *ret_login)
{
    struct evidence ev = {.permits = r->permits,
                          .complete = r->complete,
                          .status = r->status,
                          .untrusted = r->tls_untrusted};
    struct plugin_verdict verdict = {0};
    int64_t retry_after_ms = -1;

    if (r->permits > 0 && r->complete) {
        struct provider_reply reply = vendor_reply(r);

        plugin_judge(m->vendor->plugin, &reply, clock_real_ms() / 1000, &verdict);
        ev.judged = true;
        ev.word = outcome_of(verdict.outcome);
        *ret_login = verdict.login;
        m->duplicate = verdict.duplicate;
        if (verdict.opt_out)
            suppress(m);
        retry_after_ms = verdict.retry_after_ms;
        if (verdict.fault)
            log_event(LOG_LEVEL_ERROR, "plugin_fault", "provider=%s fault=%s",
                      m->vendor->conf->name, verdict.fault);
        take_verdict(m, &verdict);
        if (!*ret_login)
            login_proven(m->vendor, m->token_generation);
    }
    m->outcome = classify(&ev);
    if (m->outcome != OUTCOME_ACCEPTED && !m->code && r->error[0] != '\0') {
        m->code = strdup(r->timed_out ? "timeout" : "transport");
        m->detail = cleaned(r->error);
    }
    plugin_verdict_clear(&verdict);
    return retry_after_ms;
}

static void shut_door(struct vendor *v, const struct msg *m)
{
    log_event(LOG_LEVEL_WARN, "provider_paused", "provider=%s why=%s code=%s detail=%s ms=%lld",
              v->conf->name, outcome_name(m->outcome), m->code, m->detail,
              (long long)(v->breaker.open_until_ms - clock_boot_ms()));
}

static void on_done(void *arg, const struct http_result *r)
{
    struct msg *m = arg;
    struct engine *e = m->engine;
    struct vendor *v = m->vendor;
    int64_t now = clock_boot_ms(), retry_after_ms;
    bool login = false;
    struct view view;

    if (r->complete)
        failpoint("reply_unjudged");
    m->call = NULL;
    air_leave(e, m);
    m->called = r->permits > 0;
    m->calls += m->called;
    m->phase = http_phase_name(r->phase);
    if (r->permits == 0 && m->gate_shut) {
        e->report.lease_refused++;
        give_back(e, m);
        return;
    }
    if (r->dirty || r->permits > 1)
        e->report.reuse_refused++;
    retry_after_ms = judge(m, r, &login);
    if (login && login_refused(e, v, m->token_generation)) {
        give_back(e, m); /* with a fresh token it goes again; the call is counted */
        return;
    }
    if (m->outcome == OUTCOME_ACCEPTED && m->vendor_id && seen_twice(e, m))
        m->outcome = OUTCOME_UNKNOWN; /* R5: whose answer is it? */
    view = view_of(m, now);
    m->duplicate = m->duplicate && !duplicate_explained(&view, r->permits);
    if (m->duplicate)
        m->outcome = OUTCOME_UNKNOWN;
    count_outcome(&v->outcomes, m->outcome);
    if (m->called)
        histogram_add_us(&v->call, r->total_us - r->connect_us);
    if (breaker_note(&v->breaker, m->outcome, retry_after_ms, engine_jitter(), now))
        shut_door(v, m);
    m->has_outcome = true;
    m->decision = m->duplicate ? decide_duplicate(&m->policy, &v->cap, &view)
                               : decide(&m->policy, &v->cap, &view, m->outcome, retry_after_ms);
    v->possible_duplicates += m->decision.possible_duplicate;
    finish(e, m);
    engine_wake(e);
}

/* ---- before a call ---- */

static int call_vendor(struct msg *m, struct err *err)
{
    struct vendor *v = m->vendor;
    struct provider_msg pm = {.key = m->key,
                              .recipient = m->recipient,
                              .body = m->body,
                              .body_len = m->body_len,
                              .sender = m->sender,
                              .kind = m->kind_name,
                              .meta_json = m->meta,
                              .created_ms = m->created_ms,
                              .expires_ms = m->expires_ms,
                              .id = m->id,
                              .token = v->login.token,
                              .validity_ms = m->validity_ms};
    char *callback_url = receipt_callback_url(m->engine, v, m->id);
    struct plugin_request built = {0};
    struct http_request request;
    int rc;

    pm.callback_url = callback_url;
    rc = plugin_build(v->plugin, &pm, &built, err);
    free(callback_url);
    if (rc < 0)
        return rc;
    m->token_generation = v->login.generation;
    request = vendor_request(v, &built);
    request.may_repeat = v->cap.dedup;
    request.may_start = may_start;
    request.arg = m;
    failpoint("call_unstarted");
    rc = http_start(v->pool, &request, on_done, &m->call, err);
    plugin_request_clear(&built);
    return rc < 0 ? -EAGAIN : 0;
}

/* A row is hostile until parsed: false when it was ended here. */
static bool fit_to_send(struct engine *e, struct msg *m)
{
    struct phone phone;
    struct text_measure measure;
    enum phone_fault fault = phone_normalize(m->recipient, strlen(m->recipient), &phone);

    if (fault != PHONE_OK || strcmp(phone.e164, m->recipient) != 0) {
        end_unsent(e, m, "invalid recipient", phone_fault_text(fault));
        return false;
    }
    if (m->body_len == 0 || text_measure(m->body, m->body_len, &measure) < 0) {
        end_unsent(e, m, "invalid body", NULL);
        return false;
    }
    return true;
}

static void begin(struct engine *e, struct msg *m, int64_t now)
{
    struct vendor *v = m->vendor;
    struct view view = view_of(m, now);
    struct err err = ERR_INIT;
    int rc;

    if (!lease_allows(now, v->conf->timeout_ms, e->setup.config->settle_allowance_ms,
                      m->batch->end)) {
        e->report.lease_refused++;
        give_back(e, m);
        return;
    }
    if (!decide_dispatch(&m->policy, &v->cap, &view, &m->decision)) {
        m->has_outcome = false;
        finish(e, m);
        return;
    }
    if (!fit_to_send(e, m))
        return;
    breaker_start(&v->breaker, now);
    air_enter(e, m);
    rc = call_vendor(m, &err);
    if (rc < 0) {
        air_leave(e, m);
        if (rc == -ENOMEM || rc == -EAGAIN)
            give_back(e, m); /* our own trouble */
        else
            end_unsent(e, m, "plugin_error", err_text(&err));
        log_event(LOG_LEVEL_ERROR, "call_not_started", "id=%s provider=%s error=%s", m->id,
                  v->conf->name, err_text(&err));
    }
    err_done(&err);
}

static bool has_slot(const struct vendor *v, int64_t now)
{
    return v->in_air < vendor_slots(v) && v->in_air + v->asking < (unsigned)v->conf->in_flight &&
           v->in_air < vendor_allowed(v, now);
}

/* One message as far as it can go now: into the air, back, or into its vendor's waiting line. */
static void advance(struct engine *e, struct msg *m, int64_t now)
{
    struct vendor *v = m->vendor;

    if (e->draining || vendor_allowed(v, now) == 0)
        give_back(e, m); /* the door was shut after the claim: let them wait in the table */
    else if (has_slot(v, now))
        begin(e, m, now);
    else
        queue_push(&v->waiting, m);
}

static unsigned serve_waiting(struct engine *e, struct vendor *v, unsigned most, int64_t now)
{
    unsigned n = 0;

    while (n < most && v->waiting.n > 0 &&
           (e->draining || has_slot(v, now) || vendor_allowed(v, now) == 0)) {
        advance(e, queue_pop(&v->waiting), now);
        n++;
    }
    return n;
}

void dispatch_turn(struct engine *e, unsigned most)
{
    int64_t now = clock_boot_ms();
    unsigned n = 0;

    for (size_t i = 0; i < e->setup.n; i++)
        n += serve_waiting(e, e->setup.vendors[i], most, now);
    for (struct vendor *v = e->retired; v; v = v->next)
        n += serve_waiting(e, v, most, now);
    for (int i = 0; i < LANES_MAX; i++) {
        struct lane *lane = &e->lanes[i];

        while (n < most && lane->ready.n > 0) {
            advance(e, queue_pop(&lane->ready), now);
            n++;
        }
    }
}

/* A code does not wait for the end of this turn, nor for calls of the others to be started. */
void dispatch_urgent(struct engine *e, struct lane *lane)
{
    int64_t now = clock_boot_ms();

    for (size_t n = lane->ready.n; n > 0; n--)
        advance(e, queue_pop(&lane->ready), now);
    for (size_t i = 0; i < e->setup.n; i++)
        http_pool_run(e->setup.vendors[i]->pool);
}

bool dispatch_idle(const struct engine *e)
{
    for (int i = 0; i < LANES_MAX; i++) {
        if (e->lanes[i].ready.n > 0)
            return false;
    }
    return true;
}

void dispatch_abort_all(struct engine *e)
{
    for (struct msg *m = e->air, *next; m; m = next) {
        next = m->air_next;
        if (m->call)
            http_abort(m->call); /* on_done follows from the loop, with what is known */
    }
}
