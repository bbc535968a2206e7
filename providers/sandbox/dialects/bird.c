/* Bird's platform API of 2026: JSON, replays under Idempotency-Key for three hours, webhooks as
 * Standard Webhooks has them. Facts: Bird's guides (idempotency, errors, webhooks) and the request
 * type of its SDKs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/sign.h"
#include "providers/kit/when.h"
#include "providers/sandbox/dialect.h"
#include "worker/core/text.h"

#define FORGED_SECRET "bm90IHRoZSB3ZWJob29rIHNlY3JldA=="
#define PREFIX        "whsec_"

enum { KEY_MAX = 255, SEGMENTS_MAX = 12, METADATA_MAX = 2048, KEY_LIFE_S = 3 * 3600 };

/* ---- answers -------------------------------------------------------------------------------- */

static int say_error(struct sb_reply *reply, int status, const char *type, const char *code,
                     const char *name, const char *message)
{
    sb_reply_header(reply, "X-Request-Id", "req_sandbox");
    return sb_reply_json(reply, status,
                         json_pack("{s:{s:s, s:s, s:s, s:s, s:s, s:o}}", "error", "type", type,
                                   "code", code, "name", name, "message", message, "request_id",
                                   "req_sandbox", "doc_url",
                                   json_sprintf("https://bird.com/docs/api/errors/%s", code)));
}

static int refuse_read(struct sb_reply *reply, int status, const char *type, const char *code,
                       const char *name, const char *message)
{
    int rc = say_error(reply, status, type, code, name, message);

    return rc < 0 ? rc : -EINVAL;
}

static int invalid(struct sb_reply *reply, const char *message)
{
    return refuse_read(reply, 422, "validation_error", "E01001", "ValidationError", message);
}

static const char *status_word(enum sb_state state)
{
    static const char *const words[] = {
        [SB_ST_QUEUED] = "accepted",     [SB_ST_SENT] = "sent",
        [SB_ST_DELIVERED] = "delivered", [SB_ST_UNDELIVERED] = "failed",
        [SB_ST_EXPIRED] = "expired",     [SB_ST_REJECTED] = "rejected",
    };

    return words[state];
}

/* `extra` of a message is its request: category, metadata, tags. */
static json_t *message_json(const struct sb_msg *m, const char *status)
{
    char at[WHEN_SIZE];

    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:O?, s:s}", "id", m->ids[0], "status",
                     status, "direction", "outbound", "to", m->to, "from", m->from, "text", m->text,
                     "category", json_text_at(m->extra, "category"), "metadata",
                     json_path(m->extra, "metadata"), "created_at", when_rfc3339(m->taken_ms, at));
}

/* ---- requests ------------------------------------------------------------------------------- */

static int check_key(const struct sb_call *c, struct sb_reply *reply)
{
    const char *token = sb_call_bearer(c, "Bearer");

    if (token && strcmp(token, sb_setting(c->world, "api_key")) == 0)
        return 0;
    return refuse_read(reply, 401, "auth_error", "E02001", "InvalidCredentials",
                       "The API key is missing or not valid.");
}

static bool is_e164(const char *s)
{
    size_t digits = s && *s == '+' ? strspn(s + 1, "0123456789") : 0;

    return digits >= 7 && digits <= 15 && s[digits + 1] == '\0' && s[1] != '0';
}

/* E.164, a short code of 5 or 6 digits, or 1 to 11 letters, digits, blanks, dashes, underscores
 * with a letter among them. */
static bool is_sender(const char *s)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    size_t len = strlen(s);

    if (is_e164(s))
        return true;
    if (strspn(s, "0123456789") == len)
        return len == 5 || len == 6;
    return len <= 11 && strpbrk(s, letters) &&
           strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 -_") == len;
}

/* Documented, and refused at present. */
static const char *preview_field(const json_t *json)
{
    static const char *const fields[] = {"validity_period", "media_urls",  "messaging_profile_id",
                                         "scheduled_at",    "campaign_id", "broadcast_id"};

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (json_object_get(json, fields[i]))
            return fields[i];
    return NULL;
}

static bool metadata_ok(const json_t *metadata)
{
    char *text = json_is_object(metadata) ? json_text(metadata) : NULL;
    bool ok = !metadata || (text && strlen(text) <= METADATA_MAX);

    free(text);
    return ok;
}

static int check_fields(struct sb_call *c, const struct sb_send *s, struct sb_reply *reply)
{
    static const char *const categories[] = {"authentication", "transactional", "marketing"};
    const char *category = json_text_at(c->json, "category");
    struct text_measure m;
    bool known = false;

    for (size_t i = 0; category && i < 3; i++)
        known |= strcmp(category, categories[i]) == 0;
    if (!known)
        return invalid(reply, "category is required with text");
    if (preview_field(c->json))
        return refuse_read(reply, 422, "validation_error", "E12009", "SMSUnsupportedFeature",
                           "This field is a preview feature.");
    if (!is_e164(s->to))
        return refuse_read(reply, 422, "validation_error", "E12001", "SMSInvalidRecipient",
                           "The recipient is not a phone number in E.164 form.");
    if (!s->from || !is_sender(s->from))
        return refuse_read(reply, 422, "validation_error", "E12002", "SMSNoEligibleSender",
                           "Supply a 'from' or configure a sender for this destination.");
    if (!s->text || !*s->text || text_measure(s->text, strlen(s->text), &m) < 0 ||
        m.segments > SEGMENTS_MAX)
        return invalid(reply, "text must have 1 character at least and 12 segments at most");
    if (!metadata_ok(json_path(c->json, "metadata")))
        return invalid(reply, "metadata must be an object of 2 KB at most");
    return 0;
}

static int read_send(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    int rc = check_key(c, reply);

    if (rc < 0)
        return rc;
    if (!json_is_object(c->json) || !sb_call_type(c, "application/json"))
        return invalid(reply, "the body must be a JSON object");
    s->to = json_text_at(c->json, "to");
    s->from = json_text_at(c->json, "from");
    s->text = json_text_at(c->json, "text");
    s->key = sb_call_header(c, "Idempotency-Key");
    if (s->key && (!*s->key || strlen(s->key) > KEY_MAX))
        return invalid(reply, "Idempotency-Key must have 1 to 255 characters");
    s->extra = (json_t *)c->json;
    return check_fields(c, s, reply);
}

/* The stored answer is the first one, whatever became of the message since. */
static int accept_send(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m,
                       bool replay, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    if (replay)
        sb_reply_header(reply, "Idempotency-Replay", "true");
    return sb_reply_json(reply, 202, message_json(m, "accepted"));
}

static int refuse_send(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                       const struct sb_msg *known, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)known;
    switch (why) {
    case SB_REFUSE_NUMBER:
        return say_error(reply, 422, "validation_error", "E12001", "SMSInvalidRecipient",
                         "The recipient cannot be routed.");
    case SB_REFUSE_THROTTLED:
        sb_reply_header(reply, "Retry-After", "1");
        return say_error(reply, 429, "rate_limit_error", "E01003", "RateLimited",
                         "Too many requests.");
    case SB_REFUSE_LATER:
        return say_error(reply, 503, "internal_error", "E01033", "IdempotencyUnavailable",
                         "Idempotency protection was unavailable; nothing was executed.");
    case SB_REFUSE_ACCOUNT:
        return say_error(reply, 402, "billing_error", "E03001", "InsufficientBalance",
                         "The workspace has no balance.");
    case SB_REFUSE_MISMATCH:
        return say_error(reply, 409, "conflict_error", "E01005", "IdempotencyKeyReuse",
                         "The key was used with another request.");
    case SB_REFUSE_RUNNING:
        return say_error(reply, 409, "conflict_error", "E01004", "RequestInProgress",
                         "A request with this key has not finished.");
    case SB_REFUSE_ERROR:
        return say_error(reply, sb_reply_status(reply), "internal_error", "E01000", "InternalError",
                         "Something went wrong.");
    default:
        return -ENOTSUP;
    }
}

static void make_id(const struct sb_world *w, const struct sb_msg *m, size_t part,
                    char buf[SB_ID_SIZE])
{
    sb_id_hex(w, m, part, "sms_", 26, buf);
}

static int serve_one(struct sb_call *c, struct sb_reply *reply)
{
    const struct sb_msg *m;
    int rc = check_key(c, reply);

    if (rc < 0)
        return rc == -EINVAL ? 0 : rc;
    m = sb_msg_by_id(c->world, sb_call_part(c, "id"), NULL);
    if (!m)
        return say_error(reply, 404, "not_found_error", "E01010", "NotFound", "No such message.");
    return sb_reply_json(reply, 200, message_json(m, status_word(m->state)));
}

/* ---- webhooks ------------------------------------------------------------------------------- */

/* v1, base64(HMAC-SHA256(secret, id "." seconds "." body)); the secret is base64 after its
 * prefix. */
static int add_signature(const char *secret, const char *id, const char *stamp, struct sb_out *out)
{
    struct form text = {0};
    uint8_t mac[SIGN_MAX], *key;
    size_t key_len = 0, len = 0;
    char *base64 = NULL, *header = NULL;
    int rc = -ENOMEM;

    if (strncmp(secret, PREFIX, strlen(PREFIX)) == 0)
        secret += strlen(PREFIX);
    key = sign_unbase64(secret, strlen(secret), &key_len);
    form_printf(&text, "%s.%s.%s", id, stamp, sb_out_text(out));
    if (key && text.error == 0)
        len = sign_hmac(SIGN_SHA256, key, key_len, text.text, text.len, mac);
    if (len > 0)
        base64 = sign_base64(mac, len);
    form_done(&text);
    if (base64) {
        form_printf(&text, "v1,%s", base64);
        header = text.text;
    }
    if (header)
        rc = sb_out_header(out, "webhook-signature", header);
    form_done(&text);
    free(base64);
    free(key);
    return rc;
}

static int post(const struct sb_world *w, const char *id, json_t *take, enum sb_forge forge,
                struct sb_out *out)
{
    const char *secret = forge == SB_FORGED ? FORGED_SECRET : sb_setting(w, "webhook_secret");
    struct form stamp = {0};
    int rc = sb_out_json(out, take);

    form_printf(&stamp, "%lld", (long long)(sb_now_ms(w) / 1000));
    if (rc == 0)
        rc = stamp.error;
    if (rc == 0)
        rc = sb_out_call(out, "POST", sb_out_target(out));
    if (rc == 0)
        rc = sb_out_header(out, "webhook-id", id);
    if (rc == 0)
        rc = sb_out_header(out, "webhook-timestamp", stamp.text);
    if (rc == 0 && forge != SB_UNSIGNED)
        rc = add_signature(secret, id, stamp.text, out);
    form_done(&stamp);
    return rc;
}

static int receipt(const struct sb_world *w, const struct sb_receipt *items, size_t n,
                   enum sb_forge forge, struct sb_out *out)
{
    const struct sb_msg *m = items->msg;
    char at[WHEN_SIZE], id[SB_ID_SIZE];
    json_t *data, *type;

    if (n > 1)
        return -ENOTSUP; /* "none - one event per POST" */
    data = json_pack("{s:s, s:s, s:s, s:[], s:O?}", "sms_id", m->ids[items->part], "workspace_id",
                     "ws_sandbox", "recipient", m->to, "tags", "metadata",
                     json_path(m->extra, "metadata"));
    if (items->state == SB_ST_UNDELIVERED)
        json_object_set_new(data, "error",
                            json_pack("{s:s, s:s}", "code", "unreachable", "message",
                                      "The handset could not be reached."));
    type = json_sprintf("sms.%s", status_word(items->state));
    sb_id_hex(w, m, (size_t)items->state, "msg_", 26, id);
    return post(w, id,
                json_pack("{s:o, s:s, s:o}", "type", type, "timestamp",
                          when_rfc3339(items->at_ms, at), "data", data),
                forge, out);
}

static int inbound(const struct sb_world *w, const struct sb_inbound *m, enum sb_forge forge,
                   struct sb_out *out)
{
    char at[WHEN_SIZE];
    json_t *data =
        json_pack("{s:o, s:s, s:s, s:s, s:s}", "sms_id", json_sprintf("sms_%s", m->id),
                  "workspace_id", "ws_sandbox", "from", m->from, "to", m->to, "text", m->text);

    return post(w, m->id,
                json_pack("{s:s, s:s, s:o}", "type", "sms.received", "timestamp",
                          when_rfc3339(sb_now_ms(w), at), "data", data),
                forge, out);
}

static const struct sb_setting settings[] = {
    {"api_key", "bk_eu1_sandbox", "the bearer token"},
    {"webhook_secret",
     "whsec_c2FuZGJveC13ZWJob29rLXNlY3JldC0wMDAwMDAwMQ==", "signs webhooks: base64 after whsec_"},
    {NULL, NULL, NULL},
};

static const struct sb_dialect_route routes[] = {
    {"POST", "/v1/sms/messages", NULL, false},
    {"GET", "/v1/sms/messages/{id}", serve_one, false},
    {NULL, NULL, NULL, false},
};

const struct sb_dialect sb_dialect_bird = {
    .name = "bird",
    .help = "platform API of 2026; replays under Idempotency-Key; Standard Webhooks",
    .settings = settings,
    .routes = routes,
    .dedup = SB_DEDUP_REPLAY,
    .dedup_s = KEY_LIFE_S,
    .receipt_tries = 8,
    .read = read_send,
    .accept = accept_send,
    .refuse = refuse_send,
    .make_id = make_id,
    .receipt = receipt,
    .inbound = inbound,
};
