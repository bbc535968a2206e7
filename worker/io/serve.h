/* serve.h - the worker's own small HTTP server, inside its libev loop.
 *
 * libmicrohttpd without a thread of its own: its epoll descriptor is one watcher of the loop, its
 * next timeout one timer. Handlers answer at once from memory, or take their time (serve_defer)
 * while the connection sleeps; nothing here waits.
 *
 * Routes are exact paths, or prefixes. GET routes answer HEAD too. A `guarded` route needs the
 * admin token
 * (`Authorization: Bearer TOKEN`, or for GET and HEAD the cookie `postrider_token=TOKEN`; a cookie
 * never authorises a change, so another site cannot make a browser do one). Without a token
 * configured, guarded routes answer only a peer on the loopback interface that names a loopback
 * host and comes through no proxy: otherwise any web page could reach them by rebinding its own
 * name to 127.0.0.1.
 *
 * Every answer carries nosniff, no-store, no-referrer, a Content-Security-Policy that allows
 * nothing from outside (serve_page: only the page's own script and style), and a body
 * for errors in JSON. */
#ifndef POSTRIDER_IO_SERVE_H
#define POSTRIDER_IO_SERVE_H

#include <stdbool.h>
#include <stddef.h>

#include "worker/core/err.h"

struct ev_loop;
struct serve;

enum { /* serve_route.methods, a set */
       SERVE_GET = 1u << 0,
       SERVE_POST = 1u << 1
};

/* Borrowed: all of it is valid until the handler returns, or until its deferred answer. */
struct serve_request {
    unsigned method;    /* SERVE_GET (HEAD too) or SERVE_POST */
    const char *path;   /* decoded */
    const char *target; /* path and query as they came, not decoded; visible ASCII */
    const void *body;   /* POST only (else NULL); a zero byte follows it */
    size_t body_len;
    void *priv_; /* serve's own */
    void *call_;
};

/* A query parameter (NULL when absent, "" when without value) or a header. Borrowed. */
const char *serve_query(const struct serve_request *req, const char *name);
const char *serve_header(const struct serve_request *req, const char *name);

/* Calls `each` for every header, in order, with the name as it was written. */
typedef void serve_header_fn(void *arg, const char *name, const char *value);
void serve_headers(const struct serve_request *req, serve_header_fn *each, void *arg);

enum { SERVE_REPLY_HEADERS = 6 };

struct serve_reply {
    unsigned status;          /* 0 is taken as 500 */
    const char *content_type; /* static text; NULL = "text/plain; charset=utf-8" */
    char *body;               /* taken: freed by serve with free(); NULL = empty */
    size_t body_len;          /* 0 with a body: strlen(body) */
    const void *fixed;        /* instead of body: bytes that live as long as the process */
    size_t fixed_len;
    char nonce[33]; /* set by serve_page: scripts and styles with this nonce may run */
    /* Extra headers, copied when the handler returns; name NULL ends the list. A name that serve
     * sets itself (Cache-Control, say) replaces serve's. */
    struct {
        const char *name, *value;
    } headers[SERVE_REPLY_HEADERS];
};

/* Answers with a whole page: every "{{nonce}}" in it becomes this answer's nonce, and the policy
 * lets only <script nonce> and <style nonce> run, and lets them ask this server alone. 0, -ENOMEM,
 * -EIO. */
int serve_page(const void *html, size_t len, struct serve_reply *reply);

/* `reply` comes zeroed. */
typedef void serve_handler(void *arg, const struct serve_request *req, struct serve_reply *reply);

/* Instead of filling `reply` a handler may keep the request and answer later, with serve_answer:
 * exactly once, from the loop but not from a handler. Meanwhile the connection sleeps: it is not
 * read, and nobody notices that its client left. What is left at serve_free ends without an answer,
 * and `lost` (may be NULL) is called for each. Never NULL. */
struct serve_later;
typedef void serve_lost_fn(void *arg);
struct serve_later *serve_defer(const struct serve_request *req, serve_lost_fn *lost, void *arg);
/* Takes reply->body and frees `later`. */
void serve_answer(struct serve_later *later, struct serve_reply *reply);

struct serve_route {
    const char *path; /* from '/': exact, or every path that begins so when it ends in '/' and is
                         longer than that */
    unsigned methods;
    bool guarded;
    serve_handler *handle;
    size_t body_max; /* 0: the server's */
};

/* 0 = the default in brackets. */
struct serve_options {
    const char *listen; /* "127.0.0.1:8025", "[::1]:8025", ":8025" (every address), port 0 = any */
    const char *token;  /* NULL or "" = none configured; copied */
    unsigned connections; /* at most open at once (64) */
    unsigned per_address; /* of them from one address (32) */
    unsigned timeout_s;   /* a connection idle this long is closed (15) */
    unsigned request_s;   /* and one whose request has not come whole by then, counted from its
                             last answer or its start, however busily it trickles (30) */
    size_t body_max;      /* a longer request body is refused with 413 (64 KiB) */
    size_t bodies_max;    /* all bodies in memory together; more is refused with 503 (32 MiB) */
};

/* Binds and starts answering when the loop runs. `routes` is borrowed until serve_free and may
 * be changed by nobody; `arg` goes to every handler. Host names in `listen` are not looked up: an
 * address or "localhost". Errors: -EINVAL (listen), -EADDRINUSE, -EACCES, -ENOMEM, -EIO. */
int serve_new(struct ev_loop *loop, const struct serve_options *opt,
              const struct serve_route *routes, size_t n, void *arg, struct serve **ret_serve,
              struct err *err);

/* The port in use, also when 0 was asked. */
int serve_port(const struct serve *s);

/* Where it listens, "127.0.0.1:8025", for the log. Borrowed. */
const char *serve_address(const struct serve *s);

/* Replaces the token (SIGHUP); NULL or "" = none. Returns 0 or -ENOMEM (the old one stays). */
int serve_set_token(struct serve *s, const char *token);

/* Whether a secret was offered. Takes as long for a wrong one as for the right one: the time tells
 * the length of what was offered, not what was wanted. */
bool serve_secret_equal(const char *wanted, const char *offered);

/* Closes every connection. Not from inside a handler. NULL is fine; returns NULL. */
struct serve *serve_free(struct serve *s);

#endif
