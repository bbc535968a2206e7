#include "worker/core/err.h"
#include "worker/io/http_internal.h"

#include <errno.h>

static void kick(struct http_lane *lane)
{
    lane->kicked = true;
    http_pool_kick(lane->pool);
}

/* libcurl keeps one timer with us. Never calls libcurl: we are inside it. */
static int on_timer(CURLM *multi, long ms, void *arg)
{
    struct http_lane *lane = arg;

    (void)multi;
    ev_timer_stop(lane->pool->loop, &lane->timer);
    lane->kicked = false;
    if (ms == 0) {
        kick(lane); /* not a timer of 0: libev would sleep a millisecond */
    } else if (ms > 0) {
        ev_timer_set(&lane->timer, (double)ms / 1000.0, 0.);
        ev_timer_start(lane->pool->loop, &lane->timer);
    }
    return 0;
}

static void on_timeout(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop;
    (void)events;
    http_lane_act(timer->data, CURL_SOCKET_TIMEOUT, 0);
}

static CURLM *open_multi(struct http_lane *lane)
{
    CURLM *multi = curl_multi_init();
    /* Room for the connection that replaces a dirty one, too. */
    long connects = (long)lane->pool->lane_cap + 8;

    if (!multi)
        return NULL;
    if (curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, http_sock_on_poll) ||
        curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, lane) ||
        curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer) ||
        curl_multi_setopt(multi, CURLMOPT_TIMERDATA, lane) ||
        curl_multi_setopt(multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING) ||
        curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, connects)) {
        curl_multi_cleanup(multi);
        return NULL;
    }
    return multi;
}

int http_lane_init(struct http_lane *lane, struct http_pool *pool, struct err *err)
{
    lane->pool = pool;
    ev_timer_init(&lane->timer, on_timeout, 0., 0.);
    lane->timer.data = lane;
    lane->multi = open_multi(lane);
    return lane->multi ? 0 : err_set(err, -ENOMEM, "could not set up libcurl");
}

static void enlist(struct http_lane *lane, struct http_call *call)
{
    call->prev = NULL;
    call->next = lane->calls;
    if (call->next)
        call->next->prev = call;
    lane->calls = call;
    lane->active++;
    call->lane = lane;
    call->state = HTTP_CALL_RUNNING;
}

/* Out of the multi and of the list; its sockets are closed or back in libcurl's cache. */
static void delist(struct http_call *call)
{
    struct http_lane *lane = call->lane;

    curl_multi_remove_handle(lane->multi, call->easy);
    http_sock_forget(call);
    if (call->prev)
        call->prev->next = call->next;
    else
        lane->calls = call->next;
    if (call->next)
        call->next->prev = call->prev;
    lane->active--;
    call->state = HTTP_CALL_ENDING;
}

int http_lane_add(struct http_lane *lane, struct http_call *call, struct err *err)
{
    if (!lane->multi)
        lane->multi = open_multi(lane);
    if (!lane->multi)
        return err_set(err, -ENOMEM, "could not set up libcurl");
    enlist(lane, call);
    CURLMcode rc = curl_multi_add_handle(lane->multi, call->easy);
    if (rc == CURLM_OK)
        return 0;
    delist(call);
    return err_set(err, -EIO, "libcurl did not take the call: %s", curl_multi_strerror(rc));
}

static void finish(struct http_call *call, CURLcode code, const char *why)
{
    struct http_lane *lane = call->lane;
    struct http_result result;

    http_call_result(call, code, why, &result);
    delist(call);
    if (result.dirty && http_call_retry(call) && http_lane_add(lane, call, NULL) == 0)
        return;
    http_pool_ended(lane->pool, call, &result);
}

void http_lane_cut(struct http_call *call)
{
    finish(call, CURLE_ABORTED_BY_CALLBACK, "given up by us");
}

/* After an error of the multi itself nobody can say how its transfers stand: each ends with
 * the permits we counted, and a new multi takes over before anyone is told. */
static void rebuild(struct http_lane *lane, const char *why)
{
    struct http_call *calls = NULL;
    struct http_call *call;

    while ((call = lane->calls) != NULL) {
        delist(call);
        call->next = calls;
        calls = call;
    }
    curl_multi_cleanup(lane->multi);
    ev_timer_stop(lane->pool->loop, &lane->timer);
    lane->kicked = false;
    lane->multi = open_multi(lane);
    while ((call = calls) != NULL) {
        struct http_result result;

        calls = call->next;
        http_call_result(call, CURLE_FAILED_INIT, why, &result);
        http_pool_ended(lane->pool, call, &result);
    }
}

static void drain(struct http_lane *lane)
{
    CURLMsg *msg;
    int left;

    while (lane->multi && (msg = curl_multi_info_read(lane->multi, &left)) != NULL) {
        struct http_call *call = NULL;
        CURLcode code = msg->data.result; /* msg is gone once the handle is removed */

        if (msg->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&call);
        finish(call, code, NULL);
    }
}

void http_lane_act(struct http_lane *lane, curl_socket_t fd, int mask)
{
    int running;

    if (!lane->multi)
        return;
    CURLMcode rc = curl_multi_socket_action(lane->multi, fd, mask, &running);
    if (rc == CURLM_OK)
        drain(lane);
    else
        rebuild(lane, curl_multi_strerror(rc));
}

void http_lane_done(struct http_lane *lane)
{
    struct http_call *call;

    if (!lane->pool)
        return; /* never set up */
    while ((call = lane->calls) != NULL) {
        delist(call);
        http_call_free(call);
    }
    if (lane->multi)
        curl_multi_cleanup(lane->multi);
    ev_timer_stop(lane->pool->loop, &lane->timer);
}
