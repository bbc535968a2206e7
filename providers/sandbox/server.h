/* server.h - HTTP for the sandbox: libmicrohttpd in a libev loop.
 *
 * We own the listener, so that an outage can close it and open it again; libmicrohttpd owns
 * accepted connections. A request that must wait is suspended and comes back through the
 * timer wheel, many at once: libmicrohttpd walks all its suspended connections each time it
 * is asked to resume any. */
#ifndef POSTRIDER_SANDBOX_SERVER_H
#define POSTRIDER_SANDBOX_SERVER_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>

#include "providers/sandbox/knobs.h"
#include "providers/sandbox/state.h"
#include "providers/sandbox/wheel.h"
#include "worker/core/err.h"

struct sb_conn { /* one connection */
    int fd;
    uint64_t served; /* requests read in full */
};

struct sb_route;
struct sb_reply;

struct sb_req { /* one request, from its first header to its last byte out */
    struct sandbox *sb;
    struct MHD_Connection *conn;
    struct sb_conn *link;
    const struct sb_route *route;
    const char *method;
    const char *tail; /* what follows the route's prefix in the path; "" if nothing */
    char *body;
    size_t len, cap;
    bool too_long;
    bool complete;      /* read in full */
    bool asleep, woken; /* suspended; came back */
    bool watching;      /* peer_io is on */
    struct sb_timer timer;
    struct sb_wheel *wheel; /* that timer is or was in; NULL before the first sleep */
    ev_io peer_io;
    /* the owner's, see vendor.c and wait.c */
    void *data;
    enum sb_act act;
    enum sb_reason reason;
    int status;
    uint64_t vendor_no;
    bool counted;           /* in stats.in_air */
    bool held;              /* a receipt's answer may wake it */
    struct sb_reply *reply; /* what a dialect answers; owned; NULL without one */
    struct sb_req *next_idle;
};

struct sb_route { /* ends a table with a NULL method */
    const char *method, *path;
    bool prefix;     /* `path` is a prefix, the rest is in tail */
    size_t body_max; /* 0 = SB_BODY_MAX */
    /* Called once the request is complete, and again after each wake. Answers, sleeps, or
     * returns MHD_NO to close the connection. */
    enum MHD_Result (*serve)(struct sb_req *r);
    /* Takes the body in pieces in place of keeping it; optional. -1 closes the connection. */
    int (*feed)(struct sb_req *r, const char *data, size_t len);
    /* Called before the record is reused, whatever happened; optional. */
    void (*done)(struct sb_req *r);
};

/* Opens the listener and starts. `sb->host` and `sb->port` (0 = any free) say where; port is
 * then the real one. 0 or -errno with words. */
int sb_server_start(struct sandbox *sb, struct err *err);

/* Ends every connection and closes all. Harmless when not started. */
void sb_server_stop(struct sandbox *sb);

/* Suspends until `due_ms` (monotonic, to a few ms) or sb_req_wake. With `watch_peer`, for long
 * waits, the request also wakes when the client goes away, and its time is kept to 50 ms: a
 * silent vendor then costs no CPU. Returns MHD_YES. */
enum MHD_Result sb_req_sleep(struct sb_req *r, int64_t due_ms, bool watch_peer);
void sb_req_wake(struct sb_req *r);

/* Lets woken requests run soon; for wakes that come from outside the wheel. */
void sb_server_poke(struct sandbox *sb);

/* Makes close send RST, not FIN. */
void sb_req_reset(const struct sb_req *r);

/* Answers with `len` bytes (copied). `type` NULL = application/json. */
enum MHD_Result sb_req_answer(struct sb_req *r, int status, const char *body, size_t len,
                              const char *type);

/* Answers with r->reply as it is. */
enum MHD_Result sb_req_reply(struct sb_req *r);

/* Called by server.c for each request line; never NULL. */
const struct sb_route *sb_route_find(const struct sandbox *sb, const char *method, const char *url,
                                     const char **ret_tail);

#endif
