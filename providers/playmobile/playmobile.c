/* PlayMobile.uz (smsxabar, broker-api), Uzbekistan. See README.md.
 *
 * One message a request: a refusal is always of the whole request. The vendor gives no id; ours
 * (message-id) is the only one. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "providers/kit/callback.h"
#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/request.h"
#include "providers/kit/sender.h"
#include "providers/kit/settings.h"
#include "providers/kit/verdict.h"
#include "providers/kit/when.h"
#include "providers/provider.h"

struct pm_self {
    const struct provider_host *host;
    char *url, *from;
    char *authorization; /* "Basic …" */
    char *accepted_text;
    bool timing;
    int timing_offset_min;
    bool receipts;
    char *receipt_id, *receipt_status;
};

/* ---- settings ------------------------------------------------------------------------------- */

static void pm_close(void *arg)
{
    struct pm_self *self = arg;

    if (!self)
        return;
    free(self->url);
    free(self->from);
    free(self->authorization);
    free(self->accepted_text);
    free(self->receipt_id);
    free(self->receipt_status);
    free(self);
}

static int read_settings(struct pm_self *self, struct settings *s)
{
    char *login = settings_text(s, "login", NULL);
    char *password = settings_text(s, "password", NULL);
    int r = 0;

    self->url = settings_url(s, "url", "https://send.smsxabar.uz");
    self->from = settings_text(s, "from", "3700");
    self->accepted_text = settings_text(s, "accepted_text", "Request is received");
    self->timing = settings_bool(s, "timing", false);
    self->timing_offset_min = (int)settings_int(s, "timing_utc_offset_min", 0, -720, 840);
    self->receipts = settings_bool(s, "receipts", false);
    self->receipt_id = settings_text(s, "receipt_id", "message-id");
    self->receipt_status = settings_text(s, "receipt_status", "status");
    if (login && strchr(login, ':'))
        (void)settings_refuse(s, "login", NULL, "cannot hold a colon");
    if (self->from && sender_kind(self->from) == SENDER_BAD)
        (void)settings_refuse(s, "from", "your originator at PlayMobile, such as 3700", "%s",
                              SENDER_RULE);
    if (login && password && !(self->authorization = request_basic(login, password)))
        r = -ENOMEM;
    free(login);
    free(password);
    return r;
}

static int pm_open(const struct provider_host *host, const char *settings_json,
                   struct provider_report *report, void **ret_self)
{
    struct pm_self *self = calloc(1, sizeof(*self));
    struct settings s;
    int r, end;

    if (!self)
        return -ENOMEM;
    self->host = host;
    r = settings_begin(&s, host, settings_json, report);
    if (r == 0)
        r = read_settings(self, &s);
    end = settings_end(&s);
    r = r < 0 ? r : end;
    if (r < 0) {
        pm_close(self);
        return r;
    }
    *ret_self = self;
    return 0;
}

static void pm_describe(const void *arg, struct provider_caps *ret)
{
    const struct pm_self *self = arg;

    ret->answers_without_id = true;
    ret->receipts = self->receipts ? PROVIDER_RECEIPTS_UNSIGNED : PROVIDER_RECEIPTS_NONE;
    ret->number = PROVIDER_NUMBER_DIGITS;
    ret->validity = self->timing ? PROVIDER_VALIDITY_ABSOLUTE : PROVIDER_VALIDITY_NONE;
}

/* ---- build ---------------------------------------------------------------------------------- */

/* "2026-11-30 22:10": the vendor reads no seconds. */
static json_t *minute(const struct pm_self *self, int64_t unix_ms)
{
    char buf[WHEN_SIZE];

    return json_stringn(when_local(unix_ms, self->timing_offset_min, buf),
                        strlen("2026-11-30 22:10"));
}

/* The end is rounded up: rounded down a one-time code's last minute would be over before it
 * began. */
static json_t *timing_of(const struct pm_self *self, const struct provider_msg *msg)
{
    json_t *timing = json_object();
    int bad = 0;

    bad |= json_object_set_new(timing, "start-datetime", minute(self, msg->created_ms));
    bad |= json_object_set_new(timing, "end-datetime", minute(self, msg->expires_ms + 59999));
    bad |= json_object_set_new(timing, "send-evenly", json_integer(0));
    if (bad) {
        json_decref(timing);
        return NULL;
    }
    return timing;
}

/* Where receipts are read, message-id is the id they are matched by; else the key, which serves
 * should the vendor ever refuse a repeat. Both stay the same for all tries of a message. */
static const char *message_id(const struct pm_self *self, const struct provider_msg *msg)
{
    return self->receipts ? msg->id : msg->key;
}

/* NULL: out of memory, or a text that is not UTF-8. Members in this order, always. */
static json_t *body_of(const struct pm_self *self, const struct provider_msg *msg)
{
    const char *digits = msg->recipient + (*msg->recipient == '+');
    json_auto_t *body = json_object();
    json_t *list = json_array(), *entry = json_object(), *sms = json_object();
    json_t *content = json_object();
    int bad = 0;

    bad |= json_object_set_new(content, "text", json_stringn(msg->body, msg->body_len));
    bad |=
        json_object_set_new(sms, "originator", json_string(msg->sender ? msg->sender : self->from));
    bad |= json_object_set_new(sms, "content", content);
    bad |= json_object_set_new(entry, "recipient", json_string(digits));
    bad |= json_object_set_new(entry, "message-id", json_string(message_id(self, msg)));
    bad |= json_object_set_new(entry, "sms", sms);
    bad |= json_array_append_new(list, entry);
    bad |= json_object_set_new(body, "messages", list);
    if (self->timing)
        bad |= json_object_set_new(body, "timing", timing_of(self, msg));
    return bad ? NULL : json_incref(body);
}

/* Without an Accept header: the answer is plain text, and whoever asks for JSON alone may be
 * refused it after the message was taken. */
static int fill(const struct pm_self *self, struct provider_req *req, const char *url,
                const char *text)
{
    const struct provider_host *host = self->host;
    int r = host->req_method(req, "POST");

    if (r == 0)
        r = host->req_url(req, url);
    if (r == 0)
        r = host->req_header(req, "Authorization", self->authorization);
    if (r == 0)
        r = host->req_header(req, "Content-Type", "application/json");
    return r == 0 ? host->req_body(req, text, strlen(text)) : r;
}

static int pm_build(const void *arg, const struct provider_msg *msg, struct provider_req *req)
{
    const struct pm_self *self = arg;
    json_auto_t *body = NULL;
    struct form url = {0};
    char *text;
    int r;

    if (msg->sender && sender_kind(msg->sender) == SENDER_BAD)
        return -EINVAL;
    body = body_of(self, msg);
    if (!body)
        return -EINVAL;
    text = json_text(body);
    form_printf(&url, "%s/broker-api/send", self->url);
    r = text ? url.error : -ENOMEM;
    if (r == 0)
        r = fill(self, req, url.text, text);
    form_done(&url);
    free(text);
    return r;
}

/* ---- judge ---------------------------------------------------------------------------------- */

/* Codes of the body of a 400, which is never taken, not even in part. Timing and retry members are
 * ours to set up, so those codes hold the queue instead of failing it message by message. A code
 * nobody told us of may mean this message or the account: it is tried again, here or elsewhere,
 * within its attempts. */
static const struct verdict_row codes[] = {
    {"100", 400, PROVIDER_REFUSED, VERDICT_PLAIN},  /* internal */
    {"101", 400, PROVIDER_REJECTED, VERDICT_PLAIN}, /* syntax */
    {"102", 400, PROVIDER_HELD, VERDICT_PLAIN},     /* account locked */
    {"103", 400, PROVIDER_HELD, VERDICT_PLAIN},     /* no channel */
    {"104", 400, PROVIDER_HELD, VERDICT_PLAIN},     /* priority */
    {"105", 400, PROVIDER_REJECTED, VERDICT_PLAIN}, /* too many ids */
    {"202", 400, PROVIDER_REJECTED, VERDICT_PLAIN}, /* no recipient */
    {"204", 400, PROVIDER_REJECTED, VERDICT_PLAIN}, /* recipient */
    {"205", 400, PROVIDER_REJECTED, VERDICT_PLAIN}, /* no message-id */
    {"206", 400, PROVIDER_REJECTED, VERDICT_PLAIN}, /* variables */
    {"301", 400, PROVIDER_HELD, VERDICT_PLAIN},     /* timing: 301 to 306 */
    {"302", 400, PROVIDER_HELD, VERDICT_PLAIN},
    {"303", 400, PROVIDER_HELD, VERDICT_PLAIN},
    {"304", 400, PROVIDER_HELD, VERDICT_PLAIN},
    {"305", 400, PROVIDER_HELD, VERDICT_PLAIN},
    {"306", 400, PROVIDER_HELD, VERDICT_PLAIN},
    {"401", 400, PROVIDER_HELD, VERDICT_PLAIN},     /* no originator */
    {"402", 400, PROVIDER_HELD, VERDICT_PLAIN},     /* originator */
    {"403", 400, PROVIDER_HELD, VERDICT_PLAIN},     /* time to live */
    {"404", 400, PROVIDER_REJECTED, VERDICT_PLAIN}, /* no content */
    {"405", 400, PROVIDER_REJECTED, VERDICT_PLAIN}, /* content */
    {"406", 400, PROVIDER_REJECTED, VERDICT_PLAIN}, /* content */
    {"407", 400, PROVIDER_HELD, VERDICT_PLAIN},     /* time to live */
    {"408", 400, PROVIDER_HELD, VERDICT_PLAIN},     /* retry settings */
    {"410", 400, PROVIDER_HELD, VERDICT_PLAIN},
    {"411", 400, PROVIDER_HELD, VERDICT_PLAIN},
    {NULL, 400, PROVIDER_REFUSED, VERDICT_PLAIN},
};

/* Both spellings occur, as number or text. */
static const char *code_of(const json_t *body, char *buf, size_t size)
{
    const char *code = json_word_at(body, "error-code", buf, size);

    return code ? code : json_word_at(body, "error_code", buf, size);
}

static const char *words_of(const json_t *body)
{
    const char *words = json_text_at(body, "error-description");

    return words ? words : json_text_at(body, "error_description");
}

/* Whether the text is the expected one, blanks and quotes around it and its case aside. */
static bool is_text(const struct provider_reply *reply, const char *expected)
{
    static const char around[] = " \t\r\n\"";
    const char *at = reply->body;
    size_t len = reply->body_len, want = strlen(expected);

    while (len > 0 && strchr(around, *at))
        at++, len--;
    while (len > 0 && strchr(around, at[len - 1]))
        len--;
    if (len == want + 1 && at[want] == '.')
        len--;
    return len == want && strncasecmp(at, expected, want) == 0;
}

static int judge_ok(const struct pm_self *self, const struct provider_reply *reply,
                    struct provider_verdict *v, const json_t *body)
{
    static const struct verdict_row accepted = {NULL, 0, PROVIDER_ACCEPTED, VERDICT_PLAIN};
    char buf[24];

    if (!body && is_text(reply, self->accepted_text))
        return verdict_say(self->host, v, &accepted, NULL, NULL);
    if (body)
        return verdict_say(self->host, v, NULL, code_of(body, buf, sizeof(buf)), words_of(body));
    return verdict_say(self->host, v, NULL, NULL,
                       reply->body_len == 0 ? "an empty answer"
                                            : "the answer is not the one that accepted_text names");
}

static int pm_judge(const void *arg, const struct provider_reply *reply, struct provider_verdict *v)
{
    const struct pm_self *self = arg;
    json_auto_t *body = reply->complete ? json_body(reply->body, reply->body_len) : NULL;
    struct verdict_row by_status = {NULL, 0, verdict_of_status(reply->status), VERDICT_PLAIN};
    char buf[24];
    const char *code = code_of(body, buf, sizeof(buf));

    if (!reply->complete)
        return verdict_say(self->host, v, NULL, NULL, "the answer broke off");
    if (reply->status == 200)
        return judge_ok(self, reply, v, body);
    if (reply->status == 400 && code)
        return verdict_say(self->host, v,
                           verdict_find(codes, sizeof(codes) / sizeof(*codes), 400, code), code,
                           words_of(body));
    return verdict_say(self->host, v, &by_status, code,
                       body ? words_of(body) : "the answer is not JSON");
}

/* ---- receipts: unconfirmed, so off unless the settings say so -------------------------------- */

static const struct {
    const char *word;
    enum provider_status status;
} statuses[] = {
    {"Delivered", PROVIDER_STATUS_DELIVERED}, {"NotDelivered", PROVIDER_STATUS_UNDELIVERED},
    {"Failed", PROVIDER_STATUS_UNDELIVERED},  {"Rejected", PROVIDER_STATUS_REJECTED},
    {"Expired", PROVIDER_STATUS_EXPIRED},     {"Transmitted", PROVIDER_STATUS_IN_TRANSIT},
};

static enum provider_status status_of(const char *word)
{
    for (size_t i = 0; i < sizeof(statuses) / sizeof(*statuses); i++)
        if (strcasecmp(statuses[i].word, word) == 0)
            return statuses[i].status;
    return PROVIDER_STATUS_IN_TRANSIT;
}

/* JSON, form or query: whatever was agreed with the vendor. */
static const char *field(const struct provider_callback *cb, const json_t *body, const char *name)
{
    const char *text = json_text_at(body, name);

    return text ? text : callback_param(cb, name);
}

static int pm_receipt(const void *arg, const struct provider_callback *cb,
                      struct provider_events *out)
{
    const struct pm_self *self = arg;
    json_auto_t *body = json_body(cb->body, cb->body_len);
    const char *word = field(cb, body, self->receipt_status);
    struct provider_receipt receipt = {.ref = field(cb, body, self->receipt_id)};

    if (!self->receipts || !word || !receipt.ref || strlen(receipt.ref) != 36)
        return -EBADMSG;
    receipt.status = status_of(word);
    receipt.code = receipt.status == PROVIDER_STATUS_DELIVERED ? NULL : word;
    return self->host->receipt(out, &receipt);
}

__attribute__((visibility("default"))) const struct provider *provider_entry(void)
{
    static const struct provider provider = {
        .abi_major = PROVIDER_ABI_MAJOR,
        .abi_minor = PROVIDER_ABI_MINOR,
        .size = sizeof(struct provider),
        .name = "playmobile",
        .open = pm_open,
        .close = pm_close,
        .describe = pm_describe,
        .build = pm_build,
        .judge = pm_judge,
        .receipt = pm_receipt,
    };

    return &provider;
}
