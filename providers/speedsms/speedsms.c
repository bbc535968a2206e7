/* SpeedSMS.vn, Vietnam. See README.md.
 *
 * Errors come inside HTTP 200, and a bad number even inside "success". Nothing of ours is echoed
 * anywhere: receipts name the vendor's id alone. */
#include <errno.h>
#include <stdbool.h>
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

struct sp_self {
    const struct provider_host *host;
    char *url, *from;
    char *authorization; /* "Basic …" */
    int64_t sms_type;
};

/* ---- settings ------------------------------------------------------------------------------- */

static void sp_close(void *arg)
{
    struct sp_self *self = arg;

    if (!self)
        return;
    free(self->url);
    free(self->from);
    free(self->authorization);
    free(self);
}

static int read_settings(struct sp_self *self, struct settings *s)
{
    char *token = settings_text(s, "access_token", NULL);
    int r = 0;

    self->url = settings_url(s, "url", "https://api.speedsms.vn/index.php");
    self->sms_type = settings_int(s, "sms_type", 2, 2, 8);
    self->from = settings_text(s, "from", "");
    if (token && strchr(token, ':'))
        (void)settings_refuse(s, "access_token", NULL, "cannot hold a colon");
    if (self->from && sender_kind(self->from) == SENDER_BAD)
        (void)settings_refuse(s, "from", "your brand name at SpeedSMS", "%s", SENDER_RULE);
    if (!self->from && self->sms_type == 3)
        (void)settings_refuse(s, "from", "your brand name at SpeedSMS",
                              "is required with sms_type 3");
    if (token && !(self->authorization = request_basic(token, "x")))
        r = -ENOMEM;
    free(token);
    return r;
}

static int sp_open(const struct provider_host *host, const char *settings_json,
                   struct provider_report *report, void **ret_self)
{
    struct sp_self *self = calloc(1, sizeof(*self));
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
        sp_close(self);
        return r;
    }
    *ret_self = self;
    return 0;
}

static void sp_describe(const void *arg, struct provider_caps *ret)
{
    (void)arg;
    ret->receipts = PROVIDER_RECEIPTS_UNSIGNED;
    ret->receipts_by_id = true;
    ret->number = PROVIDER_NUMBER_DIGITS;
}

/* ---- build ---------------------------------------------------------------------------------- */

/* NULL: out of memory, or a text that is not UTF-8. Members in this order, always. */
static json_t *body_of(const struct sp_self *self, const struct provider_msg *msg)
{
    const char *from = msg->sender ? msg->sender : self->from;
    json_auto_t *body = json_object();
    json_t *to = json_array();
    int bad = 0;

    bad |= json_array_append_new(to, json_string(msg->recipient + (*msg->recipient == '+')));
    bad |= json_object_set_new(body, "to", to);
    bad |= json_object_set_new(body, "content", json_stringn(msg->body, msg->body_len));
    bad |= json_object_set_new(body, "sms_type", json_integer(self->sms_type));
    bad |= json_object_set_new(body, "sender", json_string(from ? from : ""));
    return bad ? NULL : json_incref(body);
}

static int sp_build(const void *arg, const struct provider_msg *msg, struct provider_req *req)
{
    const struct sp_self *self = arg;
    struct form url = {0};
    int r;

    if (msg->sender && sender_kind(msg->sender) == SENDER_BAD)
        return -EINVAL;
    form_printf(&url, "%s/sms/send", self->url);
    r = url.error
            ? url.error
            : request_post_json(self->host, req, url.text, self->authorization, body_of(self, msg));
    form_done(&url);
    return r;
}

/* ---- judge ---------------------------------------------------------------------------------- */

/* {"status":"error"} under any status below 500. 500 says "please try again", which proves
 * nothing; neither does a code nobody told us of. */
static const struct verdict_row codes[] = {
    {"101", 0, PROVIDER_REJECTED, VERDICT_PLAIN}, /* parameters */
    {"105", 0, PROVIDER_REJECTED, VERDICT_PLAIN}, /* number */
    {"110", 0, PROVIDER_REJECTED, VERDICT_PLAIN}, /* encoding */
    {"113", 0, PROVIDER_REJECTED, VERDICT_PLAIN}, /* too long */
    {"007", 0, PROVIDER_HELD, VERDICT_PLAIN},     /* address locked */
    {"008", 0, PROVIDER_HELD, VERDICT_PLAIN},     /* account blocked */
    {"009", 0, PROVIDER_HELD, VERDICT_PLAIN},     /* not allowed to call */
    {"300", 0, PROVIDER_HELD, VERDICT_PLAIN},     /* balance */
    {"500", 0, PROVIDER_UNKNOWN, VERDICT_PLAIN},  /* internal */
    {NULL, 200, PROVIDER_UNKNOWN, VERDICT_PLAIN},
};

static bool is_status(const json_t *body, const char *word)
{
    const char *status = json_text_at(body, "status");

    return status && strcmp(status, word) == 0;
}

/* One number a request: whatever stands in invalidPhone is it. */
static int judge_success(const struct sp_self *self, struct provider_verdict *v, const json_t *body,
                         const char *code)
{
    static const struct verdict_row bad_number = {NULL, 0, PROVIDER_REJECTED, VERDICT_PLAIN};
    char buf[24];
    const char *id = json_word_at(body, "data/tranId", buf, sizeof(buf));

    if (json_array_size(json_path(body, "data/invalidPhone")) > 0 ||
        json_array_size(json_path(body, "invalidPhone")) > 0)
        return verdict_say(self->host, v, &bad_number, "invalidPhone",
                           "the number is in the list of invalid ones");
    if (!code || strcmp(code, "00") != 0 || !id || !*id || strcmp(id, "0") == 0)
        return verdict_say(self->host, v, NULL, code, "success without code 00 and a tranId");
    self->host->verdict(v, PROVIDER_ACCEPTED);
    return self->host->verdict_id(v, id, strlen(id));
}

/* X-Rate-Limit-Reset: seconds until the vendor counts anew. */
static void hint_wait(const struct sp_self *self, const struct provider_reply *reply,
                      struct provider_verdict *v)
{
    const char *reset = reply_header(reply, "x-rate-limit-reset");
    size_t len = reset ? strlen(reset) : 0;

    if (len > 0 && len <= 6 && strspn(reset, "0123456789") == len)
        self->host->verdict_retry_after(v, strtoll(reset, NULL, 10) * 1000);
}

static int judge_status(const struct sp_self *self, const struct provider_reply *reply,
                        struct provider_verdict *v, const json_t *body)
{
    /* 404 is how a wrong token may be answered: held, like any wrong address. */
    const struct verdict_row row = {NULL, 0, verdict_of_status(reply->status), VERDICT_PLAIN};
    const char *words = json_text_at(body, "message");

    if (reply->status == 429)
        hint_wait(self, reply, v);
    return verdict_say(self->host, v, &row, NULL,
                       words  ? words
                       : body ? "not the vendor's form"
                              : "the answer is not JSON");
}

static int sp_judge(const void *arg, const struct provider_reply *reply, struct provider_verdict *v)
{
    const struct sp_self *self = arg;
    json_auto_t *body = reply->complete ? json_body(reply->body, reply->body_len) : NULL;
    char buf[24];
    const char *code = json_word_at(body, "code", buf, sizeof(buf));
    const struct verdict_row *row = NULL;

    if (!reply->complete)
        return verdict_say(self->host, v, NULL, NULL, "the answer broke off");
    if (reply->status == 200 && is_status(body, "success"))
        return judge_success(self, v, body, code);
    if (reply->status < 500 && reply->status != 429 && is_status(body, "error"))
        row = verdict_find(codes, sizeof(codes) / sizeof(*codes), reply->status, code);
    if (row)
        return verdict_say(self->host, v, row, code, json_text_at(body, "message"));
    return judge_status(self, reply, v, body);
}

/* ---- receipts ------------------------------------------------------------------------------- */

/* 0 delivered, 1 to 63 the network still tries, from 64 on it gave up. */
static enum provider_status status_of(int64_t status)
{
    if (status == 0)
        return PROVIDER_STATUS_DELIVERED;
    return status >= 64 ? PROVIDER_STATUS_UNDELIVERED : PROVIDER_STATUS_IN_TRANSIT;
}

static int sp_receipt(const void *arg, const struct provider_callback *cb,
                      struct provider_events *out)
{
    const struct sp_self *self = arg;
    json_auto_t *body = json_body(cb->body, cb->body_len);
    const char *type = json_text_at(body, "type");
    char id[24], code[24];
    struct provider_receipt receipt = {.vendor_id = json_word_at(body, "tranId", id, sizeof(id))};
    int64_t status;

    if (!type || strcmp(type, "report") != 0 || !receipt.vendor_id || !*receipt.vendor_id ||
        !json_i64_at(body, "status", &status))
        return -EBADMSG;
    receipt.status = status_of(status);
    if (receipt.status != PROVIDER_STATUS_DELIVERED)
        receipt.code = json_word_at(body, "status", code, sizeof(code));
    return self->host->receipt(out, &receipt);
}

__attribute__((visibility("default"))) const struct provider *provider_entry(void)
{
    static const struct provider provider = {
        .abi_major = PROVIDER_ABI_MAJOR,
        .abi_minor = PROVIDER_ABI_MINOR,
        .size = sizeof(struct provider),
        .name = "speedsms",
        .open = sp_open,
        .close = sp_close,
        .describe = sp_describe,
        .build = sp_build,
        .judge = sp_judge,
        .receipt = sp_receipt,
    };

    return &provider;
}
