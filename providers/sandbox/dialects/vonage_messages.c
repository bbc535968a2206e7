/* Vonage's Messages API for SMS: JSON under a JWT (RS256) or Basic, problems as RFC 7807, callbacks
 * under a JWT (HS256) that names the body's hash. Facts: Vonage's SDK and its guides to signed
 * webhooks and status callbacks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/sign.h"
#include "providers/kit/when.h"
#include "providers/sandbox/dialects/vonage_reports.h"
#include "worker/core/text.h"

enum { TEXT_MAX = 1000, REF_MAX = 100, DAY_S = 86400, CLOCKS_S = 60 };
enum { TTL_MIN_S = 20, TTL_MAX_S = 604800 };
#define FORGED_SECRET "not the signature secret"

/* The public half of the key in providers/vonage/fixtures/messages.json. */
#define PUBLIC_KEY                                                                                 \
    "-----BEGIN PUBLIC KEY-----\n"                                                                 \
    "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAo/N8Ob262wxWSSAxqA8c\n"                           \
    "NhD88Ce/qvu2eCRaJ/BadPMnijnFThb1wefj3z56TDy82nYw3FN8bvjkrhkbR8LX\n"                           \
    "yyePuUys3pXHjSOJTBJPl6cMNcycqYKJb4YPzTRLVD3LwVtItO0AUMK8q1bMjwoa\n"                           \
    "bA/Ol2J2YrB1pR4+xIQb1FgiFjB4f1poY7i8Fw6o8105IWWnCm6XGhfUau6NQiQX\n"                           \
    "BzqN5nJazvCRksVkC+8+GSE0yH4rKUlLobUsgyrGcBw2dRQmJ3s2QcRG7ttmUWez\n"                           \
    "8k17N2RSmElSY1aLvQp+XDFixrXOp3sM7Mn+u8abYW6JXf/DZJ9Pe03+0n7+qzam\n"                           \
    "6wIDAQAB\n"                                                                                   \
    "-----END PUBLIC KEY-----\n"

static const struct sb_setting settings[] = {
    SB_VONAGE_SETTINGS,
    {"application_id", "aaaaaaaa-bbbb-cccc-dddd-0123456789ab", "the application of a JWT"},
    {"public_key", "", "its RSA key (PEM); empty: the one of the plugin's fixtures"},
    {"token_age_s", "86400", "a JWT older than this is refused, whatever it says itself"},
    {NULL, NULL, NULL},
};

static int problem(struct sb_reply *reply, int status, const char *code, const char *title,
                   const char *detail)
{
    return sb_vonage_problem(reply, status, "/messages", code, title, detail);
}

static int refuse_read(struct sb_reply *reply, int status, const char *code, const char *detail)
{
    int r = problem(reply, status, code, status == 401 ? "Unauthorized" : "Invalid params", detail);

    return r < 0 ? r : -EINVAL;
}

/* ---- access --------------------------------------------------------------------------------- */

/* Whether the part before the second dot is signed under the application's key. */
static bool signature_ok(const struct sb_call *c, const char *token)
{
    const char *given = sb_setting(c->world, "public_key"), *dot = strrchr(token, '.');
    size_t len = 0;
    uint8_t *signature;
    bool ok;

    if (!dot)
        return false;
    signature = sign_unbase64url(dot + 1, strlen(dot + 1), &len);
    ok = signature && sign_rsa_ok(SIGN_SHA256, *given ? given : PUBLIC_KEY, signature, len, token,
                                  (size_t)(dot - token));
    free(signature);
    return ok;
}

static bool algorithm_ok(const char *token)
{
    size_t len = 0;
    char *text = (char *)sign_unbase64url(token, strcspn(token, "."), &len);
    json_t *header = text ? json_loadb(text, len, 0, NULL) : NULL;
    const char *alg = json_string_value(json_object_get(header, "alg"));
    bool ok = alg && strcmp(alg, "RS256") == 0;

    json_decref(header);
    free(text);
    return ok;
}

/* NULL: fine; else the code of the problem. */
static const char *claims_fault(const struct sb_call *c, const char *token)
{
    json_t *claims = sign_jwt_claims_untrusted(token, strlen(token));
    const char *application = json_string_value(json_object_get(claims, "application_id"));
    const char *jti = json_string_value(json_object_get(claims, "jti"));
    int64_t now = sb_now_ms(c->world) / 1000;
    int64_t iat = json_integer_value(json_object_get(claims, "iat"));
    int64_t exp = json_integer_value(json_object_get(claims, "exp"));
    int64_t age = strtoll(sb_setting(c->world, "token_age_s"), NULL, 10);
    const char *fault = NULL;

    if (!application || strcmp(application, sb_setting(c->world, "application_id")) != 0 || !jti ||
        !*jti || iat < 0 || iat > now + CLOCKS_S || exp < 0)
        fault = "unauthorized";
    else if ((exp && (exp <= now || exp - iat > DAY_S)) || now - iat >= age ||
             !sb_token_age_ok(c->world, iat))
        fault = "jwt-expired";
    json_decref(claims);
    return fault;
}

static int check_access(const struct sb_call *c, struct sb_reply *reply)
{
    const char *token = sb_call_bearer(c, "Bearer"), *fault = "unauthorized";

    if (token && algorithm_ok(token) && signature_ok(c, token))
        fault = claims_fault(c, token);
    else if (!token &&
             sb_call_basic(c, sb_setting(c->world, "api_key"), sb_setting(c->world, "api_secret")))
        fault = NULL;
    return fault ? refuse_read(reply, 401, fault, "You did not provide correct credentials.") : 0;
}

/* ---- requests ------------------------------------------------------------------------------- */

static const char *text_in(const struct sb_call *c, const char *name)
{
    return json_string_value(json_object_get(c->json, name));
}

static bool is(const struct sb_call *c, const char *name, const char *wanted)
{
    const char *value = text_in(c, name);

    return value && strcmp(value, wanted) == 0;
}

static int invalid(struct sb_reply *reply, const char *detail)
{
    return refuse_read(reply, 422, "1150", detail);
}

static int read_options(const struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    const json_t *ttl = json_object_get(c->json, "ttl");

    s->ref = text_in(c, "client_ref");
    s->callback = text_in(c, "webhook_url");
    if (ttl && (!json_is_integer(ttl) || json_integer_value(ttl) < TTL_MIN_S ||
                json_integer_value(ttl) > TTL_MAX_S))
        return invalid(reply, "ttl");
    s->validity_ms = json_integer_value(ttl) * 1000;
    if (s->ref && strlen(s->ref) > REF_MAX)
        return invalid(reply, "client_ref");
    if (s->callback &&
        (!text_in(c, "webhook_version") ||
         (strncmp(s->callback, "http://", 7) != 0 && strncmp(s->callback, "https://", 8) != 0)))
        return invalid(reply, "webhook_url");
    return 0;
}

static int vm_read(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    struct text_measure m;
    int r = check_access(c, reply);

    if (r < 0)
        return r;
    if (!sb_call_type(c, "application/json") || !json_is_object(c->json))
        return invalid(reply, "the body");
    if (!is(c, "channel", "sms") || !is(c, "message_type", "text"))
        return invalid(reply, "channel or message_type");
    s->to = text_in(c, "to");
    s->from = text_in(c, "from");
    s->text = text_in(c, "text");
    if (!sb_vonage_is_number(s->to))
        return invalid(reply, "to");
    if (!sb_vonage_is_sender(s->from))
        return refuse_read(reply, 422, "1120", "Illegal Sender Address - rejected");
    if (!s->text || !*s->text || text_measure(s->text, strlen(s->text), &m) < 0 ||
        m.characters > TEXT_MAX)
        return invalid(reply, "text");
    return read_options(c, s, reply);
}

static int vm_accept(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m,
                     bool replay, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)replay;
    return sb_reply_json(reply, 202, json_pack("{s:s}", "message_uuid", m->ids[0]));
}

static int vm_refuse(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                     const struct sb_msg *known, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)known;
    switch (why) {
    case SB_REFUSE_NUMBER:
        return problem(reply, 422, "1170", "Invalid or missing MSISDN", "The number is invalid");
    case SB_REFUSE_THROTTLED:
        return problem(reply, 429, "throttled", "Rate Limit Hit", "Please wait, then retry");
    case SB_REFUSE_OPT_OUT:
        return problem(reply, 422, "1240", "Illegal Number", "The person opted out");
    case SB_REFUSE_LATER:
        return problem(reply, 422, "1100", "Not submitted", "Internal error: not submitted");
    case SB_REFUSE_ACCOUNT:
        return problem(reply, 402, "low-balance", "Low balance", "The account has no credit");
    case SB_REFUSE_ERROR:
        return sb_reply_text(reply, sb_reply_status(reply), "text/html",
                             "<html><body>Service unavailable</body></html>");
    default:
        return -ENOTSUP;
    }
}

/* ---- look-up -------------------------------------------------------------------------------- */

static const char *status_word(enum sb_state state)
{
    static const char *const words[] = {
        [SB_ST_QUEUED] = "submitted",    [SB_ST_SENT] = "submitted",
        [SB_ST_DELIVERED] = "delivered", [SB_ST_UNDELIVERED] = "undeliverable",
        [SB_ST_EXPIRED] = "rejected",    [SB_ST_REJECTED] = "rejected",
    };

    return words[state];
}

static int serve_reports(struct sb_call *c, struct sb_reply *reply)
{
    static const struct sb_vonage_product messages = {"MESSAGES", status_word};

    return sb_vonage_reports(c, reply, &messages);
}

/* ---- calls to the customer ------------------------------------------------------------------ */

/* Signs the body as it stands. */
static int sign(const struct sb_world *w, enum sb_forge forge, struct sb_out *out)
{
    const char *secret = sb_setting(w, "signature_secret"), *body = sb_out_text(out);
    const char *key = forge == SB_FORGED ? FORGED_SECRET : secret;
    uint8_t digest[SIGN_MAX];
    size_t n = sign_digest(SIGN_SHA256, body, strlen(body), digest);
    char *hex = n > 0 ? sign_hex(digest, n) : NULL, *token = NULL;
    json_t *claims, *value = NULL;
    int r = -ENOMEM;

    if (!*secret || forge == SB_UNSIGNED) {
        free(hex);
        return 0;
    }
    claims = json_pack("{s:I, s:s, s:s, s:s, s:s, s:s}", "iat", (json_int_t)(sb_now_ms(w) / 1000),
                       "jti", "c5ba8f24-1a14-4c10-bfdf-3fbe8ce511b5", "iss", "Vonage",
                       "payload_hash", hex ? hex : "", "api_key", sb_setting(w, "api_key"),
                       "application_id", sb_setting(w, "application_id"));
    if (hex && claims)
        token = sign_jwt_hs256(claims, key, strlen(key));
    if (token && (value = json_sprintf("Bearer %s", token)))
        r = sb_out_header(out, "Authorization", json_string_value(value));
    json_decref(value);
    json_decref(claims);
    free(token);
    free(hex);
    return r;
}

static int post(const struct sb_world *w, json_t *take, enum sb_forge forge, struct sb_out *out)
{
    int r = sb_out_call(out, "POST", sb_out_target(out));

    if (r < 0) {
        json_decref(take);
        return r;
    }
    r = sb_out_json(out, take);
    return r == 0 ? sign(w, forge, out) : r;
}

static json_t *error_json(enum sb_state state)
{
    const char *code = state == SB_ST_UNDELIVERED ? "1260"
                       : state == SB_ST_EXPIRED   ? "1360"
                       : state == SB_ST_REJECTED  ? "1300"
                                                  : NULL;

    if (!code)
        return NULL;
    return json_pack("{s:o, s:s, s:s, s:s}", "type",
                     json_sprintf("https://developer.vonage.com/api-errors/messages#%s", code),
                     "title", code, "detail", "not delivered", "instance",
                     "bf0ca0bf927b3b52e3cb03217e1a1ddf");
}

static int vm_receipt(const struct sb_world *w, const struct sb_receipt *items, size_t n,
                      enum sb_forge forge, struct sb_out *out)
{
    const struct sb_msg *m = items->msg;
    char at[WHEN_SIZE];

    if (n > 1)
        return -ENOTSUP;
    return post(w,
                json_pack("{s:s, s:s, s:s?, s:s, s:s, s:s, s:s*, s:{s:s, s:s}, s:{s:s}, s:{s:o}, "
                          "s:o*}",
                          "message_uuid", m->ids[0], "to", m->to, "from", m->from, "timestamp",
                          when_rfc3339(items->at_ms, at), "channel", "sms", "status",
                          status_word(items->state), "client_ref", m->ref, "usage", "currency",
                          "EUR", "price", "0.0333", "destination", "network_code", "43404", "sms",
                          "count_total", json_sprintf("%u", m->parts), "error",
                          error_json(items->state)),
                forge, out);
}

static int vm_inbound(const struct sb_world *w, const struct sb_inbound *m, enum sb_forge forge,
                      struct sb_out *out)
{
    char at[WHEN_SIZE];

    return post(w,
                json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:{s:s}}", "channel", "sms",
                          "message_type", "text", "message_uuid", m->id, "to", m->to, "from",
                          m->from, "timestamp", when_rfc3339(sb_now_ms(w), at), "text", m->text,
                          "sms", "num_messages", "1"),
                forge, out);
}

static const struct sb_dialect_route routes[] = {
    {"POST", "/v1/messages", NULL, false},
    {"GET", "/v2/reports/records", serve_reports, false},
    {NULL, NULL, NULL, false},
};

const struct sb_dialect sb_dialect_vonage_messages = {
    .name = "vonage-messages",
    .help = "Messages API: JWT or Basic; look-up in reports; receipts under a JWT",
    .settings = settings,
    .routes = routes,
    .dedup = SB_DEDUP_NONE,
    .read = vm_read,
    .accept = vm_accept,
    .refuse = vm_refuse,
    .receipt = vm_receipt,
    .inbound = vm_inbound,
};
