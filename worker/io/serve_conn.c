/* serve_conn.c - a request has a while to come, however busily it trickles.
 *
 * libmicrohttpd's own limit ends a connection that is silent. One that sends a byte now and then
 * would keep its place for ever; here it is cut when its request is not whole in time. */
#include "worker/io/serve_internal.h"

#include <stdlib.h>
#include <sys/socket.h>

struct serve_conn {
    struct serve *serve;
    struct serve_conn *prev, *next;
    struct serve_call *call; /* begun, and not completed */
    bool listed;
    int fd;
    double since;
};

static void unlist(struct serve_conn *conn)
{
    struct serve *s = conn->serve;

    if (!conn->listed)
        return;
    *(conn->prev ? &conn->prev->next : &s->conn_head) = conn->next;
    *(conn->next ? &conn->next->prev : &s->conn_tail) = conn->prev;
    conn->listed = false;
}

static void arm(struct serve *s)
{
    double left;

    if (!s->conn_head || ev_is_active(&s->slow))
        return;
    left = s->conn_head->since + s->request_s - ev_now(s->loop);
    ev_timer_set(&s->slow, left > 0 ? left : 0., 0.);
    ev_timer_start(s->loop, &s->slow);
}

/* To the tail: the list stays in the order of time. */
static void list(struct serve_conn *conn)
{
    struct serve *s = conn->serve;

    unlist(conn);
    conn->since = ev_now(s->loop);
    conn->prev = s->conn_tail;
    conn->next = NULL;
    *(s->conn_tail ? &s->conn_tail->next : &s->conn_head) = conn;
    s->conn_tail = conn;
    conn->listed = true;
    arm(s);
}

static void on_slow(struct ev_loop *loop, ev_timer *w, int events)
{
    struct serve *s = w->data;
    double now = ev_now(loop);

    (void)events;
    while (s->conn_head && s->conn_head->since + s->request_s <= now) {
        struct serve_conn *conn = s->conn_head;

        unlist(conn);
        shutdown(conn->fd, SHUT_RDWR); /* libmicrohttpd reads an end, and closes */
    }
    arm(s);
}

void serve_conn_init(struct serve *s, unsigned request_s)
{
    s->request_s = request_s;
    ev_timer_init(&s->slow, on_slow, 0., 0.);
    s->slow.data = s;
}

struct serve_conn *serve_conn_new(struct serve *s, struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct serve_conn *conn = info ? calloc(1, sizeof(*conn)) : NULL;

    if (conn) {
        conn->serve = s;
        conn->fd = info->connect_fd;
        list(conn);
    }
    return conn;
}

struct serve_conn *serve_conn_free(struct serve_conn *conn)
{
    if (conn)
        unlist(conn);
    free(conn);
    return NULL;
}

static struct serve_conn *conn_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

void serve_conn_whole(struct MHD_Connection *c)
{
    struct serve_conn *conn = conn_of(c);

    if (conn)
        unlist(conn);
}

void serve_conn_idle(struct MHD_Connection *c)
{
    struct serve_conn *conn = conn_of(c);

    if (conn)
        list(conn);
}

/* libmicrohttpd tells nobody when it gives up a request between its first line and its headers
 * (they did not fit): what was begun for it is found here when the connection ends or begins
 * another. */
struct serve_call *serve_conn_begin(struct MHD_Connection *c, struct serve_call *call)
{
    struct serve_conn *conn = conn_of(c);
    struct serve_call *left = conn ? conn->call : NULL;

    if (conn)
        conn->call = call;
    return left;
}

struct serve_call *serve_conn_left(const struct serve_conn *conn)
{
    return conn ? conn->call : NULL;
}
