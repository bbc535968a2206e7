/* Telnyx, messaging API v2. See README.md. */
#include "providers/telnyx/telnyx.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/callback.h"
#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/request.h"
#include "providers/kit/sender.h"
#include "providers/kit/settings.h"
#include "providers/kit/sign.h"
#include "providers/kit/verdict.h"

static const int64_t day_ms = INT64_C(86400000);

/* ---- settings ------------------------------------------------------------------------------- */

static int read_key(struct telnyx *t, struct settings *s, const char *text)
{
    size_t n = 0;
    uint8_t *key = sign_unbase64(text, strlen(text), &n);
    int r = 0;

    if (key && n == TELNYX_KEY_LEN)
        memcpy(t->keys[t->keys_n++], key, TELNYX_KEY_LEN);
    else
        r = settings_refuse(s, "public_key", "copy it from the portal: Keys & Credentials",
                            "is not 32 bytes in base64");
    free(key);
    return r;
}

static int read_keys(struct telnyx *t, struct settings *s)
{
    char **texts = settings_list(s, "public_key");
    size_t n = 0;
    int r = s->error;

    while (texts && texts[n])
        n++;
    if (r == 0 && n > 0) {
        t->keys = calloc(n, sizeof(*t->keys));
        r = t->keys ? 0 : -ENOMEM;
    }
    for (size_t i = 0; i < n && r == 0; i++)
        r = read_key(t, s, texts[i]);
    settings_list_free(texts);
    return r;
}

static int check_sender(struct telnyx *t, struct settings *s)
{
    if (!t->from && !t->profile)
        return settings_refuse(s, "from", "set from, or messaging_profile_id for a number pool",
                               "nobody to send from");
    if (t->from && sender_kind(t->from) == SENDER_BAD)
        return settings_refuse(s, "from", NULL, SENDER_RULE);
    if (t->from && sender_kind(t->from) == SENDER_NAME && !t->profile)
        return settings_refuse(s, "messaging_profile_id", NULL, "is required where from is a name");
    return 0;
}

static int read_settings(struct telnyx *t, struct settings *s)
{
    static const char *const words[] = {"none", "declared", NULL};
    char *url = settings_url(s, "url", "https://api.telnyx.com");
    char *key = settings_text(s, "api_key", NULL);
    int r;

    t->from = settings_text(s, "from", "");
    t->profile = settings_text(s, "messaging_profile_id", "");
    t->dedup = settings_word(s, "idempotency", words, 0) == 1;
    r = read_keys(t, s);
    if (r == 0)
        r = check_sender(t, s);
    if (r == 0) {
        t->authorization = request_bearer(key);
        if (asprintf(&t->messages_url, "%s/v2/messages", url) < 0)
            t->messages_url = NULL;
        r = t->authorization && t->messages_url ? 0 : -ENOMEM;
    }
    free(key);
    free(url);
    return r;
}

static void telnyx_close(void *self)
{
    struct telnyx *t = self;

    if (!t)
        return;
    free(t->messages_url);
    free(t->authorization);
    free(t->from);
    free(t->profile);
    free(t->keys);
    free(t);
}

static int telnyx_open(const struct provider_host *host, const char *settings_json,
                       struct provider_report *report, void **ret_self)
{
    struct telnyx *t = calloc(1, sizeof(*t));
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
        telnyx_close(t);
        return r;
    }
    *ret_self = t;
    return 0;
}

static void telnyx_describe(const void *self, struct provider_caps *ret)
{
    const struct telnyx *t = self;

    if (t->dedup) {
        ret->dedup = PROVIDER_DEDUP_REPLAY;
        ret->dedup_window_ms = day_ms;
    }
    ret->ask = PROVIDER_ASK_BY_ID;
    ret->ask_window_ms = 10 * day_ms;
    ret->receipts = t->keys ? PROVIDER_RECEIPTS_SIGNED : PROVIDER_RECEIPTS_UNSIGNED;
    ret->number = PROVIDER_NUMBER_PLUS;
    ret->validity = PROVIDER_VALIDITY_NONE;
    ret->limit = PROVIDER_LIMIT_MESSAGE;
}

/* ---- build ---------------------------------------------------------------------------------- */

/* Adds "from" in Telnyx' form: numbers with +. */
static int add_sender(const struct telnyx *t, const struct provider_msg *msg, json_t *body)
{
    const char *sender = msg->sender ? msg->sender : t->from;
    enum sender_kind kind = sender_kind(sender);

    if (!sender) /* the profile's number pool */
        return 0;
    if (kind == SENDER_BAD || (kind == SENDER_NAME && !t->profile))
        return -EINVAL;
    return json_object_set_new(
               body, "from",
               json_sprintf("%s%s", kind == SENDER_NUMBER && *sender != '+' ? "+" : "", sender)) < 0
               ? -ENOMEM
               : 0;
}

static int add_rest(const struct telnyx *t, const struct provider_msg *msg, json_t *body)
{
    int r = json_object_set_new(body, "to", json_string(msg->recipient));

    r |= json_object_set_new(body, "text", json_stringn(msg->body, msg->body_len));
    if (t->profile)
        r |= json_object_set_new(body, "messaging_profile_id", json_string(t->profile));
    if (msg->callback_url) {
        r |= json_object_set_new(body, "webhook_url", json_string(msg->callback_url));
        r |= json_object_set_new(body, "use_profile_webhooks", json_false());
    }
    return r < 0 ? -EINVAL : 0; /* not UTF-8, or out of memory */
}

static int telnyx_build(const void *self, const struct provider_msg *msg, struct provider_req *req)
{
    const struct telnyx *t = self;
    json_t *body = json_object();
    int r = body ? add_sender(t, msg, body) : -ENOMEM;

    if (r == 0)
        r = add_rest(t, msg, body);
    if (r < 0) {
        json_decref(body);
        return r;
    }
    r = request_post_json(t->host, req, t->messages_url, t->authorization, body);
    if (r == 0 && t->dedup)
        r = t->host->req_header(req, "Idempotency-Key", msg->key); /* unquoted, as Telnyx wants */
    return r;
}

/* ---- judge ---------------------------------------------------------------------------------- */

#define REJECT(code)                                                                               \
    {                                                                                              \
        code, 0, PROVIDER_REJECTED, VERDICT_PLAIN                                                  \
    }
#define HOLD(code)                                                                                 \
    {                                                                                              \
        code, 0, PROVIDER_HELD, VERDICT_PLAIN                                                      \
    }

/* errors[].code: the same code comes under different statuses, so only the code counts. */
static const struct verdict_row rows[] = {
    REJECT("10002"), /* invalid phone number */
    REJECT("40001"), /* not routable: a landline, or no carrier */
    REJECT("40003"),
    REJECT("40004"),
    REJECT("40008"),
    REJECT("40009"),
    REJECT("40012"),
    REJECT("40301"),
    REJECT("40302"),
    REJECT("40304"),
    REJECT("40310"), /* invalid 'to' */
    REJECT("40316"),
    REJECT("40322"),
    REJECT("40328"),
    HOLD("10009"), /* authentication */
    HOLD("10010"),
    HOLD("10001"),
    HOLD("20016"), /* verification level */
    HOLD("20017"),
    HOLD("20100"), /* funds */
    HOLD("40010"), /* sender not registered */
    HOLD("40013"),
    HOLD("40100"),
    HOLD("40300"), /* with STOP an opt-out, see below; else the sender is not on the profile */
    HOLD("40305"),
    HOLD("40306"),
    HOLD("40309"),
    HOLD("40311"),
    HOLD("40312"),
    HOLD("40313"),
    HOLD("40314"),
    HOLD("40315"),
    HOLD("40320"),
    HOLD("40321"),
    HOLD("40329"),
    {"10011", 0, PROVIDER_THROTTLED, VERDICT_PLAIN},
    {"40318", 0, PROVIDER_THROTTLED, VERDICT_PLAIN}, /* the sender's queue is full */
    {"40011", 0, PROVIDER_THROTTLED, VERDICT_PLAIN}, /* carriers' limits */
    {"40016", 0, PROVIDER_THROTTLED, VERDICT_PLAIN},
    {"40018", 0, PROVIDER_THROTTLED, VERDICT_PLAIN},
    {"40002", 0, PROVIDER_REFUSED, VERDICT_PLAIN}, /* looks like spam, for now */
    {"40006", 0, PROVIDER_REFUSED, VERDICT_PLAIN}, /* recipient's server unavailable */
    {"10007", 0, PROVIDER_UNKNOWN, VERDICT_PLAIN}, /* unexpected error */
    {"10008", 0, PROVIDER_UNKNOWN, VERDICT_PLAIN}, /* timeout */
    {"10016", 0, PROVIDER_UNKNOWN, VERDICT_PLAIN}, /* idempotency unavailable */
    {"10036", 0, PROVIDER_UNKNOWN, VERDICT_PLAIN}, /* the first request is still at work */
};

static const struct verdict_row opted_out = {.outcome = PROVIDER_REJECTED, .mark = VERDICT_OPT_OUT};

static bool says_stop(const json_t *error)
{
    const char *title = json_text_at(error, "title"), *detail = json_text_at(error, "detail");

    return (title && strstr(title, "STOP")) || (detail && strstr(detail, "STOP"));
}

/* Whole seconds until the limit's window is over. */
static void read_wait(const struct telnyx *t, const struct provider_reply *reply,
                      struct provider_verdict *verdict)
{
    const char *text = reply_header(reply, "x-ratelimit-reset");
    char *end = NULL;
    long seconds = text && *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : -1;

    if (seconds >= 0 && seconds <= 86400 && *end == '\0')
        t->host->verdict_retry_after(verdict, (int64_t)seconds * 1000);
}

/* What a status says, with and without an error of Telnyx' own that is not in the table. */
static enum provider_outcome of_status(const struct telnyx *t, int status)
{
    /* The key was used with other bytes: an earlier try may have been taken. */
    return t->dedup && status == 422 ? PROVIDER_UNKNOWN : verdict_of_status(status);
}

static int judge_errors(const struct telnyx *t, const struct provider_reply *reply,
                        const json_t *body, struct provider_verdict *verdict)
{
    const json_t *error = json_path(body, "errors/0");
    char buf[24];
    const char *code = json_word_at(error, "code", buf, sizeof(buf));
    const char *detail = json_text_at(error, "detail");
    struct verdict_row by_status = {.outcome = of_status(t, reply->status)};
    const struct verdict_row *row =
        code ? verdict_find(rows, sizeof(rows) / sizeof(*rows), reply->status, code) : NULL;

    if (row && strcmp(code, "40300") == 0 && says_stop(error))
        row = &opted_out;
    if (!row || reply->status == 429)
        row = &by_status;
    if (row->outcome == PROVIDER_THROTTLED)
        read_wait(t, reply, verdict);
    if (!detail)
        detail = json_text_at(error, "title");
    return verdict_say(t->host, verdict, row, code, code ? detail : "not an answer of Telnyx'");
}

/* A success is Telnyx' own only with a message and its id. */
static int judge_taken(const struct telnyx *t, const json_t *body, struct provider_verdict *verdict)
{
    const char *type = json_text_at(body, "data/record_type"), *id = json_text_at(body, "data/id");

    if (!id || !*id || !type || strcmp(type, "message") != 0)
        return verdict_say(t->host, verdict, NULL, NULL, "a success without a message's id");
    t->host->verdict(verdict, PROVIDER_ACCEPTED);
    return t->host->verdict_id(verdict, id, strlen(id));
}

static int telnyx_judge(const void *self, const struct provider_reply *reply,
                        struct provider_verdict *verdict)
{
    const struct telnyx *t = self;
    json_t *body = reply->complete ? json_body(reply->body, reply->body_len) : NULL;
    int r;

    if (!reply->complete)
        r = verdict_say(t->host, verdict, NULL, NULL, "the answer broke off");
    else if (reply->status / 100 == 2)
        r = judge_taken(t, body, verdict);
    else
        r = judge_errors(t, reply, body, verdict);
    json_decref(body);
    return r;
}

/* ---- asking: by the vendor's id only -------------------------------------------------------- */

static int telnyx_ask(const void *self, const struct provider_question *q, struct provider_req *req)
{
    const struct telnyx *t = self;
    struct form url = {0};
    int r;

    if (!q->vendor_id)
        return -ENODATA;
    form_printf(&url, "%s/", t->messages_url);
    form_escape(&url, q->vendor_id, strlen(q->vendor_id));
    r = url.error ? url.error : request_get(t->host, req, url.text, t->authorization);
    form_done(&url);
    return r;
}

/* That it does not find its own id proves nothing. */
static int telnyx_ask_judge(const void *self, const struct provider_question *q,
                            const struct provider_reply *reply, struct provider_answer *answer)
{
    const struct telnyx *t = self;
    json_t *body = json_body(reply->body, reply->body_len);
    const char *id = json_text_at(body, "data/id");
    char buf[24];
    const char *code = json_word_at(body, "errors/0/code", buf, sizeof(buf));
    bool found = reply->status == 200 && id && q->vendor_id && strcmp(id, q->vendor_id) == 0;
    int r = 0;

    t->host->answer(answer, found ? PROVIDER_HAS_IT : PROVIDER_CANNOT_SAY);
    if (found)
        r = t->host->answer_id(answer, id, strlen(id));
    else if (code)
        r = t->host->answer_code(answer, code, strlen(code));
    json_decref(body);
    return r;
}

__attribute__((visibility("default"))) const struct provider *provider_entry(void)
{
    static const struct provider provider = {
        .abi_major = PROVIDER_ABI_MAJOR,
        .abi_minor = 1,
        .size = sizeof(struct provider),
        .name = "telnyx",
        .open = telnyx_open,
        .close = telnyx_close,
        .describe = telnyx_describe,
        .build = telnyx_build,
        .judge = telnyx_judge,
        .ask = telnyx_ask,
        .ask_judge = telnyx_ask_judge,
        .receipt = telnyx_receipt,
    };

    return &provider;
}
