/* receive.c - callbacks of vendors: who calls, what it says; stored in receive_store.c. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "worker/core/query.h"
#include "worker/engine/receive.h"
#include "worker/io/clock.h"
#include "worker/io/log.h"

enum {
    WAITING_MAX = 2000, /* callbacks; beyond, vendors are told to come again */
    HEADERS_MAX = 100,
    TELL_EVERY_MS = 10000,
};

static const char path_begin[] = "/receipts/";

/* ---- counters ---- */

static struct receipt_count *count_of(struct receipts *rs, const char *provider)
{
    struct receipt_count *c = rs->counts;

    while (c && strcmp(c->provider, provider) != 0)
        c = c->next;
    if (c)
        return c;
    c = calloc(1, sizeof(*c));
    if (c && !(c->provider = strdup(provider))) {
        free(c);
        return NULL;
    }
    if (c) {
        c->next = rs->counts;
        rs->counts = c;
    }
    return c;
}

struct report_receipts *receipts_count(struct engine *e, const char *provider)
{
    struct receipt_count *c = e->receipts ? count_of(e->receipts, provider) : NULL;

    return c ? &c->n : NULL;
}

/* A flood of forgeries is one line now and then. */
static void tell(struct receipts *rs, const char *provider, bool refused, const char *why)
{
    struct receipt_count *c = count_of(rs, provider);
    struct telling *t = c ? (refused ? &c->refused : &c->unreadable) : NULL;
    int64_t now = clock_boot_ms();

    if (!t)
        return;
    t->untold++;
    if (t->told_ms && now - t->told_ms < TELL_EVERY_MS)
        return;
    log_event(LOG_LEVEL_WARN, refused ? "callback_refused" : "callback_unreadable",
              "provider=%s n=%llu why=%s", provider, (unsigned long long)t->untold, why);
    t->told_ms = now;
    t->untold = 0;
}

/* ---- whose call it is ---- */

static bool takes_receipts(const struct engine *e, const struct vendor *v)
{
    return e->serve && e->setup.config->public_url && v->conf->receipt_token &&
           plugin_takes_receipts(v->plugin);
}

char *receipt_callback_url(const struct engine *e, const struct vendor *v, const char *message_id)
{
    const char *base = e->setup.config->public_url;
    char *url = NULL;
    size_t len;

    if (!takes_receipts(e, v))
        return NULL;
    len = strlen(base);
    while (len > 0 && base[len - 1] == '/')
        len--;
    if (asprintf(&url, "%.*s%s%s/%s?k=%s", (int)len, base, path_begin, v->conf->name,
                 v->conf->receipt_token, message_id) < 0)
        return NULL;
    return url;
}

/* "/receipts/NAME/TOKEN". Nobody learns from the time or the answer which of the two is wrong. */
static struct vendor *vendor_called(const struct engine *e, const char *path)
{
    const char *name = path + sizeof(path_begin) - 1, *slash = strchr(name, '/');
    struct vendor *found = NULL;

    if (!slash)
        return NULL;
    for (size_t i = 0; i < e->setup.n; i++) {
        struct vendor *v = e->setup.vendors[i];

        if (strlen(v->conf->name) == (size_t)(slash - name) &&
            strncmp(v->conf->name, name, (size_t)(slash - name)) == 0 && takes_receipts(e, v))
            found = v;
    }
    if (!serve_secret_equal(found ? found->conf->receipt_token : "nobody's token", slash + 1))
        return NULL;
    return found;
}

/* ---- what it says ---- */

struct headers {
    struct provider_header list[HEADERS_MAX];
    size_t n;
    bool no_memory;
};

static void add_header(void *arg, const char *name, const char *value)
{
    struct headers *h = arg;
    char *lower;

    if (h->n == HEADERS_MAX)
        return;
    lower = strdup(name);
    if (!lower) {
        h->no_memory = true;
        return;
    }
    for (char *c = lower; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    h->list[h->n++] = (struct provider_header){lower, value};
}

static void headers_done(struct headers *h)
{
    for (size_t i = 0; i < h->n; i++)
        free((char *)(uintptr_t)h->list[i].name);
}

static bool is_form(const struct serve_request *req)
{
    static const char type[] = "application/x-www-form-urlencoded";
    const char *given = serve_header(req, "Content-Type");

    return given && strncasecmp(given, type, sizeof(type) - 1) == 0 &&
           (given[sizeof(type) - 1] == '\0' || strchr("; \t", given[sizeof(type) - 1]));
}

/* Fills what the parts of a call are made of, and asks the plugin. */
static int read_call(const struct engine *e, const struct vendor *v,
                     const struct serve_request *req, struct plugin_events *events, struct err *err)
{
    const char *base = e->setup.config->public_url, *mark = strchr(req->target, '?');
    const char *query_text = mark ? mark + 1 : "";
    struct query query, form = {0};
    struct headers headers = {.n = 0};
    char *url = NULL;
    size_t len = strlen(base);
    int r = query_split(query_text, strlen(query_text), &query);

    if (r == 0 && req->body_len > 0 && is_form(req))
        r = query_split(req->body, req->body_len, &form);
    if (r == -E2BIG)
        r = -EBADMSG;
    while (len > 0 && base[len - 1] == '/')
        len--;
    if (r == 0 && asprintf(&url, "%.*s%s", (int)len, base, req->target) < 0) {
        url = NULL;
        r = -ENOMEM;
    }
    serve_headers(req, add_header, &headers);
    if (r == 0 && headers.no_memory)
        r = -ENOMEM;
    if (r == 0) {
        struct provider_callback call = {.method = req->method == SERVE_POST ? "POST" : "GET",
                                         .url = url,
                                         .query = query.params,
                                         .query_count = query.count,
                                         .form = form.params,
                                         .form_count = form.count,
                                         .headers = headers.list,
                                         .headers_count = headers.n,
                                         .body = req->body ? req->body : "",
                                         .body_len = req->body_len,
                                         .now_ms = clock_real_ms()};

        r = plugin_read(v->plugin, &call, events, err);
    }
    free(url);
    headers_done(&headers);
    query_done(&query);
    query_done(&form);
    return r;
}

/* ---- answers ---- */

static void say(struct serve_reply *reply, unsigned status, const char *json)
{
    reply->status = status;
    reply->content_type = "application/json; charset=utf-8";
    reply->fixed = json;
    reply->fixed_len = strlen(json);
}

static void say_later(struct serve_reply *reply)
{
    say(reply, 503, "{\"error\":\"cannot be stored now: send it again\"}\n");
    reply->headers[0].name = "Retry-After";
    reply->headers[0].value = "10";
}

static void on_lost(void *arg)
{
    struct callback *cb = arg;

    cb->later = NULL;
}

static bool keep(struct receipts *rs, const struct vendor *v, const struct serve_request *req,
                 struct plugin_events *events)
{
    const char *mark = strchr(req->target, '?');
    struct callback *cb = calloc(1, sizeof(*cb));

    if (!cb || !(cb->provider = strdup(v->conf->name))) {
        free(cb);
        return false;
    }
    cb->method = req->method == SERVE_POST ? "POST" : "GET";
    cb->query = mark ? mark + 1 : "";
    cb->body = req->body;
    cb->body_len = req->body_len;
    cb->events = *events;
    *events = (struct plugin_events){0};
    if (cb->events.confirm)
        log_event(LOG_LEVEL_WARN, "receipts_confirm", "provider=%s url=%s hint=%s", cb->provider,
                  cb->events.confirm, "open this address once, then the vendor sends receipts");
    cb->later = serve_defer(req, on_lost, cb);
    receive_push(rs, cb);
    return true;
}

void receipts_serve(void *arg, const struct serve_request *req, struct serve_reply *reply)
{
    struct engine *e = arg;
    struct receipts *rs = e->receipts;
    struct vendor *v = vendor_called(e, req->path);
    struct report_receipts *n = v ? receipts_count(e, v->conf->name) : NULL;
    struct plugin_events events = {0};
    struct err err = ERR_INIT;
    int r;

    if (!v) {
        say(reply, 404, "{\"error\":\"no such page\"}\n");
        return;
    }
    if (!n || rs->waiting >= WAITING_MAX || !e->doors[DOOR_SETTLE].checked) {
        if (n)
            n->unstored++;
        say_later(reply); /* before any work is done for it */
        return;
    }
    r = read_call(e, v, req, &events, &err);
    if (r == -EACCES) {
        n->refused++;
        tell(rs, v->conf->name, true, err_text(&err));
        say(reply, 403, "{\"error\":\"the signature is missing or wrong\"}\n");
    } else if (r == -EBADMSG) {
        n->unreadable++;
        tell(rs, v->conf->name, false, err_text(&err));
        say(reply, 400, "{\"error\":\"this is no callback of this vendor\"}\n");
    } else if (r < 0 || !keep(rs, v, req, &events)) {
        n->unstored++;
        say_later(reply);
    }
    plugin_events_clear(&events);
    err_done(&err);
}

/* ---- life ---- */

static void on_gather(struct ev_loop *loop, struct ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    receive_flush(w->data);
}

static void on_look(struct ev_loop *loop, struct ev_timer *w, int events)
{
    struct receipts *rs = w->data;

    (void)loop;
    (void)events;
    receipts_apply(rs->engine);
}

int receipts_open(struct engine *e)
{
    struct receipts *rs = calloc(1, sizeof(*rs));

    if (!rs)
        return -ENOMEM;
    rs->engine = e;
    rs->tail = &rs->head;
    ev_timer_init(&rs->gather, on_gather, 0., 0.);
    ev_timer_init(&rs->look, on_look, 1., 1.);
    ev_timer_init(&rs->soon, on_look, 0., 0.);
    rs->gather.data = rs->look.data = rs->soon.data = rs;
    ev_timer_start(e->loop, &rs->look);
    e->receipts = rs;
    return 0;
}

static void free_list(struct callback *cb)
{
    while (cb) {
        struct callback *next = cb->next;

        callback_free(cb);
        cb = next;
    }
}

void receipts_close(struct engine *e)
{
    struct receipts *rs = e->receipts;

    if (!rs)
        return;
    ev_timer_stop(e->loop, &rs->gather);
    ev_timer_stop(e->loop, &rs->look);
    ev_timer_stop(e->loop, &rs->soon);
    free_list(rs->head); /* nobody answered these vendors: they send again */
    free_list(rs->storing);
    while (rs->counts) {
        struct receipt_count *c = rs->counts;

        rs->counts = c->next;
        free(c->provider);
        free(c);
    }
    free(rs);
    e->receipts = NULL;
}
