/* Infobip, SMS API version 3. See README.md. */
#include "providers/infobip/infobip.h"

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

enum { VALIDITY_MAX_S = 48 * 3600 };

/* ---- settings ------------------------------------------------------------------------------- */

/* "App KEY", or Basic. */
static int read_access(struct infobip *ib, struct settings *s)
{
    char *key = settings_text(s, "api_key", "");
    char *user = settings_text(s, "username", ""), *password = settings_text(s, "password", "");
    int r = s->error;

    if (r == 0 && key && (user || password))
        r = settings_refuse(s, "username", NULL, "stands beside api_key: give one of the two");
    else if (r == 0 && !key && !user)
        r = settings_refuse(s, "api_key", "or set username and password", "is missing");
    else if (r == 0 && !key && !password)
        r = settings_refuse(s, "password", NULL, "is missing beside username");
    if (r == 0 && key && asprintf(&ib->authorization, "App %s", key) < 0)
        r = -ENOMEM;
    if (r == 0 && !key && !(ib->authorization = request_basic(user, password)))
        r = -ENOMEM;
    free(key);
    free(user);
    free(password);
    return r;
}

static int read_settings(struct infobip *ib, struct settings *s)
{
    static const char *const units[] = {"MINUTES", "SECONDS", NULL};
    int r;

    ib->url = settings_url(s, "url", "https://api.infobip.com");
    ib->from = settings_text(s, "from", "");
    ib->dedup_window_ms = settings_int(s, "dedup_window_s", 3600, 0, 48 * 3600) * 1000;
    ib->lookup_delay_ms = settings_int(s, "lookup_delay_s", 60, 0, 3600) * 1000;
    ib->absence_proves = settings_bool(s, "absence_proves", false);
    ib->seconds = settings_word(s, "validity_unit", units, 0) == 1;
    r = read_access(ib, s);
    if (r == 0 && ib->from && sender_kind(ib->from) == SENDER_BAD)
        r = settings_refuse(s, "from", NULL, SENDER_RULE);
    return r;
}

static void infobip_close(void *self)
{
    struct infobip *ib = self;

    if (!ib)
        return;
    free(ib->url);
    free(ib->authorization);
    free(ib->from);
    free(ib);
}

static int infobip_open(const struct provider_host *host, const char *settings_json,
                        struct provider_report *report, void **ret_self)
{
    struct infobip *ib = calloc(1, sizeof(*ib));
    struct settings s;
    int r, end;

    if (!ib)
        return -ENOMEM;
    ib->host = host;
    r = settings_begin(&s, host, settings_json, report);
    if (r == 0)
        r = read_settings(ib, &s);
    end = settings_end(&s);
    if (r == 0)
        r = end;
    if (r < 0) {
        infobip_close(ib);
        return r;
    }
    *ret_self = ib;
    return 0;
}

static void infobip_describe(const void *self, struct provider_caps *ret)
{
    const struct infobip *ib = self;

    if (ib->dedup_window_ms > 0)
        ret->dedup = PROVIDER_DEDUP_REJECT;
    ret->dedup_window_ms = ib->dedup_window_ms;
    ret->ask = PROVIDER_ASK_BY_KEY;
    ret->absence_proves = ib->absence_proves;
    ret->ask_delay_ms = ib->lookup_delay_ms;
    ret->ask_window_ms = INT64_C(48) * 3600 * 1000;
    ret->asks_per_minute = 120;
    ret->receipts = PROVIDER_RECEIPTS_UNSIGNED;
    ret->number = PROVIDER_NUMBER_DIGITS;
    ret->validity = ib->seconds ? PROVIDER_VALIDITY_S : PROVIDER_VALIDITY_MIN;
    ret->limit = PROVIDER_LIMIT_MESSAGE;
}

/* ---- build ---------------------------------------------------------------------------------- */

static json_t *validity(const struct infobip *ib, const struct provider_msg *msg)
{
    int64_t unit_ms = ib->seconds ? 1000 : 60000;
    int64_t amount =
        when_validity(msg->validity_ms, unit_ms, 1, VALIDITY_MAX_S * INT64_C(1000) / unit_ms);

    return json_pack("{s:{s:I, s:s}}", "validityPeriod", "amount", (json_int_t)amount, "timeUnit",
                     ib->seconds ? "SECONDS" : "MINUTES");
}

static json_t *webhooks(const struct provider_msg *msg)
{
    if (!msg->callback_url) /* account-wide reports show it all the same */
        return json_pack("{s:s}", "callbackData", msg->id);
    return json_pack("{s:{s:s, s:b}, s:s, s:s}", "delivery", "url", msg->callback_url, "notify", 1,
                     "contentType", "application/json", "callbackData", msg->id);
}

/* NULL: the text is not UTF-8, or out of memory. */
static json_t *request(const struct infobip *ib, const struct provider_msg *msg, const char *sender)
{
    return json_pack("{s:[{s:s, s:[{s:s, s:s}], s:{s:s%}, s:o, s:o}], s:{s:b}}", "messages",
                     "sender", sender, "destinations", "to",
                     msg->recipient + (*msg->recipient == '+'), "messageId", msg->key, "content",
                     "text", msg->body, msg->body_len, "options", validity(ib, msg), "webhooks",
                     webhooks(msg), "options", "includeSmsCountInResponse", 1);
}

static int infobip_build(const void *self, const struct provider_msg *msg, struct provider_req *req)
{
    const struct infobip *ib = self;
    const char *sender = msg->sender ? msg->sender : ib->from;
    struct form url = {0};
    int r;

    if (sender_kind(sender) == SENDER_BAD)
        return -EINVAL;
    form_printf(&url, "%s/sms/3/messages", ib->url);
    r = url.error ? url.error
                  : request_post_json(ib->host, req, url.text, ib->authorization,
                                      request(ib, msg, sender + (*sender == '+')));
    form_done(&url);
    return r;
}

/* ---- judge ---------------------------------------------------------------------------------- */

/* messages[0].status.id. What is not here is judged by its group. */
static const struct verdict_row by_id[] = {
    {"3", 0, PROVIDER_ACCEPTED, VERDICT_PLAIN},
    {"7", 0, PROVIDER_ACCEPTED, VERDICT_PLAIN},
    {"26", 0, PROVIDER_ACCEPTED, VERDICT_PLAIN},
    {"23", 0, PROVIDER_ACCEPTED, VERDICT_DUPLICATE}, /* it has this messageId already */
    {"8", 0, PROVIDER_REJECTED, VERDICT_PLAIN},      /* prefix */
    {"10", 0, PROVIDER_REJECTED, VERDICT_PLAIN},     /* do not disturb */
    {"14", 0, PROVIDER_REJECTED, VERDICT_PLAIN},     /* block list */
    {"24", 0, PROVIDER_REJECTED, VERDICT_PLAIN},     /* user data header */
    {"25", 0, PROVIDER_REJECTED, VERDICT_PLAIN},     /* too long */
    {"51", 0, PROVIDER_REJECTED, VERDICT_PLAIN},
    {"52", 0, PROVIDER_REJECTED, VERDICT_PLAIN},
    {"87", 0, PROVIDER_REJECTED, VERDICT_PLAIN}, /* signals: fraud */
    {"20", 0, PROVIDER_REJECTED, VERDICT_PLAIN}, /* flooding filter: this number, now */
    {"6", 0, PROVIDER_HELD, VERDICT_PLAIN},      /* network not enabled */
    {"11", 0, PROVIDER_HELD, VERDICT_PLAIN},     /* sender */
    {"13", 0, PROVIDER_HELD, VERDICT_PLAIN},     /* sender */
    {"12", 0, PROVIDER_HELD, VERDICT_PLAIN},     /* no credit */
    {"17", 0, PROVIDER_HELD, VERDICT_PLAIN},     /* prepaid package expired */
    {"18", 0, PROVIDER_HELD, VERDICT_PLAIN},     /* test account */
    {"19", 0, PROVIDER_HELD, VERDICT_PLAIN},     /* no route */
    {"21", 0, PROVIDER_REFUSED, VERDICT_PLAIN},  /* system error, "retry" */
    {"100", 0, PROVIDER_REFUSED, VERDICT_PLAIN}, /* platform: malformed, or unavailable */
};

static const struct verdict_row pending = {.outcome = PROVIDER_ACCEPTED};
static const struct verdict_row rejected = {.outcome = PROVIDER_REJECTED};
static const struct verdict_row unknown = {.outcome = PROVIDER_UNKNOWN};

static const struct verdict_row *by_group(const json_t *status)
{
    int64_t group;

    if (!json_i64_at(status, "groupId", &group))
        return &unknown;
    switch (group) {
    case INFOBIP_PENDING:
    case INFOBIP_DELIVERED:
        return &pending;
    case INFOBIP_UNDELIVERABLE:
    case INFOBIP_EXPIRED:
    case INFOBIP_REJECTED:
        return &rejected;
    default:
        return &unknown;
    }
}

/* A rejection comes with status 200 as well; only messages[0].status tells. */
static int judge_message(const struct infobip *ib, const json_t *body,
                         struct provider_verdict *verdict)
{
    const struct provider_host *host = ib->host;
    const json_t *status = json_path(body, "messages/0/status");
    const char *id = json_text_at(body, "messages/0/messageId");
    char buf[24];
    const char *code = json_word_at(status, "id", buf, sizeof(buf));
    const struct verdict_row *row = verdict_find(by_id, sizeof(by_id) / sizeof(*by_id), 200, code);
    int r;

    if (!code || json_array_size(json_object_get(body, "messages")) != 1)
        return verdict_say(host, verdict, &unknown, NULL, "not an answer of Infobip's");
    if (!row)
        row = by_group(status);
    if (row->outcome == PROVIDER_ACCEPTED && row->mark == VERDICT_PLAIN) {
        if (!id || !*id)
            return verdict_say(host, verdict, &unknown, code, "taken without a messageId");
        host->verdict(verdict, PROVIDER_ACCEPTED);
        return host->verdict_id(verdict, id, strlen(id));
    }
    r = verdict_say(host, verdict, row, code, json_text_at(status, "name"));
    if (r == 0 && row->mark == VERDICT_DUPLICATE && id && *id)
        r = host->verdict_id(verdict, id, strlen(id));
    return r;
}

/* Version 3 writes errorCode, version 2 requestError. */
static int judge_error(const struct infobip *ib, const struct provider_reply *reply,
                       const json_t *body, struct provider_verdict *verdict)
{
    const struct verdict_row row = {.outcome = verdict_of_status(reply->status)};
    const char *code = json_text_at(body, "errorCode");
    const char *detail = json_text_at(body, "description");

    if (!code) {
        code = json_text_at(body, "requestError/serviceException/messageId");
        detail = json_text_at(body, "requestError/serviceException/text");
    }
    return verdict_say(ib->host, verdict, &row, code, code ? detail : "not an answer of Infobip's");
}

static int infobip_judge(const void *self, const struct provider_reply *reply,
                         struct provider_verdict *verdict)
{
    const struct infobip *ib = self;
    json_t *body;
    int r;

    if (!reply->complete) {
        ib->host->verdict(verdict, PROVIDER_UNKNOWN);
        return 0;
    }
    body = json_body(reply->body, reply->body_len);
    if (reply->status / 100 == 2)
        r = judge_message(ib, body, verdict);
    else
        r = judge_error(ib, reply, body, verdict);
    json_decref(body);
    return r;
}

__attribute__((visibility("default"))) const struct provider *provider_entry(void)
{
    static const struct provider provider = {
        .abi_major = PROVIDER_ABI_MAJOR,
        .abi_minor = 1,
        .size = sizeof(struct provider),
        .name = "infobip",
        .open = infobip_open,
        .close = infobip_close,
        .describe = infobip_describe,
        .build = infobip_build,
        .judge = infobip_judge,
        .ask = infobip_ask,
        .ask_judge = infobip_ask_judge,
        .receipt = infobip_receipt,
    };

    return &provider;
}
