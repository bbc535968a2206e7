#include "providers/sandbox/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "providers/sandbox/world.h"

#define TICK_S            0.001
#define SLEEPERS_PER_TICK 1000u /* with more asleep, wakes are gathered over more ticks */
#define HOUSEKEEPING_S    0.05
#define CONNECTION_MEMORY 4096u
#define DIALECT_MEMORY    (64u * 1024) /* with a dialect: a text may come in the query */
#define IDLE_MAX          16384u       /* request records kept for reuse */
#define BODY_KEEP         4096u        /* a larger body buffer is not kept with them */
#define ACCEPT_BATCH      256          /* connections taken in one turn */
#define SPARE_FDS         64u          /* for files, epoll and the listener itself */

static void pump(struct sandbox *sb)
{
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;
    int rounds = 0;

    do
        MHD_run(sb->daemon);
    while (MHD_get_timeout(sb->daemon, &wait_ms) == MHD_YES && wait_ms == 0 && ++rounds < 8);
    if (rounds == 8)
        sb_server_poke(sb); /* still busy: let other watchers have their turn first */
}

void sb_server_poke(struct sandbox *sb)
{
    if (!ev_is_active(&sb->again) && !sb->stopping) {
        ev_timer_set(&sb->again, 0., 0.);
        ev_timer_start(sb->loop, &sb->again);
    }
}

static void on_again(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop;
    (void)revents;
    pump(w->data);
}

static void on_daemon(struct ev_loop *loop, ev_io *w, int revents)
{
    (void)loop;
    (void)revents;
    pump(w->data);
}

/* --- sleeping and waking ---------------------------------------------------------------- */

static void on_timer(struct sb_timer *t, void *arg)
{
    (void)arg;
    sb_req_wake((struct sb_req *)(void *)((char *)t - offsetof(struct sb_req, timer)));
}

/* A wake makes the library walk all its sleepers: with 2,500 of them once a ms that was a
 * fifth of all CPU. So the more there are, the longer wakes are gathered (3 ms for 2,500). */
static void on_tick(struct ev_loop *loop, ev_timer *w, int revents)
{
    struct sandbox *sb = w->data;
    size_t before = sb->wheel.armed;
    int64_t now_ms = sb_mono_ms();

    (void)revents;
    if (now_ms - sb->wheel.now_ms <= (int64_t)(before / SLEEPERS_PER_TICK))
        return;
    sb_wheel_expire(&sb->wheel, now_ms, on_timer, NULL);
    if (sb->wheel.armed != before)
        pump(sb);
    if (sb->wheel.armed == 0)
        ev_timer_stop(loop, w);
}

static void unwatch_peer(struct sb_req *r)
{
    if (r->watching)
        ev_io_stop(r->sb->loop, &r->peer_io);
    r->watching = false;
}

/* Readable while suspended: the client went away, or sent more than it should. */
static void on_peer(struct ev_loop *loop, ev_io *w, int revents)
{
    struct sb_req *r = w->data;
    char byte;
    ssize_t n = recv(w->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    (void)loop;
    (void)revents;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    unwatch_peer(r);
    if (n > 0)
        return;
    sb_req_wake(r);
    sb_server_poke(r->sb);
}

enum MHD_Result sb_req_sleep(struct sb_req *r, int64_t due_ms, bool watch_peer)
{
    struct sandbox *sb = r->sb;

    r->wheel = watch_peer ? &sb->slow_wheel : &sb->wheel;
    if (r->wheel->armed == 0)
        sb_wheel_expire(r->wheel, sb_mono_ms(), on_timer, NULL); /* catch up after rest */
    sb_wheel_add(r->wheel, &r->timer, due_ms);
    if (sb->wheel.armed > 0 && !ev_is_active(&sb->tick))
        ev_timer_again(sb->loop, &sb->tick);
    if (watch_peer) {
        ev_io_init(&r->peer_io, on_peer, r->link->fd, EV_READ);
        r->peer_io.data = r;
        ev_io_start(sb->loop, &r->peer_io);
        r->watching = true;
    }
    r->asleep = true;
    MHD_suspend_connection(r->conn);
    return MHD_YES;
}

void sb_req_wake(struct sb_req *r)
{
    if (!r->asleep)
        return;
    r->asleep = false;
    r->woken = true;
    sb_wheel_del(r->wheel, &r->timer);
    unwatch_peer(r);
    MHD_resume_connection(r->conn);
}

/* --- one request ------------------------------------------------------------------------ */

static struct sb_req *req_new(struct sandbox *sb, struct MHD_Connection *conn)
{
    struct sb_req *r = sb->idle;

    if (r) {
        char *body = r->body;
        size_t cap = r->cap;
        sb->idle = r->next_idle;
        sb->idle_count--;
        memset(r, 0, sizeof(*r));
        r->body = body;
        r->cap = cap;
    } else {
        r = calloc(1, sizeof(*r));
        if (!r)
            return NULL;
    }
    r->sb = sb;
    r->conn = conn;
    r->link = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    return r;
}

static void req_release(struct sb_req *r)
{
    struct sandbox *sb = r->sb;

    if (r->route->done)
        r->route->done(r);
    if (r->wheel)
        sb_wheel_del(r->wheel, &r->timer);
    unwatch_peer(r);
    if (r->cap > BODY_KEEP) {
        free(r->body);
        r->body = NULL;
        r->cap = 0;
    }
    if (sb->idle_count >= IDLE_MAX) {
        free(r->body);
        free(r);
        return;
    }
    r->next_idle = sb->idle;
    sb->idle = r;
    sb->idle_count++;
}

static int body_append(struct sb_req *r, const char *data, size_t len)
{
    size_t max = r->route->body_max ? r->route->body_max : SB_BODY_MAX;

    if (len > max - r->len) {
        r->too_long = true;
        return 0; /* read to the end, then refused with 413 */
    }
    if (r->len + len > r->cap) {
        size_t cap = r->cap ? r->cap : 512;
        while (cap < r->len + len)
            cap *= 2;
        char *grown = realloc(r->body, cap);
        if (!grown)
            return -1;
        r->body = grown;
        r->cap = cap;
    }
    memcpy(r->body + r->len, data, len);
    r->len += len;
    return 0;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *data_len, void **req_cls)
{
    struct sandbox *sb = cls;
    struct sb_req *r = *req_cls;

    (void)version;
    if (!r) {
        r = req_new(sb, conn);
        if (!r)
            return MHD_NO;
        r->method = method;
        r->route = sb_route_find(sb, method, url, &r->tail);
        *req_cls = r;
        return MHD_YES;
    }
    if (*data_len > 0) {
        int rc = r->route->feed && !r->too_long ? r->route->feed(r, data, *data_len)
                                                : body_append(r, data, *data_len);
        *data_len = 0;
        return rc == 0 ? MHD_YES : MHD_NO;
    }
    if (sb->stopping)
        return MHD_NO;
    if (!r->complete) {
        r->complete = true;
        r->link->served++;
    }
    if (r->too_long)
        return sb_req_answer(r, 413, "{\"error\":\"too_long\"}", 20, NULL);
    return r->route->serve(r);
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **req_cls,
                         enum MHD_RequestTerminationCode code)
{
    (void)cls;
    (void)conn;
    (void)code;
    if (*req_cls)
        req_release(*req_cls);
    *req_cls = NULL;
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct sandbox *sb = cls;

    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        sb->connections--;
        free(*socket_context);
        *socket_context = NULL;
        return;
    }
    struct sb_conn *link = calloc(1, sizeof(*link));
    sb->connections++;
    sb->connections_total++;
    if (!link)
        abort(); /* the library leaves no way to refuse here; a judge must not guess */
    link->fd = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    *socket_context = link;
}

void sb_req_reset(const struct sb_req *r)
{
    const struct linger hard = {.l_onoff = 1, .l_linger = 0};

    setsockopt(r->link->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
}

enum MHD_Result sb_req_answer(struct sb_req *r, int status, const char *body, size_t len,
                              const char *type)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);

    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                            type ? type : "application/json");
    if (status == 429)
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    if (r->reason == SB_REPLAYED && status == 200)
        MHD_add_response_header(response, "Idempotency-Replay", "true");
    enum MHD_Result rc = MHD_queue_response(r->conn, (unsigned)status, response);
    MHD_destroy_response(response);
    return rc;
}

enum MHD_Result sb_req_reply(struct sb_req *r)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(r->reply->len, r->reply->body, MHD_RESPMEM_MUST_COPY);

    if (!response)
        return MHD_NO;
    if (r->reply->type)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, r->reply->type);
    for (size_t i = 0; i < r->reply->headers.n; i++)
        MHD_add_response_header(response, r->reply->headers.v[i].name,
                                r->reply->headers.v[i].value);
    enum MHD_Result rc = MHD_queue_response(r->conn, (unsigned)r->reply->status, response);
    MHD_destroy_response(response);
    return rc;
}

/* --- the listener ----------------------------------------------------------------------- */

static void on_accept(struct ev_loop *loop, ev_io *w, int revents)
{
    struct sandbox *sb = w->data;
    struct sockaddr_storage peer;

    (void)revents;
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        socklen_t len = sizeof(peer);
        int fd = accept4(w->fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE)
                ev_io_stop(loop, w); /* housekeeping tries again; do not spin */
            break;
        }
        /* closes fd itself when it cannot take it */
        MHD_add_connection(sb->daemon, fd, (struct sockaddr *)&peer, len);
    }
    pump(sb);
}

static void address_done(struct addrinfo **ai)
{
    if (*ai)
        freeaddrinfo(*ai);
}

static int listener_open(struct sandbox *sb, struct err *err)
{
    __attribute__((cleanup(address_done))) struct addrinfo *ai = NULL;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV | AI_PASSIVE};
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } bound = {.v6 = {0}};
    socklen_t len = sizeof(bound);
    char port[8];
    int one = 1;

    snprintf(port, sizeof(port), "%u", sb->port);
    int rc = getaddrinfo(sb->host, port, &hints, &ai);
    if (rc != 0)
        return err_set(err, -EINVAL, "cannot resolve \"%s\": %s", sb->host, gai_strerror(rc));
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set(err, -errno, "could not make a socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, 4096) < 0 ||
        getsockname(fd, &bound.any, &len) < 0) {
        rc = err_set(err, -errno, "could not listen on %s:%u: %s", sb->host, sb->port,
                     strerror(errno));
        close(fd);
        return rc;
    }
    sb->port = ntohs(bound.any.sa_family == AF_INET6 ? bound.v6.sin6_port : bound.v4.sin_port);
    sb->listen_fd = fd;
    sb->listening = true;
    ev_io_init(&sb->accept_io, on_accept, fd, EV_READ);
    sb->accept_io.data = sb;
    ev_io_start(sb->loop, &sb->accept_io);
    return 0;
}

static void listener_close(struct sandbox *sb)
{
    if (!sb->listening)
        return;
    ev_io_stop(sb->loop, &sb->accept_io);
    close(sb->listen_fd);
    sb->listening = false;
}

static void on_housekeeping(struct ev_loop *loop, ev_timer *w, int revents)
{
    struct sandbox *sb = w->data;
    bool refuse = sb_knobs_refuses(&sb->knobs, sb_elapsed_s(sb));

    (void)revents;
    if (refuse)
        listener_close(sb);
    else if (!sb->listening)
        listener_open(sb, NULL); /* tried again in a moment when it cannot be had */
    else if (!ev_is_active(&sb->accept_io))
        ev_io_start(loop, &sb->accept_io);
    if (sb->log)
        fflush(sb->log);
    size_t before = sb->slow_wheel.armed;
    sb_wheel_expire(&sb->slow_wheel, sb_mono_ms(), on_timer, NULL);
    if (sb->slow_wheel.armed != before)
        pump(sb);
}

/* --- start and stop --------------------------------------------------------------------- */

/* As many descriptors as we may have, and how many of them are for connections. */
static unsigned raise_fd_limit(void)
{
    struct rlimit lim;

    if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
        return 1024 - SPARE_FDS;
    lim.rlim_cur = lim.rlim_max;
    setrlimit(RLIMIT_NOFILE, &lim);
    getrlimit(RLIMIT_NOFILE, &lim);
    if (lim.rlim_cur > 200000)
        return 200000;
    return lim.rlim_cur > 2 * SPARE_FDS ? (unsigned)lim.rlim_cur - SPARE_FDS : SPARE_FDS;
}

static void watch_daemon(struct sandbox *sb)
{
    int fd = MHD_get_daemon_info(sb->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;

    ev_io_init(&sb->daemon_io, on_daemon, fd, EV_READ);
    ev_init(&sb->tick, on_tick);
    sb->tick.repeat = TICK_S;
    ev_init(&sb->again, on_again);
    ev_timer_init(&sb->housekeeping, on_housekeeping, HOUSEKEEPING_S, HOUSEKEEPING_S);
    sb->daemon_io.data = sb->tick.data = sb->again.data = sb->housekeeping.data = sb;
    ev_io_start(sb->loop, &sb->daemon_io);
    ev_timer_start(sb->loop, &sb->housekeeping);
}

int sb_server_start(struct sandbox *sb, struct err *err)
{
    /* TURBO: the library then closes without a shutdown first, which a reset needs */
    unsigned flags =
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_TURBO;

    sb_wheel_init(&sb->wheel, sb_mono_ms());
    sb_wheel_init(&sb->slow_wheel, sb_mono_ms());
    sb->daemon = MHD_start_daemon(flags, 0, NULL, NULL, on_request, sb, MHD_OPTION_NOTIFY_COMPLETED,
                                  on_completed, sb, MHD_OPTION_NOTIFY_CONNECTION, on_connection, sb,
                                  MHD_OPTION_CONNECTION_LIMIT, raise_fd_limit(),
                                  MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                  (size_t)(sb->world ? DIALECT_MEMORY : CONNECTION_MEMORY),
                                  MHD_OPTION_CONNECTION_TIMEOUT, 0u, MHD_OPTION_END);
    if (!sb->daemon)
        return err_set(err, -EIO, "could not start the HTTP library: %s", strerror(errno));
    watch_daemon(sb);
    int rc = listener_open(sb, err);
    if (rc < 0)
        sb_server_stop(sb);
    return rc;
}

void sb_server_stop(struct sandbox *sb)
{
    if (!sb->daemon)
        return;
    sb->stopping = true;
    listener_close(sb);
    /* the library insists that nothing is suspended when it stops */
    sb_wheel_expire(&sb->wheel, INT64_MAX - 1, on_timer, NULL);
    sb_wheel_expire(&sb->slow_wheel, INT64_MAX - 1, on_timer, NULL);
    MHD_run(sb->daemon);
    ev_io_stop(sb->loop, &sb->daemon_io);
    ev_timer_stop(sb->loop, &sb->tick);
    ev_timer_stop(sb->loop, &sb->again);
    ev_timer_stop(sb->loop, &sb->housekeeping);
    MHD_stop_daemon(sb->daemon);
    sb->daemon = NULL;
    while (sb->idle) {
        struct sb_req *r = sb->idle;
        sb->idle = r->next_idle;
        free(r->body);
        free(r);
    }
}
