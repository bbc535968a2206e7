#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/sandbox/world.h"
#include "worker/io/http.h"

#define CALLS_MAX       64u
#define CALL_TIMEOUT_MS 10000
#define BODY_CAP        (64u * 1024)
#define TICK_S          0.002

enum job_kind { JOB_RECEIPT, JOB_SHOT };

struct job { /* one receipt with its repeats, or one shot */
    struct sb_timer timer;
    struct sb_receipts *rs;
    struct job *next, **link; /* in rs->jobs */
    struct job *behind;       /* in the queue of those that wait for a slot */
    enum job_kind kind;
    uint64_t no; /* of the message */
    size_t part;
    enum sb_state state;
    int64_t at_ms;  /* when it first went out: repeats tell the same time; 0 = not yet */
    bool silent;    /* the state moves, nobody is told */
    unsigned tries; /* made */
    const struct sb_req *hold;
    struct sb_shot *shot;
};

struct sb_receipts {
    struct sb_world *w;
    struct sb_wheel wheel;
    ev_timer tick;
    struct http_pool *pool;
    struct job *jobs;
    struct job *queue, **queue_end;
    unsigned in_air;
    uint64_t pending, planned;
    struct {
        uint64_t calls, answered[SB_STATUS_MAX], failed, ok, given_up, untold;
    } stats;
};

static void on_fire(struct sb_timer *t, void *arg);
static void launch(struct job *j);

/* --- life ------------------------------------------------------------------------------- */

static void on_tick(struct ev_loop *loop, ev_timer *t, int revents)
{
    struct sb_receipts *rs = t->data;

    (void)revents;
    sb_wheel_expire(&rs->wheel, sb_mono_ms(), on_fire, NULL);
    if (rs->wheel.armed == 0)
        ev_timer_stop(loop, t);
}

int sb_receipts_new(struct sb_world *w, struct sb_receipts **ret_receipts, struct err *err)
{
    const struct http_options options = {
        .max_calls = 2 * CALLS_MAX, .body_cap = BODY_CAP, .idle_ms = 2000};
    struct sb_receipts *rs = calloc(1, sizeof(*rs));

    if (!rs)
        return err_set(err, -ENOMEM, "out of memory");
    rs->w = w;
    rs->queue_end = &rs->queue;
    sb_wheel_init(&rs->wheel, sb_mono_ms());
    ev_init(&rs->tick, on_tick);
    rs->tick.repeat = TICK_S;
    rs->tick.data = rs;
    int rc = http_pool_new(w->sb->loop, &options, &rs->pool, err);
    if (rc < 0) {
        free(rs);
        return rc;
    }
    *ret_receipts = rs;
    return 0;
}

static void job_free(struct job *j)
{
    struct sb_receipts *rs = j->rs;

    *j->link = j->next;
    if (j->next)
        j->next->link = j->link;
    sb_wheel_del(&rs->wheel, &j->timer);
    rs->pending--;
    free(j);
}

struct sb_receipts *sb_receipts_free(struct sb_receipts *rs)
{
    if (!rs)
        return NULL;
    http_pool_free(rs->pool); /* calls nobody back */
    while (rs->jobs)
        job_free(rs->jobs);
    ev_timer_stop(rs->w->sb->loop, &rs->tick);
    free(rs);
    return NULL;
}

static struct job *job_new(struct sb_receipts *rs, enum job_kind kind)
{
    struct job *j = calloc(1, sizeof(*j));

    if (!j)
        return NULL;
    j->rs = rs;
    j->kind = kind;
    j->next = rs->jobs;
    j->link = &rs->jobs;
    if (j->next)
        j->next->link = &j->next;
    rs->jobs = j;
    rs->pending++;
    return j;
}

static void arm(struct job *j, int64_t delay_ms)
{
    struct sb_receipts *rs = j->rs;

    if (rs->wheel.armed == 0)
        sb_wheel_expire(&rs->wheel, sb_mono_ms(), on_fire, NULL); /* catch up after rest */
    sb_wheel_add(&rs->wheel, &j->timer, sb_mono_ms() + delay_ms);
    if (!ev_is_active(&rs->tick))
        ev_timer_again(rs->w->sb->loop, &rs->tick);
}

/* --- one call --------------------------------------------------------------------------- */

/* The held request goes on when no job holds it any more. */
static void let_go(struct job *j)
{
    const struct sb_req *held = j->hold;

    j->hold = NULL;
    if (!held)
        return;
    for (const struct job *other = j->rs->jobs; other; other = other->next)
        if (other->hold == held)
            return;
    sb_req_wake((struct sb_req *)(uintptr_t)held);
    sb_server_poke(j->rs->w->sb);
}

static bool is_ok(const struct sb_receipts *rs, const struct http_result *res)
{
    if (!res->complete)
        return false;
    if (rs->w->d->receipt_ok)
        return rs->w->d->receipt_ok(res->status, res->body, res->body_len);
    return res->status >= 200 && res->status < 300;
}

static void end_shot(struct job *j, const struct http_result *res)
{
    struct sb_shot *shot = j->shot;

    if (shot) {
        shot->done = true;
        shot->status = res && res->complete ? res->status : 0;
        shot->body = res ? strndup(res->body, res->body_len) : NULL;
        sb_req_wake(shot->req);
        sb_server_poke(j->rs->w->sb);
    }
    job_free(j);
}

static void launch_next(struct sb_receipts *rs)
{
    while (rs->queue && rs->in_air < CALLS_MAX) {
        struct job *j = rs->queue;
        rs->queue = j->behind;
        if (!rs->queue)
            rs->queue_end = &rs->queue;
        launch(j);
    }
}

static void on_done(void *arg, const struct http_result *res)
{
    struct job *j = arg;
    struct sb_receipts *rs = j->rs;
    const struct sb_knobs *k = &rs->w->sb->knobs;
    uint64_t tries = rs->w->d->receipt_tries ? rs->w->d->receipt_tries : k->receipt_tries;
    bool ok = is_ok(rs, res);

    rs->in_air--;
    if (res->complete && res->status < SB_STATUS_MAX)
        rs->stats.answered[res->status]++;
    else
        rs->stats.failed++;
    if (j->kind == JOB_SHOT) {
        end_shot(j, res);
        launch_next(rs);
        return;
    }
    let_go(j);
    if (ok)
        rs->stats.ok++;
    else if (j->tries >= tries)
        rs->stats.given_up++;
    if (ok || j->tries >= tries)
        job_free(j);
    else
        arm(j, (int64_t)(k->receipt_retry_ms * j->tries));
    launch_next(rs);
}

/* 0 or -errno, as http_start. */
static int call(struct job *j, const struct sb_out *o)
{
    struct http_header headers[32];
    size_t n = 0;

    if (!o->method || !o->url)
        return -EINVAL;
    for (; n < o->headers.n && n < sizeof(headers) / sizeof(headers[0]); n++)
        headers[n] = (struct http_header){o->headers.v[n].name, o->headers.v[n].value};
    const struct http_request req = {.method = o->method,
                                     .url = o->url,
                                     .headers = headers,
                                     .headers_count = n,
                                     .body = o->body,
                                     .body_len = o->len,
                                     .timeout_ms = CALL_TIMEOUT_MS,
                                     .arg = j};
    int rc = http_start(j->rs->pool, &req, on_done, NULL, NULL);
    if (rc == 0) {
        j->rs->in_air++;
        j->rs->stats.calls++;
    }
    return rc;
}

/* --- firing ----------------------------------------------------------------------------- */

static const char *target_of(const struct sb_world *w, const struct sb_msg *m)
{
    return m->callback && *m->callback ? m->callback : sb_setting(w, "callback_url");
}

static int word_and_call(struct job *j, const struct sb_msg *m)
{
    const struct sb_world *w = j->rs->w;
    const struct sb_receipt item = {
        .msg = m, .part = j->part, .state = j->state, .at_ms = j->at_ms};
    struct sb_out out;
    int rc = sb_out_init(&out, target_of(w, m));

    if (rc == 0)
        rc = w->d->receipt(w, &item, 1, SB_GENUINE, &out);
    if (rc == 0)
        rc = call(j, &out);
    sb_out_done(&out);
    return rc;
}

static bool is_final(enum sb_state s)
{
    return s > SB_ST_SENT;
}

static void move_state(struct job *j, struct sb_msg *m)
{
    if (j->at_ms)
        return;
    j->at_ms = sb_now_ms(j->rs->w);
    if (is_final(m->state) || (m->state == SB_ST_SENT && j->state == SB_ST_SENT))
        return;
    m->state = j->state;
    m->changed_ms = j->at_ms;
}

/* The message may be gone: forgotten by a reset. */
static void launch(struct job *j)
{
    struct sb_receipts *rs = j->rs;
    const struct sb_msg *m = sb_store_at(rs->w->store, j->no);
    int rc = m ? word_and_call(j, m) : -ENOENT;

    if (rc == 0) {
        j->tries++;
        return;
    }
    if (m)
        rs->stats.untold++;
    let_go(j);
    job_free(j);
}

static void on_fire(struct sb_timer *t, void *arg)
{
    struct job *j = (struct job *)(void *)((char *)t - offsetof(struct job, timer));
    struct sb_receipts *rs = j->rs;
    struct sb_msg *m = sb_store_at(rs->w->store, j->no);

    (void)arg;
    if (m)
        move_state(j, m);
    if (!m || j->silent) {
        job_free(j);
        return;
    }
    j->behind = NULL;
    *rs->queue_end = j;
    rs->queue_end = &j->behind;
    launch_next(rs);
}

/* --- planning --------------------------------------------------------------------------- */

static int64_t delay_of(struct sb_receipts *rs, enum sb_state state, enum sb_when when, bool held)
{
    const struct sb_knobs *k = &rs->w->sb->knobs;
    int64_t ms = (int64_t)(when == SB_WHEN_LATE ? k->receipt_late_ms : k->receipt_delay_ms);

    rs->planned++;
    if (held)
        return 0;
    if (k->receipt_shuffle)
        return (int64_t)((double)ms * 2 * sb_knobs_draw_receipt(k, rs->planned));
    return is_final(state) ? ms : ms / 2;
}

static bool plan(struct sb_receipts *rs, const struct sb_msg *m, enum sb_state state,
                 enum sb_when when, struct sb_req *hold, bool silent)
{
    unsigned copies = silent ? 1 : (unsigned)rs->w->sb->knobs.receipt_copies;
    bool any = false;

    for (size_t part = 0; part < (silent ? 1 : m->ids_n); part++) {
        for (unsigned i = 0; i < copies; i++) {
            struct job *j = job_new(rs, JOB_RECEIPT);
            if (!j)
                return any;
            j->no = m->no;
            j->part = part;
            j->state = state;
            j->silent = silent;
            j->hold = hold;
            if (hold)
                hold->held = true;
            arm(j, delay_of(rs, state, when, hold != NULL));
            any = true;
        }
    }
    return any;
}

bool sb_receipts_plan(struct sb_receipts *rs, const struct sb_msg *m, enum sb_state final,
                      enum sb_when when, struct sb_req *hold)
{
    const struct sb_world *w = rs->w;
    bool silent = when == SB_WHEN_NEVER || !w->sb->knobs.receipts || m->no_receipt ||
                  !w->d->receipt || !*target_of(w, m);
    bool any = false;

    if (silent || when == SB_WHEN_LATE)
        hold = NULL;
    if (!silent && w->sb->knobs.receipt_sent)
        any = plan(rs, m, SB_ST_SENT, SB_WHEN_USUAL, hold, false);
    any |= plan(rs, m, final, when, hold, silent);
    return any && hold != NULL;
}

void sb_receipts_forget(const struct sb_req *r)
{
    for (struct job *j = r->sb->world->receipts->jobs; j; j = j->next)
        if (j->hold == r)
            j->hold = NULL;
}

/* --- shots ------------------------------------------------------------------------------ */

int sb_receipts_shoot(struct sb_receipts *rs, const struct sb_out *out, struct sb_shot *shot)
{
    struct job *j = job_new(rs, JOB_SHOT);

    if (!j)
        return -ENOMEM;
    j->shot = shot;
    int rc = call(j, out);
    if (rc < 0)
        job_free(j);
    return rc;
}

void sb_receipts_unshoot(struct sb_receipts *rs, const struct sb_shot *shot)
{
    for (struct job *j = rs->jobs; j; j = j->next)
        if (j->shot == shot)
            j->shot = NULL;
}

/* --- figures ---------------------------------------------------------------------------- */

void sb_receipts_clear_stats(struct sb_receipts *rs)
{
    memset(&rs->stats, 0, sizeof(rs->stats));
}

json_t *sb_receipts_stats(const struct sb_receipts *rs)
{
    json_t *by = json_object();
    char name[8];

    for (unsigned i = 0; i < SB_STATUS_MAX; i++) {
        if (rs->stats.answered[i] == 0)
            continue;
        snprintf(name, sizeof(name), "%u", i);
        json_object_set_new(by, name, json_integer((json_int_t)rs->stats.answered[i]));
    }
    return json_pack("{s:I, s:o, s:I, s:I, s:I, s:I, s:I}", "calls", (json_int_t)rs->stats.calls,
                     "answered", by, "failed", (json_int_t)rs->stats.failed, "ok",
                     (json_int_t)rs->stats.ok, "given_up", (json_int_t)rs->stats.given_up, "untold",
                     (json_int_t)rs->stats.untold, "pending", (json_int_t)rs->pending);
}
