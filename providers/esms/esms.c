/* eSMS.vn, Vietnam. See README.md.
 *
 * Everything is answered with HTTP 200 and a CodeResult. RequestId is our key: the vendor takes
 * each once a day and answers a repeat with 124, which is good news here. */
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
#include "providers/provider.h"

struct es_self {
    const struct provider_host *host;
    char *url, *api_key, *secret_key;
    char *from;     /* NULL with SmsType 8: the vendor's own number */
    char *sms_type; /* "2" */
    bool sandbox;
    int64_t dedup_window_ms;
};

/* ---- settings ------------------------------------------------------------------------------- */

static void es_close(void *arg)
{
    struct es_self *self = arg;

    if (!self)
        return;
    free(self->url);
    free(self->api_key);
    free(self->secret_key);
    free(self->from);
    free(self->sms_type);
    free(self);
}

/* The keys travel in every body: in clear text they may only reach this machine. */
static bool is_private(const char *url)
{
    static const char *const here[] = {"127.0.0.1", "localhost", "[::1]"};
    const char *host = url + strlen("http://");

    if (strncmp(url, "https://", strlen("https://")) == 0)
        return true;
    for (size_t i = 0; i < sizeof(here) / sizeof(*here); i++) {
        size_t len = strlen(here[i]);

        if (strncasecmp(host, here[i], len) == 0 && strchr(":/", host[len])) /* or the end */
            return true;
    }
    return false;
}

static void read_settings(struct es_self *self, struct settings *s)
{
    self->url = settings_url(s, "url", "https://rest.esms.vn");
    self->api_key = settings_text(s, "api_key", NULL);
    self->secret_key = settings_text(s, "secret_key", NULL);
    self->sms_type = settings_text(s, "sms_type", "2");
    self->from = settings_text(s, "from", "");
    self->sandbox = settings_bool(s, "sandbox", false);
    self->dedup_window_ms = settings_int(s, "dedup_window_s", 600, 60, 86400) * 1000;
    if (self->url && !is_private(self->url))
        (void)settings_refuse(s, "url", "write https://",
                              "would send the keys in clear text over the network");
    if (self->sms_type && strspn(self->sms_type, "0123456789") != strlen(self->sms_type))
        (void)settings_refuse(s, "sms_type", "\"2\" for one-time codes and customer care",
                              "must be digits");
    if (self->from && sender_kind(self->from) == SENDER_BAD)
        (void)settings_refuse(s, "from", "your registered Brandname", "%s", SENDER_RULE);
    if (!self->from && self->sms_type && strcmp(self->sms_type, "8") != 0)
        (void)settings_refuse(s, "from", "your registered Brandname",
                              "is required unless sms_type is \"8\"");
}

static int es_open(const struct provider_host *host, const char *settings_json,
                   struct provider_report *report, void **ret_self)
{
    struct es_self *self = calloc(1, sizeof(*self));
    struct settings s;
    int r;

    if (!self)
        return -ENOMEM;
    self->host = host;
    r = settings_begin(&s, host, settings_json, report);
    if (r == 0)
        read_settings(self, &s);
    r = settings_end(&s);
    if (r < 0) {
        es_close(self);
        return r;
    }
    *ret_self = self;
    return 0;
}

static void es_describe(const void *arg, struct provider_caps *ret)
{
    const struct es_self *self = arg;

    ret->dedup = PROVIDER_DEDUP_REJECT;
    ret->dedup_window_ms = self->dedup_window_ms;
    ret->answers_without_id = true; /* 124 names none */
    ret->receipts = PROVIDER_RECEIPTS_UNSIGNED;
    ret->number = PROVIDER_NUMBER_DIGITS;
}

/* ---- build ---------------------------------------------------------------------------------- */

/* Anything beyond ASCII has to be announced, or the vendor takes it for text without marks. */
static bool is_ascii(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] >= 0x80)
            return false;
    return true;
}

/* NULL: out of memory, or a text that is not UTF-8. Members in this order, always. */
static json_t *body_of(const struct es_self *self, const struct provider_msg *msg)
{
    const char *from = msg->sender ? msg->sender : self->from;
    const char *unicode = is_ascii(msg->body, msg->body_len) ? "0" : "1";
    json_auto_t *body = json_object();
    int bad = 0;

    bad |= json_object_set_new(body, "ApiKey", json_string(self->api_key));
    bad |= json_object_set_new(body, "SecretKey", json_string(self->secret_key));
    bad |=
        json_object_set_new(body, "Phone", json_string(msg->recipient + (*msg->recipient == '+')));
    bad |= json_object_set_new(body, "Content", json_stringn(msg->body, msg->body_len));
    if (from)
        bad |= json_object_set_new(body, "Brandname", json_string(from));
    bad |= json_object_set_new(body, "SmsType", json_string(self->sms_type));
    bad |= json_object_set_new(body, "IsUnicode", json_string(unicode));
    bad |= json_object_set_new(body, "Sandbox", json_string(self->sandbox ? "1" : "0"));
    bad |= json_object_set_new(body, "RequestId", json_string(msg->key));
    if (msg->callback_url)
        bad |= json_object_set_new(body, "CallbackUrl", json_string(msg->callback_url));
    return bad ? NULL : json_incref(body);
}

static int es_build(const void *arg, const struct provider_msg *msg, struct provider_req *req)
{
    const struct es_self *self = arg;
    struct form url = {0};
    int r;

    if (msg->sender && sender_kind(msg->sender) == SENDER_BAD)
        return -EINVAL;
    form_printf(&url, "%s/MainService.svc/json/SendMultipleMessage_V4_post_json/", self->url);
    r = url.error ? url.error
                  : request_post_json(self->host, req, url.text, NULL, body_of(self, msg));
    form_done(&url);
    return r;
}

/* ---- judge ---------------------------------------------------------------------------------- */

/* CodeResult decides, never the presence of an SMSID: a 146 may carry one. Codes that nobody told
 * us of hold the queue: with the same RequestId nothing is doubled by sending again later. */
static const struct verdict_row codes[] = {
    {"100", 200, PROVIDER_ACCEPTED, VERDICT_PLAIN},
    {"124", 200, PROVIDER_ACCEPTED, VERDICT_DUPLICATE}, /* this RequestId was taken before */
    {"99", 200, PROVIDER_REJECTED, VERDICT_PLAIN},      /* number blocked in the system */
    {"108", 200, PROVIDER_REJECTED, VERDICT_PLAIN},     /* number not in the correct format */
    {"118", 200, PROVIDER_REJECTED, VERDICT_PLAIN},     /* unsupported message type */
    {"146", 200, PROVIDER_REJECTED, VERDICT_PLAIN},     /* wrong customer care template */
    {"177", 200, PROVIDER_REJECTED, VERDICT_PLAIN},     /* network not registered */
    {"101", 200, PROVIDER_HELD, VERDICT_PLAIN},         /* wrong ApiKey or SecretKey */
    {"102", 200, PROVIDER_HELD, VERDICT_PLAIN},         /* no price list, or locked */
    {"103", 200, PROVIDER_HELD, VERDICT_PLAIN},         /* no money */
    {"104", 200, PROVIDER_HELD, VERDICT_PLAIN},         /* no such Brandname */
    {"140", 200, PROVIDER_HELD, VERDICT_PLAIN},         /* address not on the list */
    {"300", 200, PROVIDER_HELD, VERDICT_PLAIN},         /* message type is missing */
    {"199", 200, PROVIDER_UNKNOWN, VERDICT_PLAIN},      /* exists, being processed */
    {NULL, 200, PROVIDER_HELD, VERDICT_PLAIN},
};

/* A first answer without the id is not the vendor's form; the repeat under the same key tells. */
static int accept_first(const struct es_self *self, struct provider_verdict *v, const json_t *body)
{
    char buf[24];
    const char *id = json_word_at(body, "SMSID", buf, sizeof(buf));

    if (!id || !*id)
        return verdict_say(self->host, v, NULL, NULL, "the vendor's id is missing");
    self->host->verdict(v, PROVIDER_ACCEPTED);
    return self->host->verdict_id(v, id, strlen(id));
}

static int judge_code(const struct es_self *self, struct provider_verdict *v, const json_t *body,
                      const char *code)
{
    const struct verdict_row *row = verdict_find(codes, sizeof(codes) / sizeof(*codes), 200, code);

    if (row->outcome == PROVIDER_ACCEPTED && row->mark == VERDICT_PLAIN)
        return accept_first(self, v, body);
    return verdict_say(self->host, v, row, code, json_text_at(body, "ErrorMessage"));
}

/* An error without a code. Documented is "Invalid request", as an example of code 99. */
static int judge_words(const struct es_self *self, struct provider_verdict *v, const char *words)
{
    static const struct verdict_row invalid = {NULL, 0, PROVIDER_REJECTED, VERDICT_PLAIN};

    return verdict_say(self->host, v, strcmp(words, "Invalid request") == 0 ? &invalid : NULL, NULL,
                       words);
}

static int es_judge(const void *arg, const struct provider_reply *reply, struct provider_verdict *v)
{
    const struct es_self *self = arg;
    const struct verdict_row by_status = {NULL, 0, verdict_of_status(reply->status), VERDICT_PLAIN};
    json_auto_t *body = reply->complete ? json_body(reply->body, reply->body_len) : NULL;
    char buf[24];
    const char *code = json_word_at(body, "CodeResult", buf, sizeof(buf));
    const char *words = json_text_at(body, "error");

    if (!reply->complete)
        return verdict_say(self->host, v, NULL, NULL, "the answer broke off");
    if (reply->status == 200 && code)
        return judge_code(self, v, body, code);
    if (reply->status == 200 && words)
        return judge_words(self, v, words);
    return verdict_say(self->host, v, &by_status, NULL,
                       body ? "not the vendor's form" : "the answer is not JSON");
}

/* ---- receipts ------------------------------------------------------------------------------- */

/* A count above zero. */
static bool some(const struct provider_callback *cb, const char *name)
{
    const char *count = callback_query(cb, name);

    return count && strspn(count, "0") != strlen(count) &&
           strspn(count, "0123456789") == strlen(count);
}

static enum provider_status status_of(const struct provider_callback *cb, const char *status)
{
    if (strcmp(status, "4") == 0)
        return PROVIDER_STATUS_REJECTED;
    if (strcmp(status, "5") == 0 && some(cb, "SendSuccess"))
        return PROVIDER_STATUS_DELIVERED;
    if (strcmp(status, "5") == 0 && some(cb, "SendFailed"))
        return PROVIDER_STATUS_UNDELIVERED;
    return PROVIDER_STATUS_IN_TRANSIT; /* 1 to be approved, 2 to be sent, 7 at the network */
}

/* `k` of our own URL names the message. RequestId is its key, which is its id only where the
 * application chose none: it serves when the vendor dropped our query. */
static int es_receipt(const void *arg, const struct provider_callback *cb,
                      struct provider_events *out)
{
    const struct es_self *self = arg;
    const char *status = callback_query(cb, "SendStatus");
    const char *key = callback_query(cb, "RequestId");
    struct provider_receipt receipt = {.vendor_id = callback_query(cb, "SMSID")};

    if (!status || !receipt.vendor_id || !*receipt.vendor_id)
        return -EBADMSG;
    if (!callback_query(cb, "k") && key && strlen(key) == 36)
        receipt.ref = key;
    receipt.status = status_of(cb, status);
    if (receipt.status != PROVIDER_STATUS_DELIVERED) {
        receipt.code = status;
        receipt.detail = callback_query(cb, "error_info");
    }
    return self->host->receipt(out, &receipt);
}

__attribute__((visibility("default"))) const struct provider *provider_entry(void)
{
    static const struct provider provider = {
        .abi_major = PROVIDER_ABI_MAJOR,
        .abi_minor = PROVIDER_ABI_MINOR,
        .size = sizeof(struct provider),
        .name = "esms",
        .open = es_open,
        .close = es_close,
        .describe = es_describe,
        .build = es_build,
        .judge = es_judge,
        .receipt = es_receipt,
    };

    return &provider;
}
