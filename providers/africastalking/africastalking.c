/* Africa's Talking: one recipient a request, as JSON ("bulk") or as a form ("legacy"). The answer
 * of 201 says per recipient what became of it. See README.md. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/callback.h"
#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/request.h"
#include "providers/kit/sender.h"
#include "providers/kit/settings.h"
#include "providers/kit/verdict.h"
#include "providers/provider.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum { API_BULK, API_LEGACY };

struct at_self {
    const struct provider_host *host;
    char *url, *username, *api_key, *from;
    size_t api;
    bool enqueue;
};

static void at_close(void *arg)
{
    struct at_self *self = arg;

    if (!self)
        return;
    free(self->url);
    free(self->username);
    free(self->api_key);
    free(self->from);
    free(self);
}

static int at_open(const struct provider_host *host, const char *settings_json,
                   struct provider_report *report, void **ret_self)
{
    static const char *const apis[] = {"bulk", "legacy", NULL};
    struct at_self *self = calloc(1, sizeof(*self));
    struct settings s;
    int r;

    if (!self)
        return -ENOMEM;
    self->host = host;
    if (settings_begin(&s, host, settings_json, report) == 0) {
        self->api = settings_word(&s, "api", apis, API_BULK);
        self->url = settings_url(&s, "url", "https://api.africastalking.com");
        self->username = settings_text(&s, "username", NULL);
        self->api_key = settings_text(&s, "api_key", NULL);
        self->from = settings_text(&s, "from", "");
        if (self->from && sender_kind(self->from) == SENDER_BAD)
            settings_refuse(&s, "from", NULL, SENDER_RULE);
        if (self->api == API_LEGACY)
            self->enqueue = settings_bool(&s, "enqueue", true);
        else if (settings_has(&s, "enqueue"))
            settings_refuse(&s, "enqueue", "leave it out, or set \"api\": \"legacy\"",
                            "is a field of the legacy form");
    }
    r = settings_end(&s);
    if (r < 0) {
        at_close(self);
        return r;
    }
    *ret_self = self;
    return 0;
}

static void at_describe(const void *arg, struct provider_caps *ret)
{
    (void)arg;
    ret->receipts = PROVIDER_RECEIPTS_UNSIGNED;
    ret->receipts_by_id = true; /* the callback URL is set in their dashboard, once for all */
    ret->number = PROVIDER_NUMBER_PLUS;
}

/* ---- build ---------------------------------------------------------------------------------- */

static int build_legacy(const struct at_self *self, const struct provider_msg *msg,
                        const char *sender, const char *url, struct provider_req *req)
{
    struct form body = {0};
    int r;

    form_add(&body, "username", self->username);
    form_add(&body, "to", msg->recipient);
    form_add_n(&body, "message", msg->body, msg->body_len);
    form_add(&body, "from", sender);
    form_add(&body, "bulkSMSMode", "1");
    form_add(&body, "enqueue", self->enqueue ? "1" : NULL);
    r = body.error;
    if (r == 0)
        r = request_post(self->host, req, url, NULL, "application/x-www-form-urlencoded", body.text,
                         body.len);
    form_done(&body);
    return r;
}

static int build_bulk(const struct at_self *self, const struct provider_msg *msg,
                      const char *sender, const char *url, struct provider_req *req)
{
    json_t *body = json_object();
    int r = 0;

    r |= json_object_set_new(body, "username", json_string(self->username));
    r |= json_object_set_new(body, "message", json_stringn(msg->body, msg->body_len));
    if (sender)
        r |= json_object_set_new(body, "senderId", json_string(sender));
    r |= json_object_set_new(body, "phoneNumbers", json_pack("[s]", msg->recipient));
    if (r != 0) {
        json_decref(body);
        body = NULL;
    }
    return request_post_json(self->host, req, url, NULL, body);
}

static int at_build(const void *arg, const struct provider_msg *msg, struct provider_req *req)
{
    const struct at_self *self = arg;
    const char *sender = msg->sender ? msg->sender : self->from;
    struct form url = {0};
    int r;

    if (sender && sender_kind(sender) == SENDER_BAD)
        return -EINVAL;
    form_printf(&url, "%s/version1/messaging%s", self->url, self->api == API_BULK ? "/bulk" : "");
    r = url.error;
    if (r == 0)
        r = self->api == API_BULK ? build_bulk(self, msg, sender, url.text, req)
                                  : build_legacy(self, msg, sender, url.text, req);
    if (r == 0)
        r = self->host->req_header(req, "apiKey", self->api_key);
    form_done(&url);
    return r;
}

/* ---- judge ---------------------------------------------------------------------------------- */

/* A recipient's statusCode, under 2xx and 4xx alike: night-time promotions to Nigeria get 409. */
static const struct verdict_row rows[] = {
    {"401", 0, PROVIDER_HELD, VERDICT_PLAIN},       /* RiskHold */
    {"402", 0, PROVIDER_HELD, VERDICT_PLAIN},       /* InvalidSenderId */
    {"403", 0, PROVIDER_REJECTED, VERDICT_PLAIN},   /* InvalidPhoneNumber */
    {"404", 0, PROVIDER_REJECTED, VERDICT_PLAIN},   /* UnsupportedNumberType */
    {"405", 0, PROVIDER_HELD, VERDICT_PLAIN},       /* InsufficientBalance */
    {"406", 0, PROVIDER_REJECTED, VERDICT_OPT_OUT}, /* UserInBlacklist */
    {"407", 0, PROVIDER_REJECTED, VERDICT_PLAIN},   /* CouldNotRoute */
    {"409", 0, PROVIDER_REJECTED, VERDICT_PLAIN},   /* DoNotDisturbRejection */
    {"500", 0, PROVIDER_REFUSED, VERDICT_PLAIN},    /* InternalServerError, of this recipient */
    {"501", 0, PROVIDER_REFUSED, VERDICT_PLAIN},    /* GatewayError */
    {"502", 0, PROVIDER_REJECTED, VERDICT_PLAIN},   /* RejectedByGateway */
};

static int judge_foreign(const struct at_self *self, const struct provider_reply *reply,
                         struct provider_verdict *v)
{
    struct verdict_row plain = {.outcome = verdict_of_status(reply->status)};

    return verdict_say(self->host, v, &plain, NULL, "the answer is not in Africa's Talking's form");
}

/* 100 Processed, 101 Sent, 102 Queued; failures carry the id "None". */
static bool is_taken(int status, const char *code, const char *id)
{
    return status / 100 == 2 && id && *id && strcmp(id, "None") != 0 &&
           (strcmp(code, "100") == 0 || strcmp(code, "101") == 0 || strcmp(code, "102") == 0);
}

static int judge_recipient(const struct at_self *self, const struct provider_reply *reply,
                           const json_t *recipient, struct provider_verdict *v)
{
    static const struct verdict_row accepted = {.outcome = PROVIDER_ACCEPTED};
    const char *id = json_text_at(recipient, "messageId");
    const char *words = json_text_at(recipient, "status");
    const struct verdict_row *row;
    char buf[24];
    const char *code = json_word_at(recipient, "statusCode", buf, sizeof(buf));
    int r;

    if (!code)
        return judge_foreign(self, reply, v);
    if (is_taken(reply->status, code, id)) {
        r = self->host->verdict_id(v, id, strlen(id));
        return r < 0 ? r : verdict_say(self->host, v, &accepted, NULL, NULL);
    }
    /* No row: a code we do not know, or "sent" without an id. Neither proves anything. */
    row = verdict_find(rows, COUNT(rows), reply->status, code);
    return verdict_say(self->host, v, row, code, words);
}

static int at_judge(const void *arg, const struct provider_reply *reply, struct provider_verdict *v)
{
    static const struct verdict_row nobody = {.outcome = PROVIDER_HELD};
    const struct at_self *self = arg;
    json_t *root = json_body(reply->body, reply->body_len);
    const json_t *list = json_path(root, "SMSMessageData/Recipients");
    const char *words = json_text_at(root, "SMSMessageData/Message");
    int r;

    if (!json_is_array(list) || reply->status / 100 == 5 || reply->status / 100 == 3)
        r = judge_foreign(self, reply, v);
    else if (json_array_size(list) == 0 && words) /* "InvalidSenderId": nobody was written to */
        r = verdict_say(self->host, v, &nobody, words, words);
    else if (json_array_size(list) == 1)
        r = judge_recipient(self, reply, json_array_get(list, 0), v);
    else
        r = verdict_say(self->host, v, NULL, NULL, "not one recipient in the answer");
    json_decref(root);
    return r;
}

/* ---- receipts ------------------------------------------------------------------------------- */

static int report(const struct at_self *self, const struct provider_callback *cb,
                  const char *status, struct provider_events *out)
{
    static const struct {
        const char *name;
        uint32_t status;
    } map[] = {
        {"Success", PROVIDER_STATUS_DELIVERED},
        {"Failed", PROVIDER_STATUS_UNDELIVERED},
        {"AbsentSubscriber", PROVIDER_STATUS_UNDELIVERED},
        {"Rejected", PROVIDER_STATUS_REJECTED},
        {"Expired", PROVIDER_STATUS_REJECTED}, /* "discarded by the telco's filter" */
        {"Sent", PROVIDER_STATUS_IN_TRANSIT},
        {"Submitted", PROVIDER_STATUS_IN_TRANSIT},
        {"Buffered", PROVIDER_STATUS_IN_TRANSIT},
    };
    struct provider_receipt r = {
        .vendor_id = callback_form(cb, "id"),
        .code = callback_form(cb, "failureReason"),
        .detail = status,
    };

    if (!r.vendor_id || !*r.vendor_id)
        return -EBADMSG;
    if (r.code && !*r.code)
        r.code = NULL;
    for (size_t i = 0; i < COUNT(map); i++)
        if (strcmp(status, map[i].name) == 0) {
            r.status = map[i].status;
            return self->host->receipt(out, &r);
        }
    return -EBADMSG;
}

/* A person's message, or the vendor's note that a person left a bulk sender: the same to us. */
static int inbound(const struct at_self *self, const struct provider_callback *cb,
                   struct provider_events *out)
{
    struct provider_inbound in = {
        .from = callback_form(cb, "from"),
        .to = callback_form(cb, "to"),
        .text = callback_form(cb, "text"),
        .id = callback_form(cb, "id"),
    };

    if (!in.from && !in.text && callback_form(cb, "senderId")) {
        in.from = callback_form(cb, "phoneNumber");
        in.to = callback_form(cb, "senderId");
        in.text = "STOP";
    }
    return in.from && in.text ? self->host->inbound(out, &in) : -EBADMSG;
}

static int at_receipt(const void *arg, const struct provider_callback *cb,
                      struct provider_events *out)
{
    const struct at_self *self = arg;
    const char *status = callback_form(cb, "status");

    return status ? report(self, cb, status, out) : inbound(self, cb, out);
}

__attribute__((visibility("default"))) const struct provider *provider_entry(void)
{
    static const struct provider provider = {
        .abi_major = 1,
        .abi_minor = 1,
        .size = sizeof(struct provider),
        .name = "africastalking",
        .open = at_open,
        .close = at_close,
        .describe = at_describe,
        .build = at_build,
        .judge = at_judge,
        .receipt = at_receipt,
    };

    return &provider;
}
