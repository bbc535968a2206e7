/* engine.c - the worker's loop: what is wired to what, and how it ends. */
#include "worker/engine/engine.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "worker/engine/internal.h"
#include "worker/io/clock.h"
#include "worker/io/failpoint.h"
#include "worker/io/log.h"
#include "worker/io/sdnotify.h"

enum { LOOK_EVERY_US = 500 }; /* at the urgent connection, while calls keep the loop busy */
enum { START_PER_TURN = 32 }; /* calls begun between two looks at the sockets: keeps codes quick */

/* ---- small things ---- */

void queue_init(struct queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
    q->n = 0;
}

void queue_push(struct queue *q, struct msg *m)
{
    m->next = NULL;
    *q->tail = m;
    q->tail = &m->next;
    q->n++;
}

void queue_push_front(struct queue *q, struct msg *m)
{
    m->next = q->head;
    q->head = m;
    if (!m->next)
        q->tail = &m->next;
    q->n++;
}

struct msg *queue_pop(struct queue *q)
{
    struct msg *m = q->head;

    if (m) {
        q->head = m->next;
        if (!q->head)
            q->tail = &q->head;
        q->n--;
        m->next = NULL;
    }
    return m;
}

void msg_free(struct msg *m)
{
    if (m) {
        free(m->texts);
        free(m->vendor_id);
        free(m->code);
        free(m->detail);
        free(m->parts);
        free(m);
    }
}

int list_push(int64_t **list, size_t *n, size_t *cap, int64_t value)
{
    if (*n == *cap) {
        size_t grown = *cap ? *cap * 2 : 128;
        int64_t *more = reallocarray(*list, grown, sizeof(**list));

        if (!more)
            return -ENOMEM;
        *list = more;
        *cap = grown;
    }
    (*list)[(*n)++] = value;
    return 0;
}

int64_t engine_lease_ms(const struct engine *e)
{
    return e->setup.config->lease_s * 1000;
}

double engine_jitter(void)
{
    return drand48();
}

struct kind *engine_kind(const struct engine *e, const char *name)
{
    for (size_t i = 0; i < e->kinds_n; i++) {
        if (strcmp(e->kinds[i].name, name) == 0)
            return &e->kinds[i];
    }
    return NULL;
}

bool engine_may_claim(const struct engine *e)
{
    /* Answers that are not stored are a reason to make no more of them: what a kill can leave in
     * doubt is bounded by twice in_flight, calls in the air and answers not yet stored. */
    return !e->draining && e->hello_done && e->adopted && e->schema_ok && e->kinds_ok &&
           clock_boot_ms() >= e->claim_pause_until &&
           e->sent.n + e->ended.n + e->storing < (size_t)e->setup.config->in_flight;
}

/* ---- a turn of the loop ---- */

static bool all_stored(const struct engine *e)
{
    return e->in_hand == 0 && e->sent.n == 0 && e->ended.n == 0 && e->settles_open == 0 &&
           !e->late_head && !e->late_busy && !e->doubted && e->doubts_open == 0 && e->lost_n == 0;
}

static bool claims_open(const struct engine *e)
{
    for (int i = 0; i < LANES_MAX; i++) {
        if (e->lanes[i].asking)
            return true;
    }
    return false;
}

static void on_check(struct ev_loop *loop, struct ev_check *w, int events)
{
    struct engine *e = w->data;

    (void)events;
    dispatch_turn(e, START_PER_TURN);
    if (e->settle_urgent)
        settle_flush(e);
    claim_turn(e);
    if (dispatch_idle(e))
        ev_idle_stop(loop, &e->idle);
    else
        ev_idle_start(loop, &e->idle);
    if (e->refused || (e->draining && !claims_open(e) && all_stored(e)))
        ev_break(loop, EVBREAK_ALL);
}

static void on_idle(struct ev_loop *loop, struct ev_idle *w, int events)
{
    (void)loop; /* only keeps the loop from waiting while calls are ready to start */
    (void)w;
    (void)events;
}

void engine_between(void *arg)
{
    struct engine *e = arg;
    int64_t now = clock_boot_us();

    if (now - e->looked_us < LOOK_EVERY_US)
        return;
    e->looked_us = now;
    if (e->doors[DOOR_URGENT].pg)
        pg_poll(e->doors[DOOR_URGENT].pg);
}

void engine_wake(struct engine *e)
{
    ev_idle_start(e->loop, &e->idle);
}

static void on_tick(struct ev_loop *loop, struct ev_timer *w, int events)
{
    struct engine *e = w->data;

    (void)loop;
    (void)events;
    if (e->sent.n + e->ended.n + e->done_n > 0)
        settle_flush(e); /* what could not be stored a moment ago */
}

static void on_settle_timer(struct ev_loop *loop, struct ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    settle_flush(w->data);
}

static void on_watchdog(struct ev_loop *loop, struct ev_timer *w, int events)
{
    (void)loop;
    (void)w;
    (void)events;
    sdnotify_watchdog();
}

/* ---- the end ---- */

static void leave_now(struct engine *e, const char *why)
{
    if (e->leaving)
        return;
    e->leaving = true;
    e->cut_off += e->in_air;
    log_event(LOG_LEVEL_WARN, "leaving", "why=%s in_air=%u unsettled=%zu", why, e->in_air,
              e->sent.n + e->ended.n + e->storing);
    dispatch_abort_all(e);
    e->drain_until = clock_boot_ms() + 3000; /* to store what is known */
}

void engine_begin_drain(struct engine *e, const char *why)
{
    if (e->draining) {
        leave_now(e, why);
        return;
    }
    e->draining = true;
    e->drain_until = clock_boot_ms() + e->setup.config->drain_s * 1000;
    sdnotify_stopping();
    log_event(LOG_LEVEL_INFO, "draining", "why=%s in_air=%u limit_s=%lld", why, e->in_air,
              (long long)e->setup.config->drain_s);
    engine_wake(e);
}

static void on_second(struct ev_loop *loop, struct ev_timer *w, int events)
{
    struct engine *e = w->data;
    int64_t now = clock_boot_ms();

    (void)events;
    house_second(e);
    setup_reap(e);
    log_flush();
    if (!e->draining || now < e->drain_until)
        return;
    if (!e->leaving)
        leave_now(e, "drain limit");
    else
        ev_break(loop, EVBREAK_ALL);
}

static void on_signal(struct ev_loop *loop, struct ev_signal *w, int events)
{
    (void)loop;
    (void)events;
    if (w->signum == SIGHUP)
        engine_reload(w->data);
    else
        engine_begin_drain(w->data, w->signum == SIGTERM ? "SIGTERM" : "SIGINT");
}

/* ---- start ---- */

static void watch_signal(struct engine *e, struct ev_signal *w, int signum)
{
    ev_signal_init(w, on_signal, signum);
    w->data = e;
    ev_signal_start(e->loop, w);
}

static void watch_timer(struct engine *e, struct ev_timer *w,
                        void (*cb)(struct ev_loop *, struct ev_timer *, int), double every)
{
    ev_timer_init(w, cb, every, every);
    w->data = e;
    if (every > 0)
        ev_timer_start(e->loop, w);
}

static void watch(struct engine *e)
{
    double poll = (double)e->setup.config->poll_ms / 4000.0;

    ev_check_init(&e->check, on_check);
    e->check.data = e;
    ev_check_start(e->loop, &e->check);
    ev_idle_init(&e->idle, on_idle);
    watch_timer(e, &e->tick, on_tick, poll > 0.01 ? poll : 0.01);
    watch_timer(e, &e->second, on_second, 1.0);
    watch_timer(e, &e->watchdog, on_watchdog, sdnotify_watchdog_interval());
    ev_timer_init(&e->settle_timer, on_settle_timer, 0., 0.);
    e->settle_timer.data = e;
    watch_signal(e, &e->on_term, SIGTERM);
    watch_signal(e, &e->on_int, SIGINT);
    watch_signal(e, &e->on_hup, SIGHUP);
}

static void seed_jitter(void)
{
    long seed = 0;

    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != (ssize_t)sizeof(seed))
        seed = (long)clock_boot_us() ^ getpid();
    srand48(seed);
}

static int prepare(struct engine *e, struct err *err)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    int rc = failpoint_arm(getenv("POSTRIDER_FAILPOINT"), err);

    if (rc < 0)
        return rc;
    for (int i = 0; i < LANES_MAX; i++) {
        e->lanes[i].no = i;
        queue_init(&e->lanes[i].ready);
    }
    queue_init(&e->sent);
    queue_init(&e->ended);
    e->late_tail = &e->late_head;
    report_init(&e->report);
    e->durable = true;
    e->seen = calloc(SEEN_IDS, sizeof(*e->seen));
    e->loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
    if (!e->seen || !e->loop)
        return -ENOMEM;
    seed_jitter();
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGHUP, &ignore, NULL); /* until there is something to reload */
    return http_global_init(err);
}

static void warn(void *arg, const char *text)
{
    (void)arg;
    log_event(LOG_LEVEL_WARN, "config", "note=%s", text);
}

static int start(struct engine *e, struct err *err)
{
    const struct config *c;
    enum log_level level = LOG_LEVEL_INFO;
    int rc = setup_open(e, e->options->config_path, &e->setup, err);

    if (rc < 0)
        return rc;
    c = e->setup.config;
    if (c->log_level && log_level_parse(c->log_level, &level) == 0)
        log_set_level(level);
    config_warnings(c, warn, NULL);
    watch(e);
    rc = house_open(e, e->options->dsn ? e->options->dsn : c->database, err);
    if (rc == 0)
        rc = window_open(e, err);
    if (rc == 0) {
        log_event(LOG_LEVEL_INFO, "started", "version=%s in_flight=%lld lease_s=%lld providers=%zu",
                  POSTRIDER_VERSION, (long long)c->in_flight, (long long)c->lease_s, e->setup.n);
        sdnotify_ready("running");
    }
    return rc;
}

/* ---- and stop ---- */

static void free_queue(struct queue *q)
{
    struct msg *m;

    while ((m = queue_pop(q)))
        msg_free(m);
}

static void stop(struct engine *e)
{
    settle_log_unstored(e);
    late_log_unstored(e);
    ask_close(e);
    window_close(e);
    house_close(e);
    for (int i = 0; i < LANES_MAX; i++) {
        free_queue(&e->lanes[i].ready);
        free(e->lanes[i].after_due);
        free(e->lanes[i].after_id);
    }
    while (e->retired) { /* as if all had ended */
        for (struct vendor *v = e->retired; v; v = v->next)
            v->claimed = v->in_air = v->asking = 0, v->login.busy = false;
        setup_reap(e);
    }
    setup_close(&e->setup);
    kinds_free(e);
    while (e->batches) {
        struct batch *b = e->batches;

        e->batches = b->next;
        free(b);
    }
    free(e->tokens);
    free(e->lost_tokens);
    free(e->done);
    free(e->seen);
    report_done(&e->report);
    if (e->loop)
        ev_loop_destroy(e->loop);
    http_global_done();
}

/* A last word to the database: this worker is gone on purpose. */
static void farewell(struct engine *e)
{
    int64_t until = clock_boot_ms() + 1000;

    house_beat(e, true);
    ev_check_stop(e->loop, &e->check);
    ev_idle_stop(e->loop, &e->idle);
    while (e->doors[DOOR_HOUSE].checked && pg_pending(e->doors[DOOR_HOUSE].pg) > 0 &&
           clock_boot_ms() < until)
        ev_run(e->loop, EVRUN_ONCE);
}

int engine_run(const struct engine_options *options, struct err *err)
{
    struct engine *e = calloc(1, sizeof(*e));
    int rc;

    if (!e)
        return -ENOMEM;
    e->options = options;
    rc = prepare(e, err);
    if (rc == 0)
        rc = start(e, err);
    if (rc == 0) {
        ev_run(e->loop, 0);
        farewell(e);
        if (e->refused)
            rc = err_set(err, -EINVAL, "the kinds in the database do not fit this configuration");
    }
    stop(e);
    if (rc == 0) {
        rc = e->cut_off > 0;
        log_event(LOG_LEVEL_INFO, "stopped", "cut_off=%u", e->cut_off);
    }
    log_flush();
    free(e);
    return rc;
}
