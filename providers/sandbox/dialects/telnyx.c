/* Telnyx messages, API v2: JSON in and out, errors by code, receipts signed with Ed25519. It
 * replays under Idempotency-Key only where the setting says that the endpoint declares it. Facts:
 * Telnyx' documentation of messaging, errors, idempotency and webhooks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/sign.h"
#include "providers/kit/when.h"
#include "providers/sandbox/dialect.h"
#include "worker/core/text.h"

#define DAY_S    86400
#define TRIES    3
#define SEED     "cG9zdHJpZGVyIHNhbmRib3g6IG5vIHNlY3JldCBrZXk="
#define PUBLIC   "1yUBB7OW6/iI0VlvsBkac6Y3gsUZfDFW6/Kr14YF8oQ="
#define SEED_LEN 32

/* --- answers ---------------------------------------------------------------------------- */

static int say_error(struct sb_reply *reply, int status, const char *code, const char *title,
                     const char *detail, const char *pointer)
{
    return sb_reply_json(reply, status,
                         json_pack("{s:[{s:s, s:s, s:s, s:{s:s}}]}", "errors", "code", code,
                                   "title", title, "detail", detail, "source", "pointer", pointer));
}

static int refuse_read(struct sb_reply *reply, int status, const char *code, const char *title,
                       const char *pointer)
{
    int rc = say_error(reply, status, code, title, title, pointer);

    return rc < 0 ? rc : -EINVAL;
}

static const char *status_word(enum sb_state state)
{
    static const char *const words[] = {
        [SB_ST_QUEUED] = "queued",       [SB_ST_SENT] = "sent",
        [SB_ST_DELIVERED] = "delivered", [SB_ST_UNDELIVERED] = "delivery_failed",
        [SB_ST_EXPIRED] = "expired",     [SB_ST_REJECTED] = "sending_failed",
    };

    return words[state];
}

/* What went wrong, as a list. */
static json_t *errors_json(enum sb_state state)
{
    if (state == SB_ST_UNDELIVERED)
        return json_pack("[{s:s, s:s}]", "code", "40008", "title", "Undeliverable");
    if (state == SB_ST_REJECTED)
        return json_pack("[{s:s, s:s}]", "code", "40003", "title", "Message rejected");
    return json_array();
}

static const char *encoding_of(const char *text)
{
    struct text_measure m;

    return text_measure(text, strlen(text), &m) == 0 ? text_alphabet_name(m.alphabet) : "UCS-2";
}

static json_t *message_json(const struct sb_msg *m, enum sb_state state)
{
    char received[WHEN_SIZE];
    json_t *to = json_pack("[{s:s, s:s, s:s, s:s}]", "phone_number", m->to, "status",
                           status_word(state), "carrier", "SANDBOX", "line_type", "Wireless");

    return json_pack("{s:s, s:s, s:s, s:s, s:{s:s?}, s:o, s:s, s:I, s:s, s:n, s:o, s:f, s:n, s:s, "
                     "s:s?, s:[]}",
                     "record_type", "message", "direction", "outbound", "id", m->ids[0], "type",
                     "SMS", "from", "phone_number", m->from, "to", to, "text", m->text, "parts",
                     (json_int_t)m->parts, "encoding", encoding_of(m->text), "cost", "errors",
                     errors_json(state), "wait_seconds", 0.5, "valid_until", "received_at",
                     when_rfc3339(m->taken_ms, received), "webhook_url", m->callback, "tags");
}

/* --- requests --------------------------------------------------------------------------- */

static bool may(const struct sb_call *c)
{
    const char *given = sb_call_bearer(c, "Bearer");

    return given && strcmp(given, sb_setting(c->world, "api_key")) == 0;
}

static bool is_e164(const char *s)
{
    size_t digits = *s == '+' ? strspn(s + 1, "0123456789") : 0;

    return digits >= 7 && digits <= 15 && s[digits + 1] == '\0' && s[1] != '0';
}

static bool is_name(const char *s)
{
    return strlen(s) <= 11 && strspn(s, "0123456789") < strlen(s) && *s != '+';
}

static bool is_short_code(const char *s)
{
    size_t digits = strspn(s, "0123456789");

    return digits >= 3 && digits <= 8 && s[digits] == '\0';
}

static int check_sender(const struct sb_send *s, const char *profile, struct sb_reply *reply)
{
    if (!s->from && !profile)
        return refuse_read(reply, 422, "10004", "Missing required parameter", "/from");
    if (s->from && !is_e164(s->from) && !is_short_code(s->from) && !is_name(s->from))
        return refuse_read(reply, 422, "40305", "Invalid 'from' address", "/from");
    if (s->from && is_name(s->from) && !profile)
        return refuse_read(reply, 422, "40306", "Alpha sender not configured", "/from");
    return 0;
}

static int check_fields(const struct sb_call *c, const struct sb_send *s, struct sb_reply *reply)
{
    if (!s->to)
        return refuse_read(reply, 422, "10004", "Missing required parameter", "/to");
    if (!is_e164(s->to)) /* the plus is mandatory */
        return refuse_read(reply, 422, "40310", "Invalid 'to' address", "/to");
    if (!s->text || !*s->text)
        return refuse_read(reply, 422, "40316", "No content provided", "/text");
    if (s->callback && strncmp(s->callback, "http", 4) != 0)
        return refuse_read(reply, 422, "10015", "Bad Request", "/webhook_url");
    return check_sender(s, json_text_at(c->json, "messaging_profile_id"), reply);
}

/* Unquoted, of letters, digits, _ : and -. */
static bool key_ok(const char *key)
{
    size_t len = strlen(key);

    return len >= 1 && len <= 255 &&
           strspn(key, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_:-") == len;
}

static int read_send(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    const char *key = sb_call_header(c, "Idempotency-Key");

    if (!may(c))
        return refuse_read(reply, 401, "10009", "Authentication failed", "/");
    if (!c->json || !sb_call_type(c, "application/json"))
        return refuse_read(reply, 400, "10015", "Bad Request", "/");
    s->to = json_text_at(c->json, "to");
    s->from = json_text_at(c->json, "from");
    s->text = json_text_at(c->json, "text");
    s->callback = json_text_at(c->json, "webhook_url");
    if (key && strcmp(sb_setting(c->world, "idempotency"), "declared") == 0) {
        if (!key_ok(key))
            return refuse_read(reply, 400, "10015", "Bad Request", "/");
        s->key = key;
    }
    return check_fields(c, s, reply);
}

static int accept_send(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m,
                       bool replay, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)replay; /* the same answer, as it was then */
    return sb_reply_json(reply, 200, json_pack("{s:o}", "data", message_json(m, SB_ST_QUEUED)));
}

static int refuse_send(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                       const struct sb_msg *known, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)known;
    switch (why) {
    case SB_REFUSE_NUMBER:
        return say_error(reply, 400, "40310", "Invalid 'to' address",
                         "The 'to' address should be in E.164 format.", "/to");
    case SB_REFUSE_THROTTLED:
        sb_reply_header(reply, "x-ratelimit-limit", "50");
        sb_reply_header(reply, "x-ratelimit-remaining", "0");
        sb_reply_header(reply, "x-ratelimit-reset", "1");
        return say_error(reply, 429, "10011", "Too many requests", "Too many requests.", "/");
    case SB_REFUSE_OPT_OUT:
        return say_error(reply, 403, "40300", "Blocked due to STOP message",
                         "Messages cannot be sent to this recipient, who has opted out.", "/to");
    case SB_REFUSE_LATER:
        return say_error(reply, 422, "40006", "Recipient server unavailable",
                         "The recipient server is unavailable or not responding.", "/to");
    case SB_REFUSE_ACCOUNT:
        return say_error(reply, 403, "20100", "Insufficient Funds",
                         "You have insufficient funds to perform this action.", "/");
    case SB_REFUSE_MISMATCH: /* the code's number is not confirmed */
        return say_error(reply, 422, "10035", "Idempotency key reused",
                         "The key was used with another request.", "/");
    case SB_REFUSE_RUNNING:
        return say_error(reply, 409, "10036", "Request in progress",
                         "A request with this key is still being processed.", "/");
    case SB_REFUSE_ERROR:
        return say_error(reply, sb_reply_status(reply), "10007", "Unexpected error",
                         "An unexpected error occurred.", "/");
    default:
        return -ENOTSUP;
    }
}

static int serve_one(struct sb_call *c, struct sb_reply *reply)
{
    const struct sb_msg *m;

    if (!may(c))
        return say_error(reply, 401, "10009", "Authentication failed", "No key found.", "/");
    m = sb_msg_by_id(c->world, sb_call_part(c, "id"), NULL);
    if (!m)
        return say_error(reply, 404, "10005", "Resource not found",
                         "The requested resource could not be found.", "/");
    return sb_reply_json(reply, 200, json_pack("{s:o}", "data", message_json(m, m->state)));
}

/* --- receipts --------------------------------------------------------------------------- */

/* base64(Ed25519(timestamp|body)). */
static int sign(struct sb_out *out, const uint8_t seed[SEED_LEN], const char *timestamp)
{
    struct form f = {0};
    uint8_t signature[64];
    char *coded = NULL;
    int rc = -ENOMEM;

    form_printf(&f, "%s|%s", timestamp, sb_out_text(out));
    if (f.error == 0 && sign_ed25519(seed, f.text, f.len, signature))
        coded = sign_base64(signature, sizeof(signature));
    if (coded)
        rc = sb_out_header(out, "telnyx-signature-ed25519", coded);
    if (rc == 0)
        rc = sb_out_header(out, "telnyx-timestamp", timestamp);
    free(coded);
    form_done(&f);
    return rc;
}

static int sign_as(const struct sb_world *w, enum sb_forge forge, struct sb_out *out)
{
    const char *text = sb_setting(w, "private_key");
    char timestamp[24];
    size_t n = 0;
    uint8_t *seed = sign_unbase64(text, strlen(text), &n);
    int rc = seed && n == SEED_LEN ? 0 : -EINVAL;

    (void)snprintf(timestamp, sizeof(timestamp), "%lld", (long long)(sb_now_ms(w) / 1000));
    if (rc == 0 && forge == SB_FORGED)
        seed[0] ^= 1; /* another key */
    if (rc == 0)
        rc = sign(out, seed, timestamp);
    free(seed);
    return rc;
}

/* Takes `payload`. */
static int post(const struct sb_world *w, const char *type, const char *id, int64_t at_ms,
                json_t *payload, enum sb_forge forge, struct sb_out *out)
{
    const char *target = sb_out_target(out);
    char when[WHEN_SIZE];
    json_t *body =
        json_pack("{s:{s:s, s:s, s:s, s:s, s:o}, s:{s:i, s:s}}", "data", "record_type", "event",
                  "event_type", type, "id", id, "occurred_at", when_rfc3339(at_ms, when), "payload",
                  payload, "meta", "attempt", 1, "delivered_to", target);
    int rc = sb_out_call(out, "POST", target);

    if (rc < 0) {
        json_decref(body);
        return rc;
    }
    rc = sb_out_json(out, body);
    return rc == 0 && forge != SB_UNSIGNED ? sign_as(w, forge, out) : rc;
}

static int receipt(const struct sb_world *w, const struct sb_receipt *items, size_t n,
                   enum sb_forge forge, struct sb_out *out)
{
    const char *type = items->state == SB_ST_SENT ? "message.sent" : "message.finalized";
    char event[64];

    if (n > 1)
        return -ENOTSUP;
    (void)snprintf(event, sizeof(event), "ev-%llu-%d", (unsigned long long)items->msg->no,
                   (int)items->state);
    return post(w, type, event, items->at_ms, message_json(items->msg, items->state), forge, out);
}

static int inbound(const struct sb_world *w, const struct sb_inbound *m, enum sb_forge forge,
                   struct sb_out *out)
{
    json_t *payload = json_pack(
        "{s:s, s:s, s:s, s:s, s:{s:s}, s:[{s:s, s:s}], s:s, s:[]}", "record_type", "message",
        "direction", "inbound", "id", m->id, "type", "SMS", "from", "phone_number", m->from, "to",
        "phone_number", m->to, "status", "webhook_delivered", "text", m->text, "errors");

    return post(w, "message.received", m->id, sb_now_ms(w), payload, forge, out);
}

/* --- the dialect ------------------------------------------------------------------------ */

static const struct sb_setting settings[] = {
    {"api_key", "KEYSANDBOX", "the Bearer key"},
    {"idempotency", "none", "\"declared\": replays under Idempotency-Key"},
    {"private_key", SEED, "base64 of an Ed25519 seed; the public key of this one is " PUBLIC},
    {NULL, NULL, NULL},
};

static const struct sb_dialect_route routes[] = {
    {"POST", "/v2/messages", NULL, false},
    {"GET", "/v2/messages/{id}", serve_one, false},
    {NULL, NULL, NULL, false},
};

const struct sb_dialect sb_dialect_telnyx = {
    .name = "telnyx",
    .help = "Messaging API v2; look-up by id only; Ed25519 signatures",
    .settings = settings,
    .routes = routes,
    .dedup = SB_DEDUP_REPLAY,
    .dedup_s = DAY_S,
    .receipt_tries = TRIES,
    .read = read_send,
    .accept = accept_send,
    .refuse = refuse_send,
    .receipt = receipt,
    .inbound = inbound,
};
