/* vendor.c - one provider of one configuration: opened, asked whether it may be called, and its
 * requests and replies translated between plugin and HTTP. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/internal.h"
#include "worker/io/clock.h"

enum { REPLY_CAP = 1024 * 1024 }; /* a page of a look-up is longer than any answer to a send */

struct vendor *vendor_free(struct vendor *v)
{
    if (v) {
        http_pool_free(v->pool);
        plugin_close(v->plugin);
        login_done(&v->login);
        free(v);
    }
    return NULL;
}

int vendor_open(struct engine *e, const struct config *config, const struct config_provider *conf,
                struct vendor **ret, struct err *err)
{
    struct http_options options = {.max_calls = (unsigned)conf->in_flight + 1, /* a login */
                                   .body_cap = REPLY_CAP,
                                   .idle_ms = conf->idle_ms,
                                   .ca_file = conf->ca_file,
                                   .between = engine_between,
                                   .between_arg = e};
    struct vendor *v = calloc(1, sizeof(*v));
    int rc;

    if (!v)
        return -ENOMEM;
    v->conf = conf;
    queue_init(&v->waiting);
    breaker_init(&v->breaker);
    rc = plugin_open(NULL, conf->plugin, conf->settings_json, &v->plugin, err);
    if (rc == 0)
        rc = config_check_plugin(config, conf, plugin_caps(v->plugin), err);
    if (rc == 0 && e->loop)
        rc = http_pool_new(e->loop, &options, &v->pool, err);
    if (rc < 0) {
        err_prefix(err, "provider \"%s\"", conf->name);
        vendor_free(v);
        return rc;
    }
    v->cap = plugin_capability(v->plugin, conf->timeout_ms);
    *ret = v;
    return 0;
}

/* A reload keeps what was learnt about the vendor, not how it is spoken to. */
void vendor_inherit(struct vendor *v, const struct vendor *old)
{
    v->breaker = old->breaker;
    v->outcomes = old->outcomes;
    v->call = old->call;
    v->possible_duplicates = old->possible_duplicates;
    v->findings = old->findings;
}

bool vendor_keeps_ids(const struct vendor *v)
{
    const struct provider_caps *caps = plugin_caps(v->plugin);

    return caps->receipts_by_id || caps->several_ids || caps->ask == PROVIDER_ASK_BY_TEXT;
}

/* Where answers may be asked for, a sixteenth of the slots is kept free of sends: or a campaign
 * would put off every look-up to its end. */
unsigned vendor_slots(const struct vendor *v)
{
    unsigned all = (unsigned)v->conf->in_flight;
    unsigned kept = v->cap.asking == ASKING_NONE ? 0 : all / 16;

    return all - (v->cap.asking != ASKING_NONE && kept == 0 && all > 1 ? 1 : kept);
}

unsigned vendor_allowed(const struct vendor *v, int64_t now)
{
    return login_ready(v, now) ? breaker_allowed(&v->breaker, now) : 0;
}

enum report_door vendor_door(const struct vendor *v, int64_t now)
{
    if (!login_ready(v, now))
        return REPORT_HELD;
    if (v->breaker.door == BREAKER_CLOSED)
        return REPORT_OPEN;
    return v->breaker.why == OUTCOME_HELD ? REPORT_HELD : REPORT_PAUSED;
}

const char *vendor_shut_why(const struct vendor *v, int64_t now)
{
    return login_ready(v, now) ? outcome_name(v->breaker.why) : "no login";
}

struct http_request vendor_request(const struct vendor *v, const struct plugin_request *built)
{
    return (struct http_request){.method = built->method,
                                 .url = built->url,
                                 .headers = built->headers,
                                 .headers_count = built->headers_count,
                                 .body = built->body,
                                 .body_len = built->body_len,
                                 .connect_timeout_ms = v->conf->connect_timeout_ms,
                                 .timeout_ms = v->conf->timeout_ms,
                                 .sigv4 = built->sigv4,
                                 .sigv4_userpwd = built->sigv4_userpwd};
}

struct provider_reply vendor_reply(const struct http_result *r)
{
    _Static_assert(sizeof(struct provider_header) == sizeof(struct http_header),
                   "headers are handed through");
    return (struct provider_reply){.status = r->status,
                                   .complete = r->complete,
                                   .headers =
                                       (const struct provider_header *)(const void *)r->headers,
                                   .headers_count = r->headers_count,
                                   .body = r->body,
                                   .body_len = r->body_len};
}
