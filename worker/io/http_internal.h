/* http_internal.h - what the files of http.h share. Private to worker/io/http*.c.
 *
 *   http.c        the pool: lanes, free calls, start, abort
 *   http_lane.c   one multi handle on the event loop
 *   http_sock.c   the sockets libcurl opened: watchers, the look before a permit
 *   http_call.c   one call: its easy handle, the gate, the result
 *   http_reply.c  what the vendor answered, as far as it came
 *
 * Owners: pool > lanes, sockets, calls (in a lane's list or in the free list). */
#ifndef POSTRIDER_IO_HTTP_INTERNAL_H
#define POSTRIDER_IO_HTTP_INTERNAL_H

#include "worker/io/http.h"

#include <curl/curl.h>
#include <ev.h>
#include <netinet/in.h>

struct http_buf {
    char *data;
    size_t len, size;
};

/* Makes room for `more` bytes and a NUL. False: out of memory. */
bool http_buf_reserve(struct http_buf *buf, size_t more);
/* Adds bytes and keeps a NUL behind them. */
bool http_buf_add(struct http_buf *buf, const char *bytes, size_t len);
/* Empties; gives the memory back when it is more than `keep`. */
void http_buf_clear(struct http_buf *buf, size_t keep);

/* --- the reply ------------------------------------------------------------------------------- */

enum http_reply_state {
    HTTP_REPLY_NONE = 0, /* a status line comes next */
    HTTP_REPLY_INTERIM,  /* in the headers of a 1xx */
    HTTP_REPLY_HEADERS,  /* in the headers of the final reply */
    HTTP_REPLY_BODY,     /* they ended; trailers are not kept */
};

struct http_header_at {
    size_t name, value; /* offsets into text */
};

struct http_reply {
    enum http_reply_state state;
    int status;  /* >= 200, or 0 */
    bool broken; /* more than we keep, or framed in two ways: not complete */
    size_t body_cap;
    struct http_buf text; /* header names and values, each with its NUL */
    struct http_buf body;
    struct http_header_at *at;
    struct http_header *headers; /* made from `at` when the call ends */
    size_t count, size;
};

void http_reply_reset(struct http_reply *reply);
void http_reply_done(struct http_reply *reply);
/* libcurl's header and write callbacks; arg is the reply. */
size_t http_reply_on_header(char *data, size_t size, size_t n, void *arg);
size_t http_reply_on_body(char *data, size_t size, size_t n, void *arg);
/* Points `headers` into text and judges the framing; nothing may be added afterwards. */
void http_reply_seal(struct http_reply *reply);

/* --- sockets --------------------------------------------------------------------------------- */

struct http_address {
    char remote_ip[INET6_ADDRSTRLEN], local_ip[INET6_ADDRSTRLEN];
    int remote_port, local_port;
};

struct http_sock {
    ev_io io;
    struct http_lane *lane;
    int fd;
    int wanted;   /* EV_ flags libcurl asked for; 0 while idle */
    bool foreign; /* not opened through us: libcurl's own wake-up pipe */
    bool named;   /* was ready once, so `address` is known and it is in by_port */
    struct http_address address;
    struct http_call *opener; /* while not named */
    struct http_sock *next;   /* in the opener's list, then in by_port */
};

struct http_socks {
    struct http_sock **by_fd;
    size_t by_fd_size;
    struct http_sock **by_port; /* a power of two of chains */
    size_t by_port_size;
};

int http_socks_init(struct http_socks *socks, unsigned max_calls);
void http_socks_done(struct http_socks *socks);

/* libcurl's callbacks. */
curl_socket_t http_sock_on_open(void *arg, curlsocktype purpose, struct curl_sockaddr *addr);
int http_sock_on_close(void *arg, curl_socket_t fd);
int http_sock_on_poll(CURL *easy, curl_socket_t fd, int what, void *arg, void *socketp);

/* The call's socket by its addresses, NULL when there is none; *ret_fresh: nothing was sent on it
 * before. */
struct http_sock *http_sock_find(struct http_call *call, const struct http_address *address,
                                 bool *ret_fresh);
/* Nothing waits to be read. On a fresh TLS connection session tickets may wait; EOF may not. */
bool http_sock_is_clean(const struct http_sock *sock, bool fresh_tls);
/* The call goes, and with it the connections it did not get ready. */
void http_sock_forget(struct http_call *call);

/* --- lanes ----------------------------------------------------------------------------------- */

struct http_lane {
    struct http_pool *pool;
    CURLM *multi; /* NULL when it could not be rebuilt; tried again by the next call */
    ev_timer timer;
    bool kicked; /* libcurl wants to run now */
    unsigned active;
    struct http_call *calls;
};

int http_lane_init(struct http_lane *lane, struct http_pool *pool, struct err *err);
void http_lane_done(struct http_lane *lane);
/* Adds a prepared call. */
int http_lane_add(struct http_lane *lane, struct http_call *call, struct err *err);
/* Runs libcurl for one socket (or CURL_SOCKET_TIMEOUT) and reports what ended. */
void http_lane_act(struct http_lane *lane, curl_socket_t fd, int mask);
/* Ends a call that runs. */
void http_lane_cut(struct http_call *call);

/* --- calls ----------------------------------------------------------------------------------- */

enum http_call_state {
    HTTP_CALL_FREE = 0,
    HTTP_CALL_RUNNING, /* in its lane's multi and list */
    HTTP_CALL_ENDING,  /* out of both; `done` is about to be called */
};

struct http_call {
    struct http_pool *pool;
    struct http_lane *lane;
    struct http_call *prev, *next; /* the lane's list, or the free list (next) */
    enum http_call_state state;
    CURL *easy;

    http_done_fn *done;
    void *arg;
    bool (*may_start)(void *arg);
    bool may_repeat;
    bool tls;
    bool signs; /* the easy handle holds a key: until it is set for a request without one */
    struct http_buf frozen; /* header list, header lines, body: one block */
    struct curl_slist *headers;
    size_t body_at, body_len;
    int64_t connect_timeout_ms, timeout_ms;
    int64_t started_us;

    int permits;
    bool at_gate; /* a connection was ready */
    bool opened;  /* a socket was opened */
    bool in_tls;  /* it was connected, TLS began */
    bool fresh;   /* the last permit was for a new connection */
    bool dirty;
    bool retried;
    bool aborted;
    struct http_sock *opening;
    struct http_reply reply;
    char error[CURL_ERROR_SIZE];
};

struct http_call *http_call_new(struct http_pool *pool);
void http_call_free(struct http_call *call);
/* Checks and copies the request, sets the easy handle. */
int http_call_prepare(struct http_call *call, const struct http_request *request, struct err *err);
/* Makes a call that met a dirty connection ready for a fresh one; false when it may not. */
bool http_call_retry(struct http_call *call);
/* `why` replaces libcurl's words when not NULL. Seals the reply. */
void http_call_result(struct http_call *call, CURLcode code, const char *why,
                      struct http_result *ret_result);
/* Fills what belongs to the next user. */
void http_call_clear(struct http_call *call);

/* --- pool ------------------------------------------------------------------------------------ */

struct http_pool {
    struct ev_loop *loop;
    struct http_options options;
    char *ca_file;
    struct http_socks socks;
    struct http_lane *lanes;
    unsigned lanes_count;
    unsigned lane_cap; /* calls a lane takes */
    unsigned active;
    struct http_call *free_calls;
    ev_prepare prepare; /* active while a lane is kicked or a call is to be cut */
    ev_idle idle;       /* active when the loop must not sleep */
    bool aborts;        /* some running call is `aborted` */
};

/* A socket's turn is over: lets the pool's owner look at what is urgent. */
void http_pool_between(struct http_pool *pool);
/* Have kicked lanes run before the loop sleeps. */
void http_pool_kick(struct http_pool *pool);
/* `call` is out of its lane: tells the caller and puts the call aside. */
void http_pool_ended(struct http_pool *pool, struct http_call *call,
                     const struct http_result *result);

#endif
