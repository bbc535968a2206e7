/* acme.c - a plugin for "Acme SMS", a vendor that does not exist: the worked example of
 * providers/README.md. It uses all a plugin may: a request, a verdict, a look-up, receipts. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "provider.h"

struct acme {
    const struct provider_host *host;
    char *url;           /* of the messages: API root + /v1/messages */
    char *authorization; /* "Bearer …" */
};

static void acme_close(void *self)
{
    struct acme *a = self;

    if (!a)
        return;
    free(a->url);
    free(a->authorization);
    free(a);
}

static int acme_open(const struct provider_host *host, const char *settings_json,
                     struct provider_report *report, void **ret_self)
{
    json_auto_t *settings = json_loads(settings_json, 0, NULL);
    const char *url = "https://api.acme.example", *key;
    struct acme *a;
    json_error_t why;

    if (json_unpack_ex(settings, &why, JSON_STRICT, "{s?s, s:s}", "url", &url, "api_key", &key) <
        0) {
        host->refuse(report, "", why.text, "settings are api_key and url");
        return -EINVAL;
    }
    a = calloc(1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    a->host = host;
    if (asprintf(&a->url, "%s/v1/messages", url) < 0)
        a->url = NULL;
    if (asprintf(&a->authorization, "Bearer %s", key) < 0)
        a->authorization = NULL;
    if (!a->url || !a->authorization) {
        acme_close(a);
        return -ENOMEM;
    }
    *ret_self = a;
    return 0;
}

static void acme_describe(const void *self, struct provider_caps *ret)
{
    (void)self;
    ret->dedup = PROVIDER_DEDUP_REPLAY;
    ret->dedup_window_ms = 24 * 3600 * 1000;
    ret->ask = PROVIDER_ASK_BY_KEY; /* its list shows our reference */
    ret->ask_delay_ms = 5000;
    ret->absence_proves = true;
    ret->receipts = PROVIDER_RECEIPTS_UNSIGNED;
    ret->validity = PROVIDER_VALIDITY_S;
}

/* POST /v1/messages: the same bytes for every try, so that the key means the same message. */
static int acme_build(const void *self, const struct provider_msg *msg, struct provider_req *req)
{
    const struct acme *a = self;
    json_auto_t *body = json_pack("{s:s, s:s%, s:s, s:I, s:s*, s:s*}", "to", msg->recipient, "text",
                                  msg->body, msg->body_len, "reference", msg->id, "valid_s",
                                  (json_int_t)(msg->validity_ms / 1000), "from", msg->sender,
                                  "callback", msg->callback_url);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    int r = text ? 0 : -EINVAL; /* not UTF-8: this message fails, nothing was sent */

    if (r == 0)
        r = a->host->req_method(req, "POST");
    if (r == 0)
        r = a->host->req_url(req, a->url);
    if (r == 0)
        r = a->host->req_header(req, "Authorization", a->authorization);
    if (r == 0)
        r = a->host->req_header(req, "Content-Type", "application/json");
    if (r == 0)
        r = a->host->req_header(req, "Idempotency-Key", msg->key);
    if (r == 0)
        r = a->host->req_body(req, text, strlen(text));
    free(text);
    return r;
}

static const struct {
    const char *error;
    enum provider_outcome outcome;
} errors[] = {
    {"bad_number", PROVIDER_REJECTED}, {"opted_out", PROVIDER_REJECTED},
    {"too_fast", PROVIDER_THROTTLED},  {"no_credit", PROVIDER_HELD},
    {"bad_key", PROVIDER_HELD},        {"busy", PROVIDER_REFUSED}, /* says: not taken */
};

/* Acme's own form or nothing: a gateway's 200 with HTML proves nothing. */
static int acme_judge(const void *self, const struct provider_reply *reply,
                      struct provider_verdict *v)
{
    const struct provider_host *host = ((const struct acme *)self)->host;
    json_auto_t *body = json_loadb(reply->body, reply->body_len, 0, NULL);
    const char *id = json_string_value(json_object_get(body, "id"));
    const char *error = json_string_value(json_object_get(body, "error"));
    enum provider_outcome outcome = PROVIDER_UNKNOWN;
    int r = 0;

    if (reply->status == 202 && id && !error) {
        outcome = PROVIDER_ACCEPTED;
        r = host->verdict_id(v, id, strlen(id));
    }
    for (size_t i = 0; error && i < sizeof(errors) / sizeof(errors[0]); i++)
        if (strcmp(errors[i].error, error) == 0)
            outcome = errors[i].outcome;
    if (error && r == 0)
        r = host->verdict_code(v, error, strlen(error));
    if (error && strcmp(error, "opted_out") == 0)
        host->verdict_opt_out(v);
    host->verdict(v, outcome);
    return r;
}

/* GET /v1/messages?reference=ID. An id is hex digits and hyphens: nothing to escape. */
static int acme_ask(const void *self, const struct provider_question *q, struct provider_req *req)
{
    const struct acme *a = self;
    char *url = NULL;
    int r = a->host->req_method(req, "GET");

    if (asprintf(&url, "%s?reference=%s", a->url, q->msg->id) < 0)
        return -ENOMEM;
    if (r == 0)
        r = a->host->req_url(req, url);
    if (r == 0)
        r = a->host->req_header(req, "Authorization", a->authorization);
    free(url);
    return r;
}

static int acme_ask_judge(const void *self, const struct provider_question *q,
                          const struct provider_reply *reply, struct provider_answer *answer)
{
    const struct provider_host *host = ((const struct acme *)self)->host;
    json_auto_t *body = json_loadb(reply->body, reply->body_len, 0, NULL);
    const json_t *list = json_object_get(body, "messages");
    const char *id = json_string_value(json_object_get(json_array_get(list, 0), "id"));
    int r = 0;

    (void)q;
    if (reply->status == 200 && id)
        r = host->answer_id(answer, id, strlen(id));
    if (reply->status == 200 && id)
        host->answer(answer, PROVIDER_HAS_IT);
    else if (reply->status == 200 && json_is_array(list) && json_array_size(list) == 0)
        host->answer(answer, PROVIDER_NEVER_SEEN); /* their empty list, and nothing less */
    else
        host->answer(answer, PROVIDER_CANNOT_SAY);
    return r;
}

/* {"id": …, "reference": …, "state": …, "reason": …} */
static int acme_receipt(const void *self, const struct provider_callback *cb,
                        struct provider_events *out)
{
    static const char *const states[] = {"moving", "delivered", "undelivered", "expired",
                                         "rejected"};
    json_auto_t *body = json_loadb(cb->body, cb->body_len, 0, NULL);
    const char *state = json_string_value(json_object_get(body, "state"));
    struct provider_receipt r = {
        .status = PROVIDER_STATUS_MAX_,
        .ref = json_string_value(json_object_get(body, "reference")),
        .vendor_id = json_string_value(json_object_get(body, "id")),
        .code = json_string_value(json_object_get(body, "reason")),
    };

    for (uint32_t i = 0; state && i < sizeof(states) / sizeof(states[0]); i++)
        if (strcmp(states[i], state) == 0)
            r.status = i; /* the list has the order of enum provider_status */
    if (r.status == PROVIDER_STATUS_MAX_ || !r.vendor_id)
        return -EBADMSG;
    return ((const struct acme *)self)->host->receipt(out, &r);
}

const struct provider *provider_entry(void)
{
    static const struct provider acme = {
        .abi_major = PROVIDER_ABI_MAJOR,
        .abi_minor = PROVIDER_ABI_MINOR,
        .size = sizeof(struct provider),
        .name = "acme",
        .open = acme_open,
        .close = acme_close,
        .describe = acme_describe,
        .build = acme_build,
        .judge = acme_judge,
        .ask = acme_ask,
        .ask_judge = acme_ask_judge,
        .receipt = acme_receipt,
    };

    return &acme;
}
