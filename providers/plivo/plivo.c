/* Plivo, messaging API v1. See README.md. */
#include "providers/plivo/plivo.h"

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

/* Error 110: longer texts are taken, and fail later. */
enum { GSM7_MAX = 1600, UCS2_MAX = 737 };
enum { EXPIRY_MIN_S = 5, EXPIRY_MAX_S = 10800 };

/* ---- settings ------------------------------------------------------------------------------- */

static int check_sender(const struct plivo *p, struct settings *s)
{
    if (!p->from && !p->powerpack_uuid)
        return settings_refuse(s, "from", "set from or powerpack_uuid", "nobody to send from");
    if (p->from && p->powerpack_uuid)
        return settings_refuse(s, "powerpack_uuid", "leave one out", "stands beside from");
    if (p->from && sender_kind(p->from) == SENDER_BAD)
        return settings_refuse(s, "from", NULL, SENDER_RULE);
    return 0;
}

/* What stands in a URL must not change it. */
static int check_account(const char *auth_id, struct settings *s)
{
    if (auth_id[strspn(auth_id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")])
        return settings_refuse(s, "auth_id", NULL, "holds more than letters and digits");
    return 0;
}

static int read_settings(struct plivo *p, struct settings *s)
{
    static const char *const schemes[] = {"v3", "v2", "none", NULL};
    char *url = settings_url(s, "url", "https://api.plivo.com");
    char *auth_id = settings_text(s, "auth_id", NULL);
    int r;

    p->tokens = settings_list(s, "auth_token");
    p->from = settings_text(s, "from", "");
    p->powerpack_uuid = settings_text(s, "powerpack_uuid", "");
    p->expiry = settings_bool(s, "message_expiry", true);
    p->signature = (enum plivo_signature)settings_word(s, "signature", schemes, PLIVO_V3);
    r = s->error;
    if (r == 0 && !p->tokens)
        r = settings_refuse(s, "auth_token", NULL, "is required");
    if (r == 0)
        r = check_account(auth_id, s);
    if (r == 0)
        r = check_sender(p, s);
    if (r == 0 && p->tokens) {
        p->authorization = request_basic(auth_id, p->tokens[0]);
        if (asprintf(&p->messages_url, "%s/v1/Account/%s/Message/", url, auth_id) < 0)
            p->messages_url = NULL;
        r = p->authorization && p->messages_url ? 0 : -ENOMEM;
    }
    free(auth_id);
    free(url);
    return r;
}

static void plivo_close(void *self)
{
    struct plivo *p = self;

    if (!p)
        return;
    free(p->messages_url);
    free(p->authorization);
    settings_list_free(p->tokens);
    free(p->from);
    free(p->powerpack_uuid);
    free(p);
}

static int plivo_open(const struct provider_host *host, const char *settings_json,
                      struct provider_report *report, void **ret_self)
{
    struct plivo *p = calloc(1, sizeof(*p));
    struct settings s;
    int r, end;

    if (!p)
        return -ENOMEM;
    p->host = host;
    r = settings_begin(&s, host, settings_json, report);
    if (r == 0)
        r = read_settings(p, &s);
    end = settings_end(&s);
    if (r == 0)
        r = end;
    if (r < 0) {
        plivo_close(p);
        return r;
    }
    *ret_self = p;
    return 0;
}

static void plivo_describe(const void *self, struct provider_caps *ret)
{
    const struct plivo *p = self;

    ret->ask = PROVIDER_ASK_BY_ID;
    ret->receipts =
        p->signature == PLIVO_UNSIGNED ? PROVIDER_RECEIPTS_UNSIGNED : PROVIDER_RECEIPTS_SIGNED;
    ret->number = PROVIDER_NUMBER_DIGITS;
    ret->validity = p->expiry ? PROVIDER_VALIDITY_S : PROVIDER_VALIDITY_NONE;
    ret->limit = PROVIDER_LIMIT_MESSAGE;
}

/* ---- build ---------------------------------------------------------------------------------- */

static int check_text(const struct provider_msg *msg)
{
    struct text_measure m;

    if (text_measure(msg->body, msg->body_len, &m) < 0)
        return -EILSEQ;
    return m.units > (m.alphabet == TEXT_GSM7 ? GSM7_MAX : UCS2_MAX) ? -EMSGSIZE : 0;
}

/* The message's sender, else the power pack, else `from`; numbers without +. */
static int add_sender(const struct plivo *p, const struct provider_msg *msg, json_t *body)
{
    const char *sender = msg->sender ? msg->sender : p->from;

    if (!sender)
        return json_object_set_new(body, "powerpack_uuid", json_string(p->powerpack_uuid)) < 0
                   ? -ENOMEM
                   : 0;
    if (sender_kind(sender) == SENDER_BAD)
        return -EINVAL;
    sender += *sender == '+';
    if (strcmp(sender, msg->recipient + (*msg->recipient == '+')) == 0)
        return -EINVAL; /* Plivo does not send to the sender */
    return json_object_set_new(body, "src", json_string(sender)) < 0 ? -ENOMEM : 0;
}

static int add_rest(const struct plivo *p, const struct provider_msg *msg, json_t *body)
{
    int r =
        json_object_set_new(body, "dst", json_string(msg->recipient + (*msg->recipient == '+')));

    r |= json_object_set_new(body, "text", json_stringn(msg->body, msg->body_len));
    r |= json_object_set_new(body, "type", json_string("sms"));
    if (msg->callback_url) {
        r |= json_object_set_new(body, "method", json_string("POST"));
        r |= json_object_set_new(body, "url", json_string(msg->callback_url));
    }
    if (p->expiry)
        r |= json_object_set_new(
            body, "message_expiry",
            json_integer(when_validity(msg->validity_ms, 1000, EXPIRY_MIN_S, EXPIRY_MAX_S)));
    return r < 0 ? -ENOMEM : 0;
}

static int plivo_build(const void *self, const struct provider_msg *msg, struct provider_req *req)
{
    const struct plivo *p = self;
    json_t *body;
    int r = check_text(msg);

    if (r < 0)
        return r;
    body = json_object();
    r = body ? add_sender(p, msg, body) : -ENOMEM;
    if (r == 0)
        r = add_rest(p, msg, body);
    if (r < 0) {
        json_decref(body);
        return r;
    }
    return request_post_json(p->host, req, p->messages_url, p->authorization, body);
}

/* ---- judge ---------------------------------------------------------------------------------- */

/* Plivo has no codes of its own in an answer: under its form ("api_id", "error") the status is all.
 * It names no key, so a 409 cannot mean an earlier try. */
static const struct verdict_row rows[] = {
    {NULL, 400, PROVIDER_REJECTED, VERDICT_PLAIN},
    {NULL, 401, PROVIDER_HELD, VERDICT_PLAIN},
    {NULL, 402, PROVIDER_HELD, VERDICT_PLAIN},
    {NULL, 403, PROVIDER_HELD, VERDICT_PLAIN}, /* forbidden, or a country not enabled */
    {NULL, 404, PROVIDER_HELD, VERDICT_PLAIN}, /* wrong account or address */
    {NULL, 405, PROVIDER_HELD, VERDICT_PLAIN},
    {NULL, 409, PROVIDER_REJECTED, VERDICT_PLAIN},
    {NULL, 422, PROVIDER_REJECTED, VERDICT_PLAIN},
    {NULL, 429, PROVIDER_THROTTLED, VERDICT_PLAIN},
};

static const struct verdict_row no_credit = {.outcome = PROVIDER_HELD};

/* Which status an empty account gives is not documented; the words are plain. */
static bool says_no_credit(int status, const char *error)
{
    return status / 100 == 4 && error &&
           (strcasestr(error, "credit") || strcasestr(error, "balance"));
}

static int judge_error(const struct plivo *p, int status, const json_t *body,
                       struct provider_verdict *verdict)
{
    const char *error = json_text_at(body, "error");
    const struct verdict_row by_status = {.outcome = verdict_of_status(status)};
    const struct verdict_row *row =
        error ? verdict_find(rows, sizeof(rows) / sizeof(*rows), status, NULL) : NULL;

    if (says_no_credit(status, error))
        row = &no_credit;
    return verdict_say(p->host, verdict, row ? row : &by_status, NULL,
                       error ? error : "not an answer of Plivo's");
}

/* One recipient: one id, or its number in the list of invalid ones. */
static int judge_taken(const struct plivo *p, const json_t *body, struct provider_verdict *verdict)
{
    static const struct verdict_row invalid = {.outcome = PROVIDER_REJECTED};
    const char *id = json_text_at(body, "message_uuid/0");

    if (id && *id) {
        p->host->verdict(verdict, PROVIDER_ACCEPTED);
        return p->host->verdict_id(verdict, id, strlen(id));
    }
    if (json_text_at(body, "api_id") && json_path(body, "invalid_number/0"))
        return verdict_say(p->host, verdict, &invalid, "invalid_number", "the number is invalid");
    return verdict_say(p->host, verdict, NULL, NULL, "a success without a message's id");
}

static int plivo_judge(const void *self, const struct provider_reply *reply,
                       struct provider_verdict *verdict)
{
    const struct plivo *p = self;
    json_t *body = reply->complete ? json_body(reply->body, reply->body_len) : NULL;
    int r;

    if (!reply->complete)
        r = verdict_say(p->host, verdict, NULL, NULL, "the answer broke off");
    else if (reply->status / 100 == 2)
        r = judge_taken(p, body, verdict);
    else
        r = judge_error(p, reply->status, body, verdict);
    json_decref(body);
    return r;
}

/* ---- asking: by the vendor's id only -------------------------------------------------------- */

static int plivo_ask(const void *self, const struct provider_question *q, struct provider_req *req)
{
    const struct plivo *p = self;
    struct form url = {0};
    int r;

    if (!q->vendor_id)
        return -ENODATA;
    form_raw(&url, p->messages_url);
    form_escape(&url, q->vendor_id, strlen(q->vendor_id));
    form_raw(&url, "/");
    r = url.error ? url.error : request_get(p->host, req, url.text, p->authorization);
    form_done(&url);
    return r;
}

/* That it does not find its own id proves nothing. */
static int plivo_ask_judge(const void *self, const struct provider_question *q,
                           const struct provider_reply *reply, struct provider_answer *answer)
{
    const struct plivo *p = self;
    json_t *body = json_body(reply->body, reply->body_len);
    const char *id = json_text_at(body, "message_uuid"), *error = json_text_at(body, "error");
    bool found = reply->status == 200 && id && q->vendor_id && strcmp(id, q->vendor_id) == 0;
    int r = 0;

    p->host->answer(answer, found ? PROVIDER_HAS_IT : PROVIDER_CANNOT_SAY);
    if (found)
        r = p->host->answer_id(answer, id, strlen(id));
    else if (error)
        r = p->host->answer_detail(answer, error, strlen(error));
    json_decref(body);
    return r;
}

__attribute__((visibility("default"))) const struct provider *provider_entry(void)
{
    static const struct provider provider = {
        .abi_major = PROVIDER_ABI_MAJOR,
        .abi_minor = 1,
        .size = sizeof(struct provider),
        .name = "plivo",
        .open = plivo_open,
        .close = plivo_close,
        .describe = plivo_describe,
        .build = plivo_build,
        .judge = plivo_judge,
        .ask = plivo_ask,
        .ask_judge = plivo_ask_judge,
        .receipt = plivo_receipt,
    };

    return &provider;
}
