#include "worker/cli/vendor_call.h"

#include <errno.h>
#include <ev.h>
#include <stdlib.h>

#include "worker/core/err.h"
#include "worker/engine/config.h"
#include "worker/engine/plugin.h"

enum { REPLY_CAP = 1024 * 1024 };

struct vendor_line {
    const struct config_provider *conf;
    struct ev_loop *loop;
    struct http_pool *pool;
    http_done_fn *done;
    void *arg;
};

int vendor_line_open(const struct config_provider *conf, struct vendor_line **ret, struct err *err)
{
    struct http_options options = {
        .max_calls = 1, .body_cap = REPLY_CAP, .idle_ms = conf->idle_ms, .ca_file = conf->ca_file};
    struct vendor_line *line = calloc(1, sizeof(*line));
    int rc = line ? http_global_init(err) : -ENOMEM;

    if (rc == 0) {
        line->conf = conf;
        line->loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
        rc = line->loop ? http_pool_new(line->loop, &options, &line->pool, err) : -ENOMEM;
    }
    if (rc < 0) {
        vendor_line_close(line);
        return rc;
    }
    *ret = line;
    return 0;
}

struct vendor_line *vendor_line_close(struct vendor_line *line)
{
    if (line) {
        http_pool_free(line->pool);
        if (line->loop)
            ev_loop_destroy(line->loop);
        free(line);
    }
    return NULL;
}

static void on_end(void *arg, const struct http_result *r)
{
    struct vendor_line *line = arg;

    line->done(line->arg, r);
    ev_break(line->loop, EVBREAK_ALL);
}

int vendor_line_call(struct vendor_line *line, const struct plugin_request *built,
                     http_done_fn *done, void *arg, struct err *err)
{
    struct http_request request = {.method = built->method,
                                   .url = built->url,
                                   .headers = built->headers,
                                   .headers_count = built->headers_count,
                                   .body = built->body,
                                   .body_len = built->body_len,
                                   .connect_timeout_ms = line->conf->connect_timeout_ms,
                                   .timeout_ms = line->conf->timeout_ms,
                                   .sigv4 = built->sigv4,
                                   .sigv4_userpwd = built->sigv4_userpwd,
                                   .arg = line};
    int rc;

    line->done = done;
    line->arg = arg;
    rc = http_start(line->pool, &request, on_end, NULL, err);
    if (rc == 0)
        ev_run(line->loop, 0); /* ends in on_end */
    return rc;
}

struct provider_reply vendor_line_reply(const struct http_result *r)
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
