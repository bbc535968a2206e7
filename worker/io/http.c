#include "worker/io/http.h"

#include "worker/core/err.h"
#include "worker/io/http_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* libcurl searches a handle's connections one by one, so not too many calls a handle; and not
 * too many handles, because each wants its own turn. Measured best between 8 and 32. */
#define CALLS_PER_LANE 100u
#define LANES_MAX      16u
/* Rounds of "done started a call that wants to run now" before the loop looks at sockets. */
#define ROUNDS_MAX 4

const char *http_phase_name(enum http_phase phase)
{
    static const char *const names[] = {
        [HTTP_PHASE_QUEUE] = "queue",       [HTTP_PHASE_CONNECT] = "connect",
        [HTTP_PHASE_TLS] = "tls",           [HTTP_PHASE_GATE] = "gate",
        [HTTP_PHASE_SENT] = "sent",         [HTTP_PHASE_REPLY] = "reply",
        [HTTP_PHASE_COMPLETE] = "complete",
    };

    return (size_t)phase < sizeof(names) / sizeof(names[0]) ? names[phase] : "?";
}

int http_global_init(struct err *err)
{
    CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);

    if (code != CURLE_OK)
        return err_set(err, -EIO, "could not start libcurl: %s", curl_easy_strerror(code));
    return 0;
}

void http_global_done(void)
{
    curl_global_cleanup();
}

/* --- running what libcurl wants to run ------------------------------------------------------- */

static void cut_aborted(struct http_pool *pool)
{
    pool->aborts = false;
    for (unsigned i = 0; i < pool->lanes_count; i++) {
        struct http_call *call = pool->lanes[i].calls;

        while (call) {
            if (call->aborted) {
                http_lane_cut(call);
                call = pool->lanes[i].calls; /* `done` may have changed the list */
            } else {
                call = call->next;
            }
        }
    }
}

static bool run_kicked(struct http_pool *pool)
{
    bool more = false;

    if (pool->aborts)
        cut_aborted(pool);
    for (unsigned i = 0; i < pool->lanes_count; i++) {
        struct http_lane *lane = &pool->lanes[i];

        if (!lane->kicked)
            continue;
        lane->kicked = false;
        http_lane_act(lane, CURL_SOCKET_TIMEOUT, 0);
    }
    for (unsigned i = 0; i < pool->lanes_count; i++)
        more = more || pool->lanes[i].kicked;
    return more || pool->aborts;
}

static void on_prepare(struct ev_loop *loop, ev_prepare *prepare, int events)
{
    struct http_pool *pool = prepare->data;
    int rounds = 0;
    bool more = true;

    (void)events;
    while (more && rounds++ < ROUNDS_MAX)
        more = run_kicked(pool);
    if (more) {
        ev_idle_start(loop, &pool->idle); /* no sleep: we are called again after this turn */
    } else {
        ev_prepare_stop(loop, prepare);
        ev_idle_stop(loop, &pool->idle);
    }
}

void http_pool_run(struct http_pool *pool)
{
    run_kicked(pool);
}

void http_pool_between(struct http_pool *pool)
{
    if (pool->options.between)
        pool->options.between(pool->options.between_arg);
}

static void on_idle(struct ev_loop *loop, ev_idle *idle, int events)
{
    (void)events;
    ev_idle_stop(loop, idle);
}

void http_pool_kick(struct http_pool *pool)
{
    ev_prepare_start(pool->loop, &pool->prepare);
}

/* --- the pool -------------------------------------------------------------------------------- */

static int set_up(struct http_pool *pool, const struct http_options *options, struct err *err)
{
    unsigned lanes = (options->max_calls + CALLS_PER_LANE - 1) / CALLS_PER_LANE;

    pool->options = *options;
    pool->options.ca_file = NULL;
    lanes = lanes > LANES_MAX ? LANES_MAX : lanes;
    pool->lane_cap = (options->max_calls + lanes - 1) / lanes;
    if (options->ca_file && !(pool->ca_file = strdup(options->ca_file)))
        return -ENOMEM;
    pool->lanes = calloc(lanes, sizeof(*pool->lanes));
    if (!pool->lanes || http_socks_init(&pool->socks, options->max_calls) != 0)
        return -ENOMEM;
    for (; pool->lanes_count < lanes; pool->lanes_count++) {
        int rc = http_lane_init(&pool->lanes[pool->lanes_count], pool, err);
        if (rc)
            return rc;
    }
    return 0;
}

int http_pool_new(struct ev_loop *loop, const struct http_options *options,
                  struct http_pool **ret_pool, struct err *err)
{
    if (options->max_calls < 1 || options->max_calls > 100000)
        return err_set(err, -EINVAL, "calls in the air are %u, must be 1 to 100000",
                       options->max_calls);
    struct http_pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return err_set(err, -ENOMEM, "out of memory");
    pool->loop = loop;
    ev_prepare_init(&pool->prepare, on_prepare);
    pool->prepare.data = pool;
    ev_idle_init(&pool->idle, on_idle);
    int rc = set_up(pool, options, err);
    if (rc) {
        http_pool_free(pool);
        return rc;
    }
    *ret_pool = pool;
    return 0;
}

void http_pool_free(struct http_pool *pool)
{
    struct http_call *call;

    if (!pool)
        return;
    for (unsigned i = 0; i < pool->lanes_count; i++)
        http_lane_done(&pool->lanes[i]);
    while ((call = pool->free_calls) != NULL) {
        pool->free_calls = call->next;
        http_call_free(call);
    }
    ev_prepare_stop(pool->loop, &pool->prepare);
    ev_idle_stop(pool->loop, &pool->idle);
    http_socks_done(&pool->socks);
    free(pool->lanes);
    free(pool->ca_file);
    free(pool);
}

unsigned http_pool_active(const struct http_pool *pool)
{
    return pool->active;
}

/* --- calls ----------------------------------------------------------------------------------- */

static void put_aside(struct http_pool *pool, struct http_call *call)
{
    http_call_clear(call);
    call->next = pool->free_calls;
    pool->free_calls = call;
}

static struct http_call *take(struct http_pool *pool)
{
    struct http_call *call = pool->free_calls;

    if (!call)
        return http_call_new(pool);
    pool->free_calls = call->next;
    return call;
}

void http_pool_ended(struct http_pool *pool, struct http_call *call,
                     const struct http_result *result)
{
    pool->active--; /* first: `done` may start the next one */
    call->done(call->arg, result);
    put_aside(pool, call);
}

/* The first lane with room: few calls share few connections, which so stay warm. */
static struct http_lane *pick_lane(struct http_pool *pool)
{
    for (unsigned i = 0; i < pool->lanes_count; i++)
        if (pool->lanes[i].active < pool->lane_cap)
            return &pool->lanes[i];
    return NULL;
}

int http_start(struct http_pool *pool, const struct http_request *request, http_done_fn *done,
               struct http_call **ret_call, struct err *err)
{
    struct http_lane *lane = pick_lane(pool);

    if (!lane || pool->active >= pool->options.max_calls)
        return err_set(err, -EAGAIN, "all %u calls are in the air", pool->options.max_calls);
    struct http_call *call = take(pool);
    if (!call)
        return err_set(err, -ENOMEM, "out of memory for a call");
    call->done = done;
    int rc = http_call_prepare(call, request, err);
    if (rc == 0)
        rc = http_lane_add(lane, call, err);
    if (rc) {
        put_aside(pool, call);
        return rc;
    }
    pool->active++;
    if (ret_call)
        *ret_call = call;
    return 0;
}

void http_abort(struct http_call *call)
{
    if (call->state != HTTP_CALL_RUNNING)
        return; /* `done` is on its way */
    call->aborted = true;
    call->pool->aborts = true;
    http_pool_kick(call->pool);
}
