/* serve_internal.h - what the parts of serve share; nobody else includes it. */
#ifndef POSTRIDER_IO_SERVE_INTERNAL_H
#define POSTRIDER_IO_SERVE_INTERNAL_H

#include <ev.h>
#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>

#include "worker/core/err.h"
#include "worker/io/serve.h"

#define CLEANUP(f) __attribute__((cleanup(f)))

struct serve_conn;

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
    size_t bodies, bodies_max; /* bytes of all bodies */
    bool closed;               /* a connection ended in this MHD_run */
    int port;
    char *address;
    /* connections whose request has not come whole, the longest waiting first */
    struct serve_conn *conn_head, *conn_tail;
    double request_s;
    ev_timer slow;
    struct serve_later *laters; /* not answered yet */
};

/* An answer that comes later. */
struct serve_later {
    struct serve_later *prev, *next;
    struct serve_call *call;
    serve_lost_fn *lost;
    void *arg;
    bool open;     /* the handler asked for it */
    bool answered; /* with what follows; no response: out of memory */
    unsigned status;
    struct MHD_Response *response;
};

/* One request, from its first line to its answer. */
struct serve_call {
    struct serve *serve;
    struct MHD_Connection *connection;
    const struct serve_route *route; /* NULL until the headers are here */
    unsigned method;
    char *target;
    char *body;
    size_t len, size, body_max;
    struct serve_later later;
};

/* Answers. Take reply->body, and the response (NULL: the connection is closed). */
struct MHD_Response *serve_response_take(const struct serve_reply *reply);
enum MHD_Result serve_queue_take(struct MHD_Connection *c, unsigned status, struct MHD_Response *r);
enum MHD_Result serve_answer_take(struct MHD_Connection *c, struct serve_reply *reply);
enum MHD_Result serve_refuse(struct MHD_Connection *c, unsigned status,
                             const struct serve_route *route);

/* serve_later.c: takes the answer that is there; forgets a call that is over; ends all. */
enum MHD_Result serve_later_take(struct serve_call *call);
void serve_later_drop(struct serve_call *call);
void serve_later_close(struct serve *s);

/* serve_conn.c: how long a request may take to come. */
void serve_conn_init(struct serve *s, unsigned request_s);
struct serve_conn *serve_conn_new(struct serve *s, struct MHD_Connection *c); /* NULL: no memory */
struct serve_conn *serve_conn_free(struct serve_conn *conn);
/* Notes the call a connection has begun (NULL: none any more); returns the one noted before. */
struct serve_call *serve_conn_begin(struct MHD_Connection *c, struct serve_call *call);
struct serve_call *serve_conn_left(const struct serve_conn *conn);
void serve_conn_whole(struct MHD_Connection *c); /* its request is here */
void serve_conn_idle(struct MHD_Connection *c);  /* it was answered: the next one counts from now */

/* Whether a guarded route may be answered: 0, or the status to refuse with (401 or 403).
 * `token` NULL = none configured; `method` as in serve_route. */
unsigned serve_guard(const char *token, struct MHD_Connection *c, unsigned method);

/* Opens the listening socket of "host:port". The caller owns *ret_fd. */
int serve_listen(const char *text, int *ret_fd, struct err *err);

/* "127.0.0.1:8025" or "[::1]:8025" of a bound socket; the caller owns *ret_address. */
int serve_listen_address(int fd, char **ret_address, int *ret_port);

/* For CLEANUP: closes what is not negative. */
void serve_close_fd(int *fd);

#endif
