/* Twilio, Programmable Messaging (API version 2010-04-01). See README.md. */
#include "providers/twilio/twilio.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/request.h"
#include "providers/kit/sender.h"
#include "providers/kit/settings.h"
#include "providers/kit/verdict.h"
#include "providers/kit/when.h"
#include "worker/core/text.h"

enum { BODY_MAX = 1600, SID_LEN = 34 };
/* Twilio's own advice for how long an answer may take (twilio-ruby issue 519). */
enum { WORST_ANSWER_S = 26 };

/* ---- settings ------------------------------------------------------------------------------- */

/* "AC" and 32 hex digits: what stands in URLs and decides between From and a service. */
static bool is_sid(const char *text, const char *prefix)
{
    return text && strlen(text) == SID_LEN && strncmp(text, prefix, 2) == 0 &&
           strspn(text + 2, "0123456789abcdefABCDEF") == SID_LEN - 2;
}

static int read_senders(struct twilio *t, struct settings *s)
{
    t->from = settings_text(s, "from", "");
    t->messaging_service_sid = settings_text(s, "messaging_service_sid", "");
    if (s->error)
        return s->error;
    if (!t->from && !t->messaging_service_sid)
        return settings_refuse(s, "from", "set from or messaging_service_sid",
                               "nobody to send from");
    if (t->from && sender_kind(t->from) == SENDER_BAD)
        return settings_refuse(s, "from", NULL, SENDER_RULE);
    if (t->messaging_service_sid && !is_sid(t->messaging_service_sid, "MG"))
        return settings_refuse(s, "messaging_service_sid", NULL, "is not MG and 32 hex digits");
    return 0;
}

/* Basic, as account and token or as API key and its secret. */
static int read_access(struct twilio *t, struct settings *s)
{
    char *key = settings_text(s, "api_key_sid", "");
    char *secret = settings_text(s, "api_key_secret", "");
    const char *user = key ? key : t->account_sid;
    const char *password = key ? secret : t->auth_tokens ? t->auth_tokens[0] : NULL;
    int r = s->error;

    if (r == 0 && key && !secret)
        r = settings_refuse(s, "api_key_secret", NULL, "is missing beside api_key_sid");
    else if (r == 0 && secret && !key)
        r = settings_refuse(s, "api_key_sid", NULL, "is missing beside api_key_secret");
    else if (r == 0 && !password)
        r = settings_refuse(s, "auth_token", "or set api_key_sid and api_key_secret", "is missing");
    if (r == 0 && !(t->authorization = request_basic(user, password)))
        r = -ENOMEM;
    free(key);
    free(secret);
    return r;
}

static int read_settings(struct twilio *t, struct settings *s)
{
    char *url = settings_url(s, "url", "https://api.twilio.com");
    int r;

    t->account_sid = settings_text(s, "account_sid", NULL);
    t->auth_tokens = settings_list(s, "auth_token");
    t->shared_keys = settings_list(s, "shared_key_secret");
    t->lookup_delay_ms = settings_int(s, "lookup_delay_s", 60, 0, 3600) * 1000;
    t->absence_proves = settings_bool(s, "absence_proves", false);
    t->worst_answer_ms = settings_int(s, "worst_answer_s", WORST_ANSWER_S, 0, 600) * 1000;
    r = s->error;
    if (r == 0 && !is_sid(t->account_sid, "AC"))
        r = settings_refuse(s, "account_sid", NULL, "is not AC and 32 hex digits");
    if (r == 0)
        r = read_access(t, s);
    if (r == 0)
        r = read_senders(t, s);
    if (r == 0 && asprintf(&t->messages_url, "%s/2010-04-01/Accounts/%s/Messages.json", url,
                           t->account_sid) < 0) {
        t->messages_url = NULL;
        r = -ENOMEM;
    }
    free(url);
    return r;
}

static void twilio_close(void *self)
{
    struct twilio *t = self;

    if (!t)
        return;
    free(t->messages_url);
    free(t->account_sid);
    free(t->authorization);
    settings_list_free(t->auth_tokens);
    settings_list_free(t->shared_keys);
    free(t->from);
    free(t->messaging_service_sid);
    free(t);
}

static int twilio_open(const struct provider_host *host, const char *settings_json,
                       struct provider_report *report, void **ret_self)
{
    struct twilio *t = calloc(1, sizeof(*t));
    struct settings s;
    int r, end;

    if (!t)
        return -ENOMEM;
    t->host = host;
    r = settings_begin(&s, host, settings_json, report);
    if (r == 0)
        r = read_settings(t, &s);
    end = settings_end(&s);
    if (r == 0)
        r = end;
    if (r < 0) {
        twilio_close(t);
        return r;
    }
    *ret_self = t;
    return 0;
}

static void twilio_describe(const void *self, struct provider_caps *ret)
{
    const struct twilio *t = self;

    ret->ask = PROVIDER_ASK_BY_TEXT;
    ret->absence_proves = t->absence_proves;
    ret->ask_delay_ms = t->lookup_delay_ms;
    ret->worst_answer_ms = t->worst_answer_ms;
    ret->receipts =
        t->auth_tokens || t->shared_keys ? PROVIDER_RECEIPTS_SIGNED : PROVIDER_RECEIPTS_UNSIGNED;
    ret->number = PROVIDER_NUMBER_PLUS;
    ret->validity = PROVIDER_VALIDITY_S;
    ret->limit = PROVIDER_LIMIT_SEGMENT;
}

/* ---- build ---------------------------------------------------------------------------------- */

const char *twilio_sender(const struct twilio *t, const struct provider_msg *msg,
                          bool *ret_is_service)
{
    const char *sender = msg->sender;

    if (!sender)
        sender = t->messaging_service_sid ? t->messaging_service_sid : t->from;
    *ret_is_service = is_sid(sender, "MG");
    return sender;
}

static int fill(const struct twilio *t, const struct provider_msg *msg, struct form *body)
{
    struct text_measure measure;
    bool is_service;
    const char *sender = twilio_sender(t, msg, &is_service);

    if (text_measure(msg->body, msg->body_len, &measure) < 0)
        return -EILSEQ;
    if (measure.characters > BODY_MAX)
        return -EMSGSIZE;
    if (!is_service && sender_kind(sender) == SENDER_BAD)
        return -EINVAL;
    form_add(body, "To", msg->recipient);
    form_add(body, is_service ? "MessagingServiceSid" : "From", sender);
    form_add_n(body, "Body", msg->body, msg->body_len);
    form_add_i64(body, "ValidityPeriod", when_validity(msg->validity_ms, 1000, 1, 36000));
    form_add(body, "StatusCallback", msg->callback_url);
    return body->error;
}

static int twilio_build(const void *self, const struct provider_msg *msg, struct provider_req *req)
{
    const struct twilio *t = self;
    struct form body = {0};
    int r = fill(t, msg, &body);

    if (r == 0)
        r = request_post(t->host, req, t->messages_url, t->authorization,
                         "application/x-www-form-urlencoded", body.text, body.len);
    form_done(&body);
    return r;
}

/* ---- judge ---------------------------------------------------------------------------------- */

/* Twilio's codes in a 4xx: such a request was not taken. A 5xx under any code proves nothing
 * (20500: "POST is not idempotent"). */
static const struct verdict_row rows[] = {
    {NULL, 5, PROVIDER_UNKNOWN, VERDICT_PLAIN},
    {"21610", 4, PROVIDER_REJECTED, VERDICT_OPT_OUT}, /* the person sent STOP */
    {"21211", 4, PROVIDER_REJECTED, VERDICT_PLAIN},   /* To is not a number */
    {"21612", 4, PROVIDER_REJECTED, VERDICT_PLAIN},   /* To cannot be reached from this From */
    {"21614", 4, PROVIDER_REJECTED, VERDICT_PLAIN},   /* not a mobile number */
    {"21602", 4, PROVIDER_REJECTED, VERDICT_PLAIN},   /* no body */
    {"21617", 4, PROVIDER_REJECTED, VERDICT_PLAIN},   /* body too long */
    {"21408", 4, PROVIDER_REJECTED, VERDICT_PLAIN},   /* country not enabled: others still are */
    {"20003", 4, PROVIDER_HELD, VERDICT_PLAIN},       /* authentication */
    {"20005", 4, PROVIDER_HELD, VERDICT_PLAIN},       /* account not active */
    {"21601", 4, PROVIDER_HELD, VERDICT_PLAIN},       /* From cannot send SMS */
    {"21606", 4, PROVIDER_HELD, VERDICT_PLAIN},       /* From is not ours */
    {"21608", 4, PROVIDER_HELD, VERDICT_PLAIN},       /* trial account */
    {"30002", 4, PROVIDER_HELD, VERDICT_PLAIN},       /* account suspended */
    {"20429", 4, PROVIDER_THROTTLED, VERDICT_PLAIN},
    {"21611", 4, PROVIDER_THROTTLED, VERDICT_PLAIN}, /* this From's queue is full */
    {"63017", 4, PROVIDER_THROTTLED, VERDICT_PLAIN}, /* account's cap a second */
};

/* A 2xx is Twilio's own only with a message's sid. */
static int judge_taken(const struct twilio *t, const json_t *body, struct provider_verdict *verdict)
{
    const char *sid = json_text_at(body, "sid");
    const struct verdict_row unknown = {.outcome = PROVIDER_UNKNOWN};

    if (!is_sid(sid, "SM") && !is_sid(sid, "MM"))
        return verdict_say(t->host, verdict, &unknown, NULL, "a success without a message's sid");
    t->host->verdict(verdict, PROVIDER_ACCEPTED);
    return t->host->verdict_id(verdict, sid, strlen(sid));
}

static int judge_error(const struct twilio *t, const struct provider_reply *reply,
                       const json_t *body, struct provider_verdict *verdict)
{
    char buf[24];
    const char *code = json_word_at(body, "code", buf, sizeof(buf));
    const struct verdict_row *row =
        code ? verdict_find(rows, sizeof(rows) / sizeof(*rows), reply->status, code) : NULL;
    struct verdict_row by_status = {.outcome = verdict_of_status(reply->status)};

    /* Under a code of Twilio's even a 408 or 409 was not taken, but whether it ever will be we
     * cannot know: the next try finds out. */
    if (code && reply->status / 100 == 4 && by_status.outcome == PROVIDER_UNKNOWN)
        by_status.outcome = PROVIDER_REFUSED;
    return verdict_say(t->host, verdict, row ? row : &by_status, code,
                       code ? json_text_at(body, "message") : "not an answer of Twilio's");
}

static int twilio_judge(const void *self, const struct provider_reply *reply,
                        struct provider_verdict *verdict)
{
    const struct twilio *t = self;
    json_t *body;
    int r;

    if (!reply->complete) {
        t->host->verdict(verdict, PROVIDER_UNKNOWN);
        return 0;
    }
    body = json_body(reply->body, reply->body_len);
    if (reply->status / 100 == 2)
        r = judge_taken(t, body, verdict);
    else
        r = judge_error(t, reply, body, verdict);
    json_decref(body);
    return r;
}

__attribute__((visibility("default"))) const struct provider *provider_entry(void)
{
    static const struct provider provider = {
        .abi_major = PROVIDER_ABI_MAJOR,
        .abi_minor = 1,
        .size = sizeof(struct provider),
        .name = "twilio",
        .open = twilio_open,
        .close = twilio_close,
        .describe = twilio_describe,
        .build = twilio_build,
        .judge = twilio_judge,
        .ask = twilio_ask,
        .ask_judge = twilio_ask_judge,
        .receipt = twilio_receipt,
    };

    return &provider;
}
