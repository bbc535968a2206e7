/* serve_driver - the status server with a made-up report behind it, for tests/e2e/test_serve.py
 * and for looking at the page.
 *
 *   serve_driver [--listen HOST:PORT] [--token T] [--connections N] [--per-address N]
 *                [--timeout S] [--request-s S] [--body-max N] [--bodies-max N]
 *                [--scene calm|storm|down|empty]
 *
 * Prints {"port": N, "address": "..."} and serves until SIGTERM: / /metrics /healthz /readyz,
 * guarded /api/status, and POST /echo (guarded: gives the body back). GET /loops counts turns of
 * the loop. GET or POST /later/NAME?ms=N answers after N ms with what it was asked; without ms,
 * once GET /release is called. */
#include <ev.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/report.h"
#include "worker/io/serve.h"
#include "worker/web/page.h"

struct driver {
    struct ev_loop *loop;
    double began;
    const char *scene;
    uint64_t turns;
    struct later *laters;
};

struct later {
    struct later *next;
    struct driver *d;
    struct serve_later *answer;
    ev_timer timer;
    const char *path, *target;
    const void *body;
    size_t body_len;
};

/* ---- the made-up report ---- */

static void must(int r)
{
    if (r < 0)
        abort();
}

static void make_counts(struct report *r, const char *scene, double t)
{
    bool storm = strcmp(scene, "storm") == 0;
    int64_t gone = (int64_t)(t * 5556);

    must(report_add_count(r, "otp", "pending", storm ? 41 : 0));
    must(report_add_count(r, "otp", "sending", 3));
    must(report_add_count(r, "otp", "sent", 48211 + (int64_t)(t * 8)));
    must(report_add_count(r, "otp", "expired", storm ? 17 : 2));
    must(report_add_count(r, "otp", "failed", storm ? 4 : 0));
    must(report_add_count(r, "transactional", "pending", 12));
    must(report_add_count(r, "transactional", "sending", 6));
    must(report_add_count(r, "transactional", "sent", 911034));
    must(report_add_count(r, "campaign", "pending", gone < 4000000 ? 4000000 - gone : 0));
    must(report_add_count(r, "campaign", "sending", storm ? 212 : 1071));
    must(report_add_count(r, "campaign", "unknown", storm ? 38 : 0));
    must(report_add_count(r, "campaign", "failed", storm ? 1290 + (int64_t)(t * 3) : 12));
    must(report_add_count(r, "campaign", "suppressed", 20411));
    must(report_add_count(r, "campaign", "canceled", 0));
    must(report_add_count(r, "campaign", "sent", 1000000 + gone));
    must(report_add_lane(r, "otp", storm ? 8400 : AGE_NONE));
    must(report_add_lane(r, "transactional", storm ? 21000 : 40));
    must(report_add_lane(r, "campaign", 610000));
}

static void make_calls(struct report_provider *p, double t, int slow)
{
    int calls = (int)(t * 200);

    for (int i = 0; i < calls && i < 200000; i++)
        histogram_add_us(&p->call, (int64_t)(90 + i % 97 + (i % 61 == 0 ? 600 * slow : 0)) * 1000);
}

static void make_providers(struct report *r, const char *scene, double t)
{
    bool storm = strcmp(scene, "storm") == 0;
    struct report_provider *p = report_add_provider(r, "main", "http");

    if (!p)
        abort();
    p->in_air = storm ? 0 : 790 + (int)(t * 10) % 20;
    p->limit = 800;
    p->outcomes = (struct report_outcomes){.accepted = 1000000 + (uint64_t)(t * 5000),
                                           .rejected = 12,
                                           .throttled = 40,
                                           .unreached = storm ? 5120 : 3,
                                           .unknown = storm ? 38 : 1};
    make_calls(p, t, 1);
    if (storm) {
        p->door = REPORT_PAUSED;
        p->until_ms = 14000 - (int64_t)(t * 1000) % 14000;
        must(report_set(&p->reason, "10 calls in a row not answered; trying one again soon"));
    }
    p = report_add_provider(r, "reserve", "http");
    if (!p)
        abort();
    p->in_air = storm ? 212 : 281;
    p->limit = 400;
    p->outcomes.accepted = 500000 + (uint64_t)(t * 700);
    make_calls(p, t, 3);
    p = report_add_provider(r, "third", "smsc-json");
    if (!p)
        abort();
    p->limit = 100;
    p->door = storm ? REPORT_HELD : REPORT_OPEN;
    if (storm)
        must(report_set(&p->reason, "HTTP 402: balance too low"));
}

static void make_worker(struct report *r, const char *name, int64_t pid, int64_t seen, int64_t air)
{
    struct report_worker *w = report_add_worker(r, name, "sms-1.example", "0.1.0");

    if (!w)
        abort();
    w->pid = pid;
    w->seen_ago_ms = seen;
    w->in_air = air;
    w->self = r->n_workers == 1;
}

static void make_report(const struct driver *d, struct report *r)
{
    double t = ev_time() - d->began;
    bool storm = strcmp(d->scene, "storm") == 0, down = strcmp(d->scene, "down") == 0;

    report_init(r);
    must(report_set(&r->name, "w1"));
    must(report_set(&r->host, "sms-1.example"));
    must(report_set(&r->version, "0.1.0"));
    r->pid = 4711;
    r->up_ms = 7260000 + (int64_t)(t * 1000);
    r->db_up = !down;
    r->db_since_ms = down ? 42000 : 7259000;
    r->schema_version = r->schema_wanted = 7;
    if (strcmp(d->scene, "empty") == 0)
        return;
    make_counts(r, d->scene, t);
    make_providers(r, d->scene, t);
    make_worker(r, "w1", 4711, 200, 1080);
    make_worker(r, "w2", 4712, storm ? 94000 : 310, 0);
    for (int i = 0; i < 300; i++)
        histogram_add_us(&r->otp, 2000 + i * 37 + (storm && i > 200 ? 4000000 : 0));
    r->in_air = 1080;
    r->in_air_limit = 1500;
    r->last_claim_ago_ms = down ? 43000 : 80;
    r->last_settle_ago_ms = down ? 43000 : 6;
    r->last_sweep_ago_ms = 900;
    r->unsettled = down ? 730 : 14;
    r->oldest_unsettled_ms = down ? 42800 : 6;
    r->counts_ago_ms = down ? 43100 : 400;
    r->live_tuples = 4000000;
    r->dead_tuples = storm ? 610000 : 3100;
    r->oldest_snapshot_ms = storm ? 1260000 : 40;
    r->oldest_snapshot_pid = storm ? 30211 : 0;
    r->duplicate_suspects = storm ? 1 : 0;
    if (down)
        must(report_set(&r->db_error, "could not connect to 10.0.0.5: connection refused"));
}

/* ---- routes ---- */

static void on_page(void *arg, const struct serve_request *req, struct serve_reply *reply)
{
    (void)arg;
    (void)req;
    must(serve_page(web_index, web_index_len, reply));
}

static void on_metrics(void *arg, const struct serve_request *req, struct serve_reply *reply)
{
    struct report r;

    (void)req;
    make_report(arg, &r);
    reply->status = 200;
    reply->content_type = REPORT_METRICS_TYPE;
    reply->body = report_metrics(&r);
    report_done(&r);
}

static void on_status(void *arg, const struct serve_request *req, struct serve_reply *reply)
{
    struct report r;

    (void)req;
    make_report(arg, &r);
    reply->status = 200;
    reply->content_type = REPORT_JSON_TYPE;
    reply->body = report_json(&r);
    report_done(&r);
}

static void on_health(void *arg, const struct serve_request *req, struct serve_reply *reply)
{
    struct report_limits limits = {.claim_age_ms = 5000, .unsettled_age_ms = 30000};
    struct report r;

    make_report(arg, &r);
    reply->status = strcmp(req->path, "/healthz") == 0 ? report_health(&r, &limits, &reply->body)
                                                       : report_ready(&r, &reply->body);
    reply->content_type = REPORT_JSON_TYPE;
    report_done(&r);
}

static void on_echo(void *arg, const struct serve_request *req, struct serve_reply *reply)
{
    const char *q = serve_query(req, "q"), *h = serve_header(req, "X-Mark");

    (void)arg;
    reply->status = 201;
    reply->headers[0].name = "X-Query";
    reply->headers[0].value = q ? q : "absent";
    reply->headers[1].name = "X-Mark";
    reply->headers[1].value = h ? h : "absent";
    reply->body_len = req->body_len;
    reply->body = req->body_len ? malloc(req->body_len) : NULL;
    if (reply->body)
        memcpy(reply->body, req->body, req->body_len);
}

static void on_loops(void *arg, const struct serve_request *req, struct serve_reply *reply)
{
    const struct driver *d = arg;

    (void)req;
    reply->status = 200;
    if (asprintf(&reply->body, "%" PRIu64 "\n", d->turns) < 0)
        abort();
}

static void answer(struct later *l)
{
    struct serve_reply reply = {.status = 200};
    char *body = NULL;
    int n = asprintf(&body, "%s %s %.*s", l->path, l->target, (int)l->body_len,
                     l->body_len ? (const char *)l->body : "");

    if (n < 0)
        abort();
    reply.body = body;
    reply.body_len = (size_t)n;
    serve_answer(l->answer, &reply);
    free(l);
}

static void on_late(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    answer(w->data);
}

static void on_lost(void *arg)
{
    struct later *l = arg;

    ev_timer_stop(l->d->loop, &l->timer);
    free(l);
}

static void on_later(void *arg, const struct serve_request *req, struct serve_reply *reply)
{
    const char *ms = serve_query(req, "ms");
    struct driver *d = arg;
    struct later *l = calloc(1, sizeof(*l));

    (void)reply;
    if (!l)
        abort();
    *l = (struct later){.d = d,
                        .path = req->path,
                        .target = req->target,
                        .body = req->body,
                        .body_len = req->body_len};
    ev_timer_init(&l->timer, on_late, ms ? (double)strtoul(ms, NULL, 10) / 1000 : 0., 0.);
    l->timer.data = l;
    l->answer = serve_defer(req, ms ? on_lost : NULL, l);
    if (ms) {
        ev_timer_start(d->loop, &l->timer);
    } else {
        l->next = d->laters;
        d->laters = l;
    }
}

static void on_release(struct ev_loop *loop, ev_timer *w, int events)
{
    struct driver *d = w->data;

    (void)loop;
    (void)events;
    while (d->laters) {
        struct later *l = d->laters;

        d->laters = l->next;
        answer(l);
    }
}

static void on_let_go(void *arg, const struct serve_request *req, struct serve_reply *reply)
{
    static ev_timer timer;
    struct driver *d = arg;

    (void)req;
    ev_timer_init(&timer, on_release, 0., 0.);
    timer.data = d;
    ev_timer_start(d->loop, &timer);
    reply->status = 200;
}

static const struct serve_route routes[] = {
    {"/", SERVE_GET, false, on_page, 0},
    {"/metrics", SERVE_GET, false, on_metrics, 0},
    {"/healthz", SERVE_GET, false, on_health, 0},
    {"/readyz", SERVE_GET, false, on_health, 0},
    {"/api/status", SERVE_GET, true, on_status, 0},
    {"/echo", SERVE_POST, true, on_echo, 0},
    {"/loops", SERVE_GET, false, on_loops, 0},
    {"/later/", SERVE_GET | SERVE_POST, false, on_later, 5000},
    {"/release", SERVE_GET, false, on_let_go, 0},
};

/* ---- life ---- */

static void on_signal(struct ev_loop *loop, ev_signal *w, int events)
{
    (void)w;
    (void)events;
    ev_break(loop, EVBREAK_ALL);
}

static void on_turn(struct ev_loop *loop, ev_prepare *w, int events)
{
    (void)loop;
    (void)events;
    ((struct driver *)w->data)->turns++;
}

static unsigned number(const char *text)
{
    return (unsigned)strtoul(text, NULL, 10);
}

static int options(int argc, char **argv, struct serve_options *opt, struct driver *d)
{
    static const struct option table[] = {{"listen", required_argument, NULL, 'l'},
                                          {"token", required_argument, NULL, 't'},
                                          {"connections", required_argument, NULL, 'c'},
                                          {"per-address", required_argument, NULL, 'p'},
                                          {"timeout", required_argument, NULL, 's'},
                                          {"request-s", required_argument, NULL, 'r'},
                                          {"body-max", required_argument, NULL, 'b'},
                                          {"bodies-max", required_argument, NULL, 'B'},
                                          {"scene", required_argument, NULL, 'n'},
                                          {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        switch (c) {
        case 'l':
            opt->listen = optarg;
            break;
        case 't':
            opt->token = optarg;
            break;
        case 'c':
            opt->connections = number(optarg);
            break;
        case 'p':
            opt->per_address = number(optarg);
            break;
        case 's':
            opt->timeout_s = number(optarg);
            break;
        case 'r':
            opt->request_s = number(optarg);
            break;
        case 'B':
            opt->bodies_max = number(optarg);
            break;
        case 'b':
            opt->body_max = number(optarg);
            break;
        case 'n':
            d->scene = optarg;
            break;
        default:
            return -1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct driver d = {.scene = "calm"};
    struct serve_options opt = {.listen = "127.0.0.1:0"};
    struct err err = ERR_INIT;
    struct serve *s;
    ev_signal term;
    ev_prepare turn;

    if (options(argc, argv, &opt, &d) < 0)
        return 2;
    d.loop = ev_default_loop(EVFLAG_AUTO);
    d.began = ev_time();
    if (serve_new(d.loop, &opt, routes, sizeof(routes) / sizeof(routes[0]), &d, &s, &err) < 0) {
        fprintf(stderr, "%s\n", err_text(&err));
        err_done(&err);
        return 1;
    }
    ev_signal_init(&term, on_signal, SIGTERM);
    ev_signal_start(d.loop, &term);
    ev_prepare_init(&turn, on_turn);
    turn.data = &d;
    ev_prepare_start(d.loop, &turn);
    printf("{\"port\": %d, \"address\": \"%s\"}\n", serve_port(s), serve_address(s));
    fflush(stdout);
    ev_run(d.loop, 0);
    serve_free(s);
    ev_loop_destroy(d.loop);
    return 0;
}
