/* serve_later.c - answers that come after their handler has returned. */
#include "worker/io/serve_internal.h"

#include <stdlib.h>

static void unlist(struct serve_later *l)
{
    struct serve *s = l->call->serve;

    *(l->prev ? &l->prev->next : &s->laters) = l->next;
    if (l->next)
        l->next->prev = l->prev;
    l->prev = l->next = NULL;
}

struct serve_later *serve_defer(const struct serve_request *req, serve_lost_fn *lost, void *arg)
{
    struct serve_call *call = req->call_;
    struct serve_later *l = &call->later;
    struct serve *s = call->serve;

    l->call = call;
    l->lost = lost;
    l->arg = arg;
    l->open = true;
    l->next = s->laters;
    if (l->next)
        l->next->prev = l;
    s->laters = l;
    MHD_suspend_connection(call->connection);
    return l;
}

void serve_answer(struct serve_later *later, struct serve_reply *reply)
{
    struct serve *s = later->call->serve;

    unlist(later);
    later->status = reply->status;
    later->response = serve_response_take(reply);
    later->answered = true;
    MHD_resume_connection(later->call->connection);
    ev_feed_event(s->loop, &s->io, EV_READ); /* one run of the server for all of this turn */
}

enum MHD_Result serve_later_take(struct serve_call *call)
{
    struct MHD_Response *r = call->later.response;

    call->later.response = NULL;
    return serve_queue_take(call->connection, call->later.status, r);
}

void serve_later_drop(struct serve_call *call)
{
    struct serve_later *l = &call->later;

    if (l->open && !l->answered) {
        unlist(l);
        if (l->lost)
            l->lost(l->arg);
    }
    if (l->response)
        MHD_destroy_response(l->response);
}

/* libmicrohttpd does not stop while a connection sleeps. */
void serve_later_close(struct serve *s)
{
    for (struct serve_later *l = s->laters; l; l = l->next)
        MHD_resume_connection(l->call->connection);
}
