/* http.h - calls to vendors: libcurl's multi interface on the event loop.
 *
 * One pool per provider. A pool spreads its calls over several multi handles, because
 * libcurl searches a handle's connections one by one (measured: 91 us a request at 2,000
 * connections in one handle, 67 us over 16), and fills the first handle that has room, so
 * that at low load connections stay warm.
 *
 * What this layer guarantees (rules R4 to R6 of ARCHITECTURE.md):
 *  - `permits` counts how often the request was allowed to leave. It is raised in libcurl's
 *    PREREQFUNCTION, after queue, DNS, connect and TLS: the last moment before bytes leave.
 *    permits == 0 in the result proves that no byte of the request left.
 *  - The gate: `may_start` is asked in that same moment; false aborts with permits == 0.
 *  - libcurl repeats a POST by itself when a reused connection dies before the reply; the
 *    second permit is refused, unless `may_repeat` (the vendor de-duplicates on our key).
 *  - A connection with bytes or EOF waiting is never used (it would hand a stale answer to
 *    this message): aborted with permits == 0 and `dirty`; the pool itself tries once more
 *    on a fresh connection before reporting it.
 *  - No redirects, no negotiated authentication, no early data, HTTP/1.1, SO_LINGER {1,0} and
 *    TCP_USER_TIMEOUT, so that a killed process does not go on sending from kernel buffers.
 *
 * Memory: a reply is kept up to the pool's body cap, 256 headers and 64 KiB of header text;
 * beyond that it is cut off and is not complete. What is kept for a call in the air is about
 * 20 KiB, most of it libcurl's.
 *
 * Replies arrive as the vendor sent them: no content coding is asked for and none undone.
 * Environment variables, .netrc and proxies are ignored. `ca_file` alone is trusted.
 *
 * Loop rules: every function is called on the loop's thread; `done` is called from the loop,
 * never from within http_start; it may call http_start again. Nothing blocks, except that
 * libcurl's threaded resolver uses a thread of its own. A pool keeps watchers active while
 * connections are idle, so a loop ends by ev_break, not by running dry. */
#ifndef POSTRIDER_IO_HTTP_H
#define POSTRIDER_IO_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ev_loop;
struct err;
struct http_pool;
struct http_call;

/* How far a call came, for the attempt's record. */
enum http_phase {
    HTTP_PHASE_QUEUE = 0, /* nothing happened yet: queue, DNS */
    HTTP_PHASE_CONNECT,   /* a socket was opened */
    HTTP_PHASE_TLS,       /* connected, TLS under way */
    HTTP_PHASE_GATE,      /* ready to send, not allowed to */
    HTTP_PHASE_SENT,      /* a permit was given; no status line read */
    HTTP_PHASE_REPLY,     /* a final status line was read; not complete */
    HTTP_PHASE_COMPLETE,  /* whole reply read */
};
const char *http_phase_name(enum http_phase phase);

struct http_header {
    const char *name;
    const char *value;
};

/* Everything is copied by http_start. Times in milliseconds. */
struct http_request {
    const char *method; /* "POST", "GET", … */
    const char *url;
    const struct http_header *headers;
    size_t headers_count;
    const char *body; /* NULL: none */
    size_t body_len;
    int64_t connect_timeout_ms;   /* 0: as long as timeout_ms */
    int64_t timeout_ms;           /* whole call, connect and inner retry included; 1 or more */
    const char *sigv4;            /* AWS SigV4: "aws:amz:REGION:SERVICE"; NULL: not signed. All
                                     headers are signed; none may be blank, a body (at most
                                     1 MiB) needs its Content-Type */
    const char *sigv4_userpwd;    /* with it: "KEY:SECRET" */
    bool may_repeat;              /* vendor de-duplicates: libcurl's own resend is harmless */
    bool (*may_start)(void *arg); /* the gate; must be quick and must not call back in */
    void *arg;                    /* for may_start and done */
};

/* Borrowed by the `done` callback; gone when it returns. */
struct http_result {
    int permits;        /* 0: surely no byte left */
    bool complete;      /* final status, headers ended, body whole per its framing */
    bool dirty;         /* refused because the connection had something waiting */
    bool tls_untrusted; /* the vendor's certificate did not verify */
    bool timed_out;
    enum http_phase phase;
    int status;                        /* last final status line read (>= 200), 0 if none */
    int curl_code;                     /* CURLcode, for the record only: it decides nothing */
    const char *error;                 /* libcurl's words, "" when it had none */
    const struct http_header *headers; /* of the final reply; names in lower case */
    size_t headers_count;
    const char *body; /* NUL-terminated, at most the pool's body cap */
    size_t body_len;
    int64_t connect_us; /* name look-up + connect + TLS; 0 on a reused connection */
    int64_t total_us;
};

typedef void http_done_fn(void *arg, const struct http_result *result);

struct http_options {
    unsigned max_calls;  /* most calls in the air; sizes the connection caches */
    size_t body_cap;     /* bytes of reply body kept; longer is an incomplete reply */
    int64_t idle_ms;     /* an idle connection is not reused after it; whole seconds, from 2 s */
    const char *ca_file; /* NULL: the system's */
    /* Called between two sockets' turns, or NULL: hundreds may be ready at once, and whoever must
     * not wait for all of them looks in here. It may do what `done` may, and http_pool_run. */
    void (*between)(void *arg);
    void *between_arg;
};

/* Once per process, before any pool. */
int http_global_init(struct err *err);
void http_global_done(void);

int http_pool_new(struct ev_loop *loop, const struct http_options *options,
                  struct http_pool **ret_pool, struct err *err);

/* Aborts what is in the air without calling `done`, closes all. NULL is fine. Must not be
 * called from `done`. */
void http_pool_free(struct http_pool *pool);

/* Starts a call. -EAGAIN: max_calls are in the air. -EINVAL: the request is refused: no http(s)
 * URL, a control character in a header, one of Content-Length, Transfer-Encoding, Expect, which
 * are ours, or what cannot be signed. -ENOMEM, -EIO: as they say.
 * On failure nothing left and `done` is not called. *ret_call (may be NULL)
 * stays valid until `done` was called. */
int http_start(struct http_pool *pool, const struct http_request *request, http_done_fn *done,
               struct http_call **ret_call, struct err *err);

/* Ends a call early (shutdown): `done` follows from the loop with what is known, permits
 * included. */
void http_abort(struct http_call *call);

/* Starts what http_start queued now instead of at the end of the loop's turn. From the loop or
 * from `between`; never from `done` or `may_start`. */
void http_pool_run(struct http_pool *pool);

unsigned http_pool_active(const struct http_pool *pool);

/* Opens up to `n` idle connections ahead of need is not offered: libcurl cannot connect
 * without a request. Warmth comes from filling the first handle first. */

#endif
