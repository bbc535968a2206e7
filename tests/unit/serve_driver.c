/* serve_driver - the status server with a made-up report behind it, for tests/e2e/test_serve.py
 * and for looking at the page.
 *
 *   serve_driver [--listen HOST:PORT] [--token T] [--connections N] [--per-address N]
 *                [--timeout S] [--body-max N] [--scene calm|storm|down|empty]
 *
 * Prints {"port": N, "address": "..."} and serves until SIGTERM: / /metrics /healthz /readyz,
 * guarded /api/status, and POST /echo (guarded: gives the body back). GET /loops counts turns of
 * the loop. */
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

static const struct serve_route routes[] = {
    {"/", SERVE_GET, false, on_page},
    {"/metrics", SERVE_GET, false, on_metrics},
    {"/healthz", SERVE_GET, false, on_health},
    {"/readyz", SERVE_GET, false, on_health},
    {"/api/status", SERVE_GET, true, on_status},
    {"/echo", SERVE_POST, true, on_echo},
    {"/loops", SERVE_GET, false, on_loops},
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
                                          {"body-max", required_argument, NULL, 'b'},
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
