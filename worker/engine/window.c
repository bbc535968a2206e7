/* window.c - what can be seen from outside: /metrics, /healthz, /readyz, the page. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/engine/internal.h"
#include "worker/io/clock.h"
#include "worker/io/log.h"
#include "worker/web/page.h"

enum {
    CALLBACK_MAX = 256 * 1024,
    /* Vendors call from few addresses, often through one proxy of ours. */
    RECEIPT_CONNECTIONS = 512,
    RECEIPT_PER_ADDRESS = 384,
};

static void add_vendor(struct engine *e, const struct vendor *v, int64_t now)
{
    struct report_provider *p =
        report_add_provider(&e->report, v->conf->name, plugin_name(v->plugin));
    const struct report_receipts *receipts;

    if (!p)
        return;
    p->door = vendor_door(v, now);
    if (p->door != REPORT_OPEN) {
        report_set(&p->reason, vendor_shut_why(v, now));
        p->until_ms = v->breaker.open_until_ms > now ? v->breaker.open_until_ms - now : 0;
    }
    p->in_air = v->in_air;
    p->limit = v->conf->in_flight;
    p->outcomes = v->outcomes;
    p->call = v->call;
    p->findings = v->findings;
    p->possible_duplicates = v->possible_duplicates;
    receipts = receipts_count(e, v->conf->name);
    if (receipts)
        p->receipts = *receipts;
}

static int64_t age(int64_t at, int64_t now)
{
    return at > 0 ? now - at : AGE_NONE;
}

/* A copy in which moments became ages. Lists are lent by the engine's own report. */
static void snapshot(struct engine *e, struct report *s)
{
    int64_t now = clock_boot_ms();
    struct report *r = &e->report;

    r->draining = e->draining;
    r->in_air = e->in_air;
    r->in_air_limit = e->setup.config->in_flight;
    r->unsettled = (int64_t)(e->sent.n + e->ended.n + e->storing);
    r->oldest_unsettled_ms = r->unsettled > 0 ? age(e->unsettled_since, now) : AGE_NONE;
    r->clock_skew_ms = e->clock_skew_ms;
    r->claim_not_wanted = !claim_wanted(e);
    r->cautious = e->cautious;
    report_clear(r, REPORT_PROVIDERS);
    for (size_t i = 0; i < e->setup.n; i++)
        add_vendor(e, e->setup.vendors[i], now);
    *s = *r;
    s->up_ms = age(r->up_ms, now);
    s->last_claim_ago_ms = age(r->last_claim_ago_ms, now);
    s->last_settle_ago_ms = age(r->last_settle_ago_ms, now);
    s->last_sweep_ago_ms = age(r->last_sweep_ago_ms, now);
    s->db_since_ms = age(r->db_since_ms, now);
    s->counts_ago_ms = age(r->counts_ago_ms, now);
}

static void on_metrics(void *arg, const struct serve_request *req, struct serve_reply *reply)
{
    struct report s;

    (void)req;
    snapshot(arg, &s);
    reply->status = 200;
    reply->content_type = REPORT_METRICS_TYPE;
    reply->body = report_metrics(&s);
}

static void on_status(void *arg, const struct serve_request *req, struct serve_reply *reply)
{
    struct report s;

    (void)req;
    snapshot(arg, &s);
    reply->status = 200;
    reply->content_type = REPORT_JSON_TYPE;
    reply->body = report_json(&s);
}

static void on_healthz(void *arg, const struct serve_request *req, struct serve_reply *reply)
{
    struct engine *e = arg;
    struct report_limits limits = {.claim_age_ms = 2 * e->setup.config->poll_ms + 10000,
                                   .unsettled_age_ms = engine_lease_ms(e)};
    struct report s;

    (void)req;
    snapshot(e, &s);
    reply->content_type = REPORT_JSON_TYPE;
    reply->status = report_health(&s, &limits, &reply->body);
}

static void on_readyz(void *arg, const struct serve_request *req, struct serve_reply *reply)
{
    struct report s;

    (void)req;
    snapshot(arg, &s);
    reply->content_type = REPORT_JSON_TYPE;
    reply->status = report_ready(&s, &reply->body);
}

static void on_page(void *arg, const struct serve_request *req, struct serve_reply *reply)
{
    (void)arg;
    (void)req;
    serve_page(web_index, web_index_len, reply);
}

static const struct serve_route routes[] = {
    {"/", SERVE_GET, false, on_page,
     0}, /* figures come from /api/status; the page asks for a token */
    {"/api/status", SERVE_GET, true, on_status, 0},
    {"/metrics", SERVE_GET, false, on_metrics, 0},
    {"/healthz", SERVE_GET, false, on_healthz, 0},
    {"/readyz", SERVE_GET, false, on_readyz, 0},
    {"/receipts/", SERVE_GET | SERVE_POST, false, receipts_serve, CALLBACK_MAX},
};

int window_open(struct engine *e, struct err *err)
{
    const struct config *c = e->setup.config;
    struct serve_options options = {.listen = c->listen, .token = c->admin_token};
    char host[256] = "";
    int rc;

    gethostname(host, sizeof(host) - 1);
    report_set(&e->report.host, host);
    report_set(&e->report.version, POSTRIDER_VERSION);
    e->report.pid = getpid();
    e->report.up_ms = clock_boot_ms(); /* an absolute time; aged when reported */
    rc = receipts_open(e);
    if (rc < 0 || !c->listen)
        return rc;
    for (size_t i = 0; i < c->providers_count; i++) {
        if (c->providers[i].receipt_token) {
            options.connections = RECEIPT_CONNECTIONS;
            options.per_address = RECEIPT_PER_ADDRESS;
        }
    }
    rc = serve_new(e->loop, &options, routes, sizeof(routes) / sizeof(*routes), e, &e->serve, err);
    if (rc == 0)
        log_event(LOG_LEVEL_INFO, "listening", "address=%s", serve_address(e->serve));
    return rc;
}

void window_close(struct engine *e)
{
    e->serve = serve_free(e->serve);
    receipts_close(e);
}
