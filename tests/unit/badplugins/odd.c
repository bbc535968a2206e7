/* Loads, then misbehaves: `build` as the message's kind says, `judge` as the status says. */
#include <errno.h>
#include <string.h>

#include "tests/unit/badplugins/base.h"

static bool is(const struct provider_msg *msg, const char *kind)
{
    return strcmp(msg->kind, kind) == 0;
}

static int build(const void *self, const struct provider_msg *msg, struct provider_req *req)
{
    const struct provider_host *h = base_host;

    (void)self;
    if (is(msg, "error"))
        return -EBADMSG;
    if (is(msg, "positive"))
        return 7;
    if (is(msg, "no memory"))
        return -ENOMEM;
    if (!is(msg, "no method"))
        h->req_method(req, is(msg, "bad method") ? "PO ST" : "POST");
    if (!is(msg, "no url"))
        h->req_url(req, is(msg, "bad url") ? "file:///etc/passwd" : "http://127.0.0.1/");
    if (is(msg, "url twice"))
        h->req_url(req, "http://127.0.0.2/");
    /* The answers are ignored: the host must remember. */
    if (is(msg, "header"))
        h->req_header(req, msg->sender, msg->body);
    if (is(msg, "many headers"))
        for (int i = 0; i < 1000; i++)
            h->req_header(req, "X-A", "b");
    h->req_body(req, msg->body, msg->body_len);
    if (is(msg, "body twice"))
        h->req_body(req, msg->body, msg->body_len);
    return 0;
}

static int judge(const void *self, const struct provider_reply *reply, struct provider_verdict *v)
{
    const struct provider_host *h = base_host;

    (void)self;
    switch (reply->status) {
    case 210:
        return 0;
    case 211:
        h->verdict(v, PROVIDER_REJECTED);
        h->verdict(v, PROVIDER_REJECTED);
        return 0;
    case 212:
        h->verdict(v, PROVIDER_OUTCOME_MAX_);
        return 0;
    case 213:
        h->verdict(v, PROVIDER_ACCEPTED);
        return 0;
    case 214:
        h->verdict(v, PROVIDER_REJECTED);
        return -EIO;
    case 215:
        h->verdict_id(v, reply->body, reply->body_len);
        h->verdict(v, PROVIDER_ACCEPTED);
        return 0;
    case 216:
        h->verdict(v, PROVIDER_REJECTED);
        return -ENOMEM;
    case 217:
        h->verdict_opt_out(v);
        h->verdict_code(v, reply->body, reply->body_len);
        h->verdict_detail(v, reply->body, reply->body_len);
        h->verdict(v, PROVIDER_REJECTED);
        return 0;
    case 218:
        h->verdict_opt_out(v);
        h->verdict_retry_after(v, -5);
        h->verdict(v, PROVIDER_THROTTLED);
        return 0;
    case 219:
        h->verdict_retry_after(v, 2500);
        h->verdict(v, PROVIDER_HELD);
        return 0;
    case 220:
        h->verdict(v, PROVIDER_REFUSED);
        return 3;
    default:
        h->verdict_id(v, "id", 2);
        h->verdict(v, PROVIDER_ACCEPTED);
        return 0;
    }
}

const struct provider *provider_entry(void)
{
    static struct provider table = BASE_TABLE("odd");

    table.build = build;
    table.judge = judge;
    return &table;
}
