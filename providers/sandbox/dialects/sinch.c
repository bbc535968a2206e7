/* Sinch SMS (XMS batches): JSON in and out, one recipient a batch here, no de-duplication, a list
 * filtered by client_reference. A plan is called with its token, a project with one from
 * /oauth2/token. Facts: Sinch's OpenAPI description, documentation and sinch-sdk-python. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/sign.h"
#include "providers/kit/when.h"
#include "providers/sandbox/dialect.h"

#define FORGED_SECRET "not the webhook secret"

enum { BODY_MAX = 2000, PAGE_DEFAULT = 30, PAGE_MAX = 100, DAY_MS = 86400000 };

static const int64_t expire_max_ms = INT64_C(3) * DAY_MS, slack_ms = 60000;

/* --- answers ---------------------------------------------------------------------------- */

static int say_error(struct sb_reply *reply, int status, const char *code, const char *text)
{
    return sb_reply_json(reply, status, json_pack("{s:s, s:s}", "code", code, "text", text));
}

static int refuse_read(struct sb_reply *reply, int status, const char *code, const char *text)
{
    int rc = say_error(reply, status, code, text);

    return rc < 0 ? rc : -EINVAL;
}

/* `extra` of a message is its delivery_report. */
static json_t *batch_json(const struct sb_msg *m)
{
    char created[WHEN_SIZE], expires[WHEN_SIZE];
    int64_t life = m->validity_ms > 0 ? m->validity_ms : expire_max_ms;

    return json_pack("{s:s, s:[s], s:s?, s:b, s:s, s:s, s:s?, s:s, s:s, s:O?, s:s}", "id",
                     m->ids[0], "to", m->to, "from", m->from, "canceled", 0, "body", m->text,
                     "type", "mt_text", "client_reference", m->ref, "created_at",
                     when_rfc3339(m->taken_ms, created), "modified_at", created, "delivery_report",
                     m->extra, "expire_at", when_rfc3339(m->taken_ms + life, expires));
}

/* --- who calls -------------------------------------------------------------------------- */

/* 0, or -EINVAL with the answer. */
static int check_access(const struct sb_call *c, struct sb_reply *reply)
{
    const char *plan = sb_call_part(c, "plan"), *token = sb_call_bearer(c, "Bearer");
    bool ours = strcmp(plan, sb_setting(c->world, "service_plan_id")) == 0;

    if (ours && token && strcmp(token, sb_setting(c->world, "api_token")) == 0)
        return 0;
    if (!ours && strcmp(plan, sb_setting(c->world, "project_id")) == 0) {
        ours = true;
        if (sb_token_ok(c->world, token))
            return 0;
    }
    if (ours)
        return refuse_read(reply, 401, "unauthorized", "The token is not valid");
    return refuse_read(reply, 404, "not_found", "There is no such service plan");
}

/* RFC 6749, 4.4. */
static int serve_login(struct sb_call *c, struct sb_reply *reply)
{
    const char *grant = sb_call_form(c, "grant_type"), *token;
    int64_t lifetime_s = 0;

    if (!sb_call_basic(c, sb_setting(c->world, "key_id"), sb_setting(c->world, "key_secret")))
        return sb_reply_json(reply, 401,
                             json_pack("{s:s, s:s}", "error", "invalid_client", "error_description",
                                       "Client authentication failed"));
    if (!grant || strcmp(grant, "client_credentials") != 0)
        return sb_reply_json(reply, 400, json_pack("{s:s}", "error", "unsupported_grant_type"));
    token = sb_token_issue(c, NULL, &lifetime_s);
    if (!token)
        return -ENOMEM;
    return sb_reply_json(reply, 200,
                         json_pack("{s:s, s:I, s:s, s:s}", "access_token", token, "expires_in",
                                   (json_int_t)lifetime_s, "scope", "", "token_type", "bearer"));
}

/* --- requests --------------------------------------------------------------------------- */

static bool is_number(const char *s)
{
    size_t digits;

    s += *s == '+';
    digits = strspn(s, "0123456789");
    return digits >= 7 && digits <= 15 && s[digits] == '\0' && *s != '0';
}

static bool is_sender(const char *s)
{
    size_t len = strlen(s), digits = strspn(s, "0123456789");

    return is_number(s) || (digits == len && len >= 3 && len <= 8) ||
           (len >= 1 && len <= 11 && digits < len && *s != '+');
}

static size_t characters(const char *utf8)
{
    size_t n = 0;

    for (; *utf8; utf8++)
        n += ((unsigned char)*utf8 & 0xc0) != 0x80;
    return n;
}

static int check_fields(const struct sb_call *c, const struct sb_send *s, struct sb_reply *reply)
{
    static const char format[] = "syntax_invalid_parameter_format";
    static const char constraint[] = "syntax_constraint_violation";
    const char *type = json_text_at(c->json, "type");

    if (json_array_size(json_path(c->json, "to")) > 1)
        return refuse_read(reply, 400, constraint, "The sandbox takes one recipient");
    if (!s->to)
        return refuse_read(reply, 400, constraint, "Parameter 'to' is missing");
    if (!is_number(s->to))
        return refuse_read(reply, 400, format, "Parameter 'to' is not a number");
    if (s->from && !is_sender(s->from))
        return refuse_read(reply, 400, format, "Parameter 'from' is not valid");
    if (!s->text || !*s->text || characters(s->text) > BODY_MAX)
        return refuse_read(reply, 400, constraint,
                           "Parameter 'body' must have 1 to 2000 characters");
    if (type && strcmp(type, "mt_text") != 0)
        return refuse_read(reply, 400, constraint, "The sandbox takes mt_text");
    return 0;
}

static int read_expiry(const struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    const json_t *value = json_path(c->json, "expire_at");
    int64_t at_ms = 0, now_ms = sb_now_ms(c->world);

    if (!value)
        return 0;
    if (!when_parse(json_text_at(c->json, "expire_at"), 0, &at_ms))
        return refuse_read(reply, 400, "syntax_invalid_parameter_format",
                           "Parameter 'expire_at' is not a time");
    if (at_ms <= now_ms || at_ms > now_ms + expire_max_ms + slack_ms)
        return refuse_read(reply, 400, "syntax_constraint_violation",
                           "Parameter 'expire_at' must be within three days");
    s->validity_ms = at_ms - now_ms;
    return 0;
}

static int read_report(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    static const char *const words[] = {"none", "summary", "full", "per_recipient",
                                        "per_recipient_final"};
    const char *word = json_text_at(c->json, "delivery_report");
    bool known = !word;

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        known |= word && strcmp(word, words[i]) == 0;
    if (!known)
        return refuse_read(reply, 400, "syntax_constraint_violation",
                           "Parameter 'delivery_report' is not valid");
    s->callback = json_text_at(c->json, "callback_url");
    if (s->callback && strncmp(s->callback, "http", 4) != 0)
        return refuse_read(reply, 400, "syntax_invalid_parameter_format",
                           "Parameter 'callback_url' is not a URL");
    if (word && !s->callback && !*sb_setting(c->world, "callback_url") && strcmp(word, "none") != 0)
        return refuse_read(reply, 403, "missing_callback_url", "There is no URL for reports");
    s->no_receipt = !word || strcmp(word, "none") == 0;
    if (word && !(s->extra = sb_call_keep(c, json_string(word))))
        return -ENOMEM;
    return 0;
}

static int read_send(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    int rc = check_access(c, reply);

    if (rc < 0)
        return rc;
    if (!json_is_object(c->json) || !sb_call_type(c, "application/json"))
        return refuse_read(reply, 400, "syntax_invalid_json", "The body is not JSON");
    s->to = json_text_at(c->json, "to/0");
    s->from = json_text_at(c->json, "from");
    s->text = json_text_at(c->json, "body");
    s->ref = json_text_at(c->json, "client_reference");
    rc = check_fields(c, s, reply);
    if (rc == 0)
        rc = read_expiry(c, s, reply);
    return rc == 0 ? read_report(c, s, reply) : rc;
}

static int accept_send(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m,
                       bool replay, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)replay;
    return sb_reply_json(reply, 201, batch_json(m));
}

static int refuse_send(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                       const struct sb_msg *known, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)known;
    switch (why) {
    case SB_REFUSE_NUMBER:
        return say_error(reply, 400, "syntax_invalid_parameter_format",
                         "Parameter 'to' is not a number");
    case SB_REFUSE_THROTTLED:
        sb_reply_header(reply, "Retry-After", "1");
        return say_error(reply, 429, "too_many_requests", "Slow down");
    case SB_REFUSE_ACCOUNT: /* the code is not confirmed */
        return say_error(reply, 403, "blocked_account", "The account is blocked");
    case SB_REFUSE_ERROR:
        return say_error(reply, sb_reply_status(reply), "internal_error", "Internal error");
    default:
        return -ENOTSUP;
    }
}

/* 26 characters, as a ULID has. */
static void make_id(const struct sb_world *w, const struct sb_msg *m, size_t part,
                    char buf[SB_ID_SIZE])
{
    sb_id_hex(w, m, part, "01", 24, buf);
}

/* --- look-ups --------------------------------------------------------------------------- */

static int serve_one(struct sb_call *c, struct sb_reply *reply)
{
    int rc = check_access(c, reply);
    const struct sb_msg *m;

    if (rc < 0)
        return rc == -EINVAL ? 0 : rc;
    m = sb_msg_by_id(c->world, sb_call_part(c, "id"), NULL);
    return m ? sb_reply_json(reply, 200, batch_json(m))
             : say_error(reply, 404, "not_found", "There is no such batch");
}

static long number_of(const char *text, long fallback, long max)
{
    char *end = NULL;
    long value = text ? strtol(text, &end, 10) : fallback;

    if (text && (end == text || *end || value < 0))
        return fallback;
    return value < max ? value : max;
}

/* Without start_date the last 24 hours. */
static int read_filter(const struct sb_call *c, struct sb_filter *f)
{
    const char *start = sb_call_query(c, "start_date"), *end = sb_call_query(c, "end_date");

    f->ref = sb_call_query(c, "client_reference");
    f->from_ms = sb_now_ms(c->world) - DAY_MS;
    if ((start && !when_parse(start, 0, &f->from_ms)) || (end && !when_parse(end, 0, &f->to_ms)))
        return -EINVAL;
    return 0;
}

static int serve_list(struct sb_call *c, struct sb_reply *reply)
{
    long page = number_of(sb_call_query(c, "page"), 0, 1000000);
    long size = number_of(sb_call_query(c, "page_size"), PAGE_DEFAULT, PAGE_MAX), count = 0;
    struct sb_filter f = {0};
    int rc = check_access(c, reply);
    json_t *list;

    if (rc < 0)
        return rc == -EINVAL ? 0 : rc;
    if (read_filter(c, &f) < 0)
        return say_error(reply, 400, "syntax_invalid_parameter_format", "A date is not a time");
    list = json_array();
    for (const struct sb_msg *m = sb_msg_next(c->world, &f, NULL); m;
         m = sb_msg_next(c->world, &f, m), count++)
        if (count >= page * size && count < (page + 1) * size)
            json_array_append_new(list, batch_json(m));
    return sb_reply_json(reply, 200,
                         json_pack("{s:I, s:I, s:I, s:o}", "count", (json_int_t)count, "page",
                                   (json_int_t)page, "page_size", (json_int_t)json_array_size(list),
                                   "batches", list));
}

/* --- receipts --------------------------------------------------------------------------- */

static const struct {
    const char *word;
    int code;
} states[] = {
    [SB_ST_QUEUED] = {"Queued", 400},     [SB_ST_SENT] = {"Dispatched", 401},
    [SB_ST_DELIVERED] = {"Delivered", 0}, [SB_ST_UNDELIVERED] = {"Failed", 403},
    [SB_ST_EXPIRED] = {"Expired", 406},   [SB_ST_REJECTED] = {"Rejected", 410},
};

/* base64(HMAC-SHA256(secret, body.nonce.timestamp)); nothing where no secret was agreed on. */
static int sign(const struct sb_world *w, enum sb_forge forge, struct sb_out *out)
{
    static const char nonce[] = "01FJA8B4A7BM43YGWSG9GBV067";
    const char *secret = forge == SB_FORGED ? FORGED_SECRET : sb_setting(w, "webhook_secret");
    char timestamp[24];
    struct form f = {0};
    uint8_t mac[SIGN_MAX];
    size_t n = 0;
    char *coded;
    int rc = -ENOMEM;

    if (forge == SB_UNSIGNED || !*secret)
        return 0;
    (void)snprintf(timestamp, sizeof(timestamp), "%lld", (long long)(sb_now_ms(w) / 1000));
    form_printf(&f, "%s.%s.%s", sb_out_text(out), nonce, timestamp);
    if (f.error == 0)
        n = sign_hmac(SIGN_SHA256, secret, strlen(secret), f.text, f.len, mac);
    coded = n > 0 ? sign_base64(mac, n) : NULL;
    if (coded)
        rc = sb_out_header(out, "x-sinch-webhook-signature", coded);
    if (rc == 0)
        rc = sb_out_header(out, "x-sinch-webhook-signature-nonce", nonce);
    if (rc == 0)
        rc = sb_out_header(out, "x-sinch-webhook-signature-timestamp", timestamp);
    if (rc == 0)
        rc = sb_out_header(out, "x-sinch-webhook-signature-algorithm", "HmacSHA256");
    free(coded);
    form_done(&f);
    return rc;
}

/* Takes `body`. */
static int post(const struct sb_world *w, json_t *body, enum sb_forge forge, struct sb_out *out)
{
    int rc = sb_out_call(out, "POST", sb_out_target(out));

    if (rc < 0) {
        json_decref(body);
        return rc;
    }
    rc = sb_out_json(out, body);
    return rc == 0 ? sign(w, forge, out) : rc;
}

static bool is_summary(const struct sb_msg *m)
{
    const char *word = json_string_value(m->extra);

    return word && (strcmp(word, "summary") == 0 || strcmp(word, "full") == 0);
}

static int receipt(const struct sb_world *w, const struct sb_receipt *items, size_t n,
                   enum sb_forge forge, struct sb_out *out)
{
    const struct sb_msg *m = items->msg;
    const char *word = states[items->state].word;
    int code = states[items->state].code;
    char at[WHEN_SIZE];

    if (n > 1)
        return -ENOTSUP;
    if (is_summary(m))
        return post(w,
                    json_pack("{s:s, s:s, s:s?, s:[{s:i, s:s, s:i, s:[s]}], s:i}", "type",
                              "delivery_report_sms", "batch_id", m->ids[0], "client_reference",
                              m->ref, "statuses", "code", code, "status", word, "count", 1,
                              "recipients", m->to, "total_message_count", 1),
                    forge, out);
    return post(w,
                json_pack("{s:s, s:s, s:s, s:i, s:s, s:s, s:s?}", "type",
                          "recipient_delivery_report_sms", "batch_id", m->ids[0], "recipient",
                          m->to, "code", code, "status", word, "at", when_rfc3339(items->at_ms, at),
                          "client_reference", m->ref),
                forge, out);
}

static int inbound(const struct sb_world *w, const struct sb_inbound *m, enum sb_forge forge,
                   struct sb_out *out)
{
    char at[WHEN_SIZE];

    return post(w,
                json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "type", "mo_text", "id", m->id, "from",
                          m->from + (*m->from == '+'), "to", m->to + (*m->to == '+'), "body",
                          m->text, "received_at", when_rfc3339(sb_now_ms(w), at)),
                forge, out);
}

/* --- the dialect ------------------------------------------------------------------------ */

static const struct sb_setting settings[] = {
    {"service_plan_id", "sandboxplan", "a plan, called with api_token"},
    {"api_token", "sandbox-token", "its Bearer token"},
    {"project_id", "sandboxproject", "a project, called with a token of /oauth2/token"},
    {"key_id", "sandbox-key", "the project's access key, user of Basic"},
    {"key_secret", "sandbox-secret", "its secret"},
    {"webhook_secret", "sandbox-webhook", "key of x-sinch-webhook-signature; \"\": unsigned"},
    {NULL, NULL, NULL},
};

static const struct sb_dialect_route routes[] = {
    {"POST", "/xms/v1/{plan}/batches", NULL, false},
    {"GET", "/xms/v1/{plan}/batches", serve_list, false},
    {"GET", "/xms/v1/{plan}/batches/{id}", serve_one, false},
    {"POST", "/oauth2/token", serve_login, true},
    {NULL, NULL, NULL, false},
};

const struct sb_dialect sb_dialect_sinch = {
    .name = "sinch",
    .help = "SMS batches; look-up by client_reference; OAuth2 or plan token; HMAC signatures",
    .settings = settings,
    .routes = routes,
    .dedup = SB_DEDUP_NONE,
    .read = read_send,
    .accept = accept_send,
    .refuse = refuse_send,
    .make_id = make_id,
    .receipt = receipt,
    .inbound = inbound,
};
