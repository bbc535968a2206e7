#include "worker/io/serve.h"

#include <errno.h>
#include <ev.h>
#include <microhttpd.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "worker/io/serve_internal.h"

enum {
    DEFAULT_CONNECTIONS = 64,
    DEFAULT_PER_ADDRESS = 32,
    DEFAULT_TIMEOUT_S = 15,
    DEFAULT_REQUEST_S = 30,
    DEFAULT_BODY_MAX = 64 * 1024,
    DEFAULT_BODIES_MAX = 32 * 1024 * 1024,
    CONNECTION_MEMORY = 16 * 1024, /* bounds a request's line and headers */
    BACKLOG = 64
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

struct headers_visit {
    serve_header_fn *each;
    void *arg;
};

static enum MHD_Result on_header(void *arg, enum MHD_ValueKind kind, const char *name,
                                 const char *value)
{
    const struct headers_visit *visit = arg;

    (void)kind;
    visit->each(visit->arg, name, value ? value : "");
    return MHD_YES;
}

void serve_headers(const struct serve_request *req, serve_header_fn *each, void *arg)
{
    struct headers_visit visit = {each, arg};

    MHD_get_connection_values(req->priv_, MHD_HEADER_KIND, on_header, &visit);
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
    for (size_t i = 0; i < s->n_routes; i++) {
        const char *known = s->routes[i].path;
        size_t len = strlen(known);

        if (strcmp(known, path) == 0 ||
            (len > 1 && known[len - 1] == '/' && strncmp(known, path, len) == 0))
            return &s->routes[i];
    }
    return NULL;
}

/* What a declared length says before the body is read: 0, or the status to refuse with.
 * libmicrohttpd has already refused one that is no number. */
static unsigned body_declared(const struct serve *s, const struct serve_call *call)
{
    const char *text =
        MHD_lookup_connection_value(call->connection, MHD_HEADER_KIND, "Content-Length");
    unsigned long long len = text ? strtoull(text, NULL, 10) : 0;

    if (len > call->body_max)
        return MHD_HTTP_CONTENT_TOO_LARGE;
    return len > s->bodies_max - s->bodies ? MHD_HTTP_SERVICE_UNAVAILABLE : 0;
}

static bool body_add(struct serve *s, struct serve_call *call, const char *data, size_t len)
{
    if (len > call->size - call->len) {
        size_t size = (call->len + len) * 2;
        char *body;

        if (size > call->body_max)
            size = call->body_max; /* `len` fits: it was compared before */
        if (size - call->size > s->bodies_max - s->bodies)
            return false;
        body = realloc(call->body, size + 1);
        if (!body)
            return false;
        s->bodies += size - call->size;
        call->body = body;
        call->size = size;
    }
    memcpy(call->body + call->len, data, len);
    call->len += len;
    call->body[call->len] = '\0';
    return true;
}

static void call_free(struct serve_call *call)
{
    if (!call)
        return;
    call->serve->bodies -= call->size;
    serve_later_drop(call);
    free(call->body);
    free(call->target);
    free(call);
}

/* The request line is here: a call begins. What cannot be in a URL is encoded, so that `target` is
 * fit to be stored and shown. */
static void *on_target(void *arg, const char *target, struct MHD_Connection *c)
{
    static const char hex[] = "0123456789ABCDEF";
    struct serve_call *call = calloc(1, sizeof(*call));
    char *out;

    if (!call)
        return NULL;
    call->serve = arg;
    call->connection = c;
    call->target = out = malloc(3 * strlen(target) + 1);
    for (; out && *target; target++) {
        unsigned char b = (unsigned char)*target;

        if (b > 0x20 && b < 0x7f) {
            *out++ = (char)b;
        } else {
            *out++ = '%';
            *out++ = hex[b >> 4];
            *out++ = hex[b & 15];
        }
    }
    if (out)
        *out = '\0';
    call_free(serve_conn_begin(c, call));
    return call;
}

static enum MHD_Result request_begin(struct serve *s, struct serve_call *call, const char *path,
                                     const char *method)
{
    const struct serve_route *route = route_find(s, path);
    struct MHD_Connection *c = call->connection;
    unsigned m = method_read(method), no;

    if (!route)
        return serve_refuse(c, MHD_HTTP_NOT_FOUND, NULL);
    if (!(route->methods & m))
        return serve_refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, route);
    call->body_max = route->body_max ? route->body_max : s->body_max;
    no = route->guarded ? serve_guard(s->token, c, m) : 0;
    if (!no)
        no = body_declared(s, call);
    if (no)
        return serve_refuse(c, no, route);
    call->route = route;
    call->method = m;
    return MHD_YES;
}

static enum MHD_Result request_answer(struct serve *s, struct serve_call *call, const char *path)
{
    struct serve_request req = {.method = call->method,
                                .path = path,
                                .target = call->target,
                                .priv_ = call->connection,
                                .call_ = call};
    struct serve_reply reply = {0};

    serve_conn_whole(call->connection);
    if (call->method == SERVE_POST) {
        req.body = call->body ? call->body : "";
        req.body_len = call->len;
    }
    call->route->handle(s->arg, &req, &reply);
    return call->later.open ? MHD_YES : serve_answer_take(call->connection, &reply);
}

/* Called once for the headers, once for each piece of a body, once at the end, and once more when
 * a deferred answer is there. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *io_len, void **io_call)
{
    struct serve *s = arg;
    struct serve_call *call = *io_call;

    (void)c;
    (void)version;
    if (!call || !call->target)
        return MHD_NO; /* out of memory */
    if (!call->route)
        return request_begin(s, call, path, method);
    if (call->later.answered)
        return serve_later_take(call);
    if (*io_len == 0)
        return call->later.open ? MHD_YES : request_answer(s, call, path);
    if (*io_len > call->body_max - call->len) /* it came in chunks and declared nothing */
        return MHD_NO;
    if (!body_add(s, call, data, *io_len))
        return MHD_NO;
    *io_len = 0;
    return MHD_YES;
}

static void on_completed(void *arg, struct MHD_Connection *c, void **io_call,
                         enum MHD_RequestTerminationCode why)
{
    struct serve_call *left;

    (void)arg;
    (void)why;
    serve_conn_idle(c);
    left = serve_conn_begin(c, NULL);
    if (left != *io_call)
        call_free(left);
    call_free(*io_call);
    *io_call = NULL;
}

/* ---- the loop ---- */

static void on_connection(void *arg, struct MHD_Connection *c, void **socket_context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct serve *s = arg;

    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *socket_context = serve_conn_new(s, c);
    } else {
        s->closed = true;
        call_free(serve_conn_left(*socket_context));
        *socket_context = serve_conn_free(*socket_context);
    }
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
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, s,
        MHD_OPTION_LISTEN_SOCKET, fd_take, MHD_OPTION_CONNECTION_LIMIT,
        or_default(opt->connections, DEFAULT_CONNECTIONS), MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        or_default(opt->per_address, DEFAULT_PER_ADDRESS), MHD_OPTION_CONNECTION_TIMEOUT,
        or_default(opt->timeout_s, DEFAULT_TIMEOUT_S), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_MEMORY, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_URI_LOG_CALLBACK,
        on_target, s, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, s, MHD_OPTION_END);
    if (!s->daemon)
        return -EIO;
    info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info)
        return -EIO;
    ev_io_init(&s->io, on_io, info->epoll_fd, EV_READ);
    ev_timer_init(&s->timer, on_timer, 0., 0.);
    serve_conn_init(s, or_default(opt->request_s, DEFAULT_REQUEST_S));
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
    s->bodies_max = opt->bodies_max ? opt->bodies_max : DEFAULT_BODIES_MAX;
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
        serve_later_close(s);
        MHD_stop_daemon(s->daemon);
        ev_timer_stop(s->loop, &s->slow);
    }
    free(s->token);
    free(s->address);
    free(s);
    return NULL;
}
