#include "worker/io/serve.h"

#include <errno.h>
#include <ev.h>
#include <microhttpd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "worker/io/serve_internal.h"

#define POLICY_NOTHING                                                                             \
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
#define POLICY_PAGE                                                                                \
    "; connect-src 'self'; img-src data:; script-src 'nonce-%s'; style-src 'nonce-%s'"

enum {
    DEFAULT_CONNECTIONS = 64,
    DEFAULT_PER_ADDRESS = 32,
    DEFAULT_TIMEOUT_S = 15,
    DEFAULT_BODY_MAX = 64 * 1024,
    CONNECTION_MEMORY = 16 * 1024, /* bounds a request's line and headers */
    BACKLOG = 64
};

struct serve {
    struct ev_loop *loop;
    ev_io io;
    ev_timer timer;
    struct MHD_Daemon *daemon;
    const struct serve_route *routes;
    size_t n_routes;
    void *arg;
    char *token; /* NULL = none configured */
    size_t body_max;
    bool closed; /* a connection ended in this MHD_run */
    int port;
    char *address;
};

/* One request, from its headers to its answer. */
struct call {
    const struct serve_route *route;
    unsigned method;
    char *body;
    size_t len, size;
};

/* ---- questions a handler may ask ---- */

const char *serve_query(const struct serve_request *req, const char *name)
{
    const char *value = NULL;
    size_t len;

    if (MHD_lookup_connection_value_n(req->priv_, MHD_GET_ARGUMENT_KIND, name, strlen(name), &value,
                                      &len) != MHD_YES)
        return NULL;
    return value ? value : "";
}

const char *serve_header(const struct serve_request *req, const char *name)
{
    return MHD_lookup_connection_value(req->priv_, MHD_HEADER_KIND, name);
}

/* ---- answers ---- */

/* Sets a header, in place of one of that name. */
static void put_header(struct MHD_Response *r, const char *name, const char *value)
{
    const char *old = MHD_get_response_header(r, name);

    if (old)
        MHD_del_response_header(r, name, old);
    MHD_add_response_header(r, name, value);
}

static void put_security(struct MHD_Response *r, const struct serve_reply *reply)
{
    char policy[sizeof(POLICY_NOTHING) + sizeof(POLICY_PAGE) + 2 * sizeof(reply->nonce)];
    int n = snprintf(policy, sizeof(policy), "%s", POLICY_NOTHING);

    if (reply->nonce[0])
        snprintf(policy + n, sizeof(policy) - (size_t)n, POLICY_PAGE, reply->nonce, reply->nonce);
    put_header(r, "Content-Security-Policy", policy);
    put_header(r, "X-Content-Type-Options", "nosniff");
    put_header(r, "Cache-Control", "no-store");
    put_header(r, "Referrer-Policy", "no-referrer");
}

/* Takes reply->body. */
static enum MHD_Result answer_take(struct MHD_Connection *c, struct serve_reply *reply)
{
    struct MHD_Response *r;
    enum MHD_Result queued;

    if (reply->fixed)
        r = MHD_create_response_from_buffer(reply->fixed_len, (void *)(uintptr_t)reply->fixed,
                                            MHD_RESPMEM_PERSISTENT);
    else if (reply->body)
        r = MHD_create_response_from_buffer(reply->body_len ? reply->body_len : strlen(reply->body),
                                            reply->body, MHD_RESPMEM_MUST_FREE);
    else
        r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (!r) {
        free(reply->body);
        return MHD_NO; /* closes the connection: out of memory */
    }
    put_security(r, reply);
    put_header(r, "Content-Type",
               reply->content_type ? reply->content_type : "text/plain; charset=utf-8");
    for (size_t i = 0; i < SERVE_REPLY_HEADERS && reply->headers[i].name; i++)
        put_header(r, reply->headers[i].name, reply->headers[i].value);
    queued =
        MHD_queue_response(c, reply->status ? reply->status : MHD_HTTP_INTERNAL_SERVER_ERROR, r);
    MHD_destroy_response(r);
    return queued;
}

static enum MHD_Result refuse(struct MHD_Connection *c, unsigned status,
                              const struct serve_route *route)
{
    struct serve_reply reply = {.status = status,
                                .content_type = "application/json; charset=utf-8"};
    const char *json;

    switch (status) {
    case MHD_HTTP_UNAUTHORIZED:
        json = "{\"error\":\"the admin token is needed\"}\n";
        reply.headers[0].name = "WWW-Authenticate";
        reply.headers[0].value = "Bearer realm=\"postrider\"";
        break;
    case MHD_HTTP_FORBIDDEN:
        json = "{\"error\":\"without an admin token this answers only to this host itself\","
               "\"hint\":\"set admin_token in the configuration\"}\n";
        break;
    case MHD_HTTP_NOT_FOUND:
        json = "{\"error\":\"no such page\"}\n";
        break;
    case MHD_HTTP_METHOD_NOT_ALLOWED:
        json = "{\"error\":\"this page does not take this method\"}\n";
        reply.headers[0].name = "Allow";
        reply.headers[0].value = !(route->methods & SERVE_POST)  ? "GET, HEAD"
                                 : !(route->methods & SERVE_GET) ? "POST"
                                                                 : "GET, HEAD, POST";
        break;
    default:
        json = "{\"error\":\"the request body is too long\"}\n";
        break;
    }
    reply.fixed = json;
    reply.fixed_len = strlen(json);
    return answer_take(c, &reply);
}

int serve_page(const void *html, size_t len, struct serve_reply *reply)
{
    static const char mark[] = "{{nonce}}";
    unsigned char random[16];
    const char *from = html, *end = from + len;
    char *out;

    _Static_assert(sizeof(reply->nonce) == 2 * sizeof(random) + 1, "a nonce is 16 bytes in hex");
    if (getrandom(random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random))
        return -EIO;
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(reply->nonce + 2 * i, 3, "%02x", random[i]);
    /* The mark is 9 bytes, the nonce 32: no page can need more than four times its room. */
    reply->body = out = malloc(4 * len + 1);
    if (!out)
        return -ENOMEM;
    while (from < end) {
        const char *hit = memmem(from, (size_t)(end - from), mark, sizeof(mark) - 1);
        size_t plain = (size_t)((hit ? hit : end) - from);

        memcpy(out, from, plain);
        out += plain;
        from += plain;
        if (hit) {
            memcpy(out, reply->nonce, 2 * sizeof(random));
            out += 2 * sizeof(random);
            from += sizeof(mark) - 1;
        }
    }
    *out = '\0';
    reply->body_len = (size_t)(out - reply->body);
    reply->content_type = "text/html; charset=utf-8";
    reply->status = MHD_HTTP_OK;
    return 0;
}

/* ---- a request's way ---- */

static unsigned method_read(const char *method)
{
    if (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0)
        return SERVE_GET;
    return strcmp(method, "POST") == 0 ? SERVE_POST : 0;
}

static const struct serve_route *route_find(const struct serve *s, const char *path)
{
    for (size_t i = 0; i < s->n_routes; i++)
        if (strcmp(s->routes[i].path, path) == 0)
            return &s->routes[i];
    return NULL;
}

/* A declared length is refused before the body is read; libmicrohttpd has already refused one
 * that is no number. */
static bool body_declared_too_long(const struct serve *s, struct MHD_Connection *c)
{
    const char *text = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length");

    return text && strtoull(text, NULL, 10) > s->body_max;
}

static bool body_add(struct call *call, const char *data, size_t len)
{
    if (len > call->size - call->len) {
        size_t size = (call->len + len) * 2;
        char *body = realloc(call->body, size);

        if (!body)
            return false;
        call->body = body;
        call->size = size;
    }
    memcpy(call->body + call->len, data, len);
    call->len += len;
    return true;
}

static enum MHD_Result request_begin(struct serve *s, struct MHD_Connection *c, const char *path,
                                     const char *method, void **ret_call)
{
    const struct serve_route *route = route_find(s, path);
    unsigned m = method_read(method), no;
    struct call *call;

    if (!route)
        return refuse(c, MHD_HTTP_NOT_FOUND, NULL);
    if (!(route->methods & m))
        return refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, route);
    no = route->guarded ? serve_guard(s->token, c, m) : 0;
    if (no)
        return refuse(c, no, route);
    if (body_declared_too_long(s, c))
        return refuse(c, MHD_HTTP_CONTENT_TOO_LARGE, route);
    call = calloc(1, sizeof(*call));
    if (!call)
        return MHD_NO;
    call->route = route;
    call->method = m;
    *ret_call = call;
    return MHD_YES;
}

static enum MHD_Result request_answer(struct serve *s, struct MHD_Connection *c, const char *path,
                                      struct call *call)
{
    struct serve_request req = {.method = call->method, .path = path, .priv_ = c};
    struct serve_reply reply = {0};

    if (call->method == SERVE_POST) {
        req.body = call->body;
        req.body_len = call->len;
    }
    call->route->handle(s->arg, &req, &reply);
    return answer_take(c, &reply);
}

/* Called once for the headers, once for each piece of a body, and once at the end. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *io_len, void **io_call)
{
    struct serve *s = arg;
    struct call *call = *io_call;

    (void)version;
    if (!call)
        return request_begin(s, c, path, method, io_call);
    if (*io_len == 0)
        return request_answer(s, c, path, call);
    if (*io_len > s->body_max - call->len) /* it came in chunks and declared nothing */
        return MHD_NO;
    if (!body_add(call, data, *io_len))
        return MHD_NO;
    *io_len = 0;
    return MHD_YES;
}

static void on_completed(void *arg, struct MHD_Connection *c, void **io_call,
                         enum MHD_RequestTerminationCode why)
{
    struct call *call = *io_call;

    (void)arg;
    (void)c;
    (void)why;
    if (call)
        free(call->body);
    free(call);
    *io_call = NULL;
}

/* ---- the loop ---- */

static void on_connection(void *arg, struct MHD_Connection *c, void **socket_context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct serve *s = arg;

    (void)c;
    (void)socket_context;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED)
        s->closed = true;
}

/* At its connection limit libmicrohttpd takes the listening socket out of its epoll set, and
 * puts it back only when a run begins: after a run in which a connection ended, another must
 * follow, or those who wait are not accepted until something else happens. */
static void run(struct serve *s)
{
    MHD_UNSIGNED_LONG_LONG ms;

    s->closed = false;
    MHD_run(s->daemon);
    ev_timer_stop(s->loop, &s->timer);
    if (s->closed)
        ms = 0;
    else if (MHD_get_timeout(s->daemon, &ms) != MHD_YES)
        return;
    ev_timer_set(&s->timer, (double)ms / 1000., 0.);
    ev_timer_start(s->loop, &s->timer);
}

static void on_io(struct ev_loop *loop, ev_io *w, int events)
{
    (void)loop;
    (void)events;
    run(w->data);
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    run(w->data);
}

/* ---- life ---- */

static unsigned or_default(unsigned n, unsigned otherwise)
{
    return n ? n : otherwise;
}

/* libmicrohttpd owns the listening socket from here on, success or not. */
static int daemon_start(struct serve *s, const struct serve_options *opt, int fd_take)
{
    const union MHD_DaemonInfo *info;

    s->daemon = MHD_start_daemon(
        MHD_USE_EPOLL, 0, NULL, NULL, on_request, s, MHD_OPTION_LISTEN_SOCKET, fd_take,
        MHD_OPTION_CONNECTION_LIMIT, or_default(opt->connections, DEFAULT_CONNECTIONS),
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, or_default(opt->per_address, DEFAULT_PER_ADDRESS),
        MHD_OPTION_CONNECTION_TIMEOUT, or_default(opt->timeout_s, DEFAULT_TIMEOUT_S),
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_STRICT_FOR_CLIENT,
        1, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, s, MHD_OPTION_END);
    if (!s->daemon)
        return -EIO;
    info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info)
        return -EIO;
    ev_io_init(&s->io, on_io, info->epoll_fd, EV_READ);
    ev_timer_init(&s->timer, on_timer, 0., 0.);
    s->io.data = s->timer.data = s;
    ev_io_start(s->loop, &s->io);
    run(s);
    return 0;
}

static void serve_freep(struct serve **s)
{
    *s = serve_free(*s);
}

int serve_new(struct ev_loop *loop, const struct serve_options *opt,
              const struct serve_route *routes, size_t n, void *arg, struct serve **ret_serve,
              struct err *err)
{
    CLEANUP(serve_freep) struct serve *s = calloc(1, sizeof(*s));
    CLEANUP(serve_close_fd) int fd = -1;
    int taken, r;

    if (!s)
        return -ENOMEM;
    s->loop = loop;
    s->routes = routes;
    s->n_routes = n;
    s->arg = arg;
    s->body_max = opt->body_max ? opt->body_max : DEFAULT_BODY_MAX;
    r = serve_set_token(s, opt->token);
    if (r < 0)
        return r;
    r = serve_listen(opt->listen, &fd, err);
    if (r < 0)
        return r;
    r = serve_listen_address(fd, &s->address, &s->port);
    if (r < 0)
        return err_set(err, r, "could not read the address of %s", opt->listen);
    taken = fd;
    fd = -1;
    r = daemon_start(s, opt, taken);
    if (r < 0)
        return err_set(err, r, "could not start the HTTP server on %s", opt->listen);
    *ret_serve = s;
    s = NULL;
    return 0;
}

int serve_port(const struct serve *s)
{
    return s->port;
}

const char *serve_address(const struct serve *s)
{
    return s->address;
}

int serve_set_token(struct serve *s, const char *token)
{
    char *copy = token && *token ? strdup(token) : NULL;

    if (token && *token && !copy)
        return -ENOMEM;
    free(s->token);
    s->token = copy;
    return 0;
}

struct serve *serve_free(struct serve *s)
{
    if (!s)
        return NULL;
    if (s->daemon) {
        ev_io_stop(s->loop, &s->io);
        ev_timer_stop(s->loop, &s->timer);
        MHD_stop_daemon(s->daemon);
    }
    free(s->token);
    free(s->address);
    free(s);
    return NULL;
}
