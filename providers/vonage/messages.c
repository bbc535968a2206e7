/* The Messages API: JSON, problems as RFC 7807, callbacks under a JWT. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "providers/kit/callback.h"
#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/request.h"
#include "providers/kit/verdict.h"
#include "providers/kit/when.h"
#include "providers/vonage/vonage.h"
#include "worker/core/text.h"

enum { TEXT_MAX = 1000, TOKEN_S = 900, TOKEN_SLACK_S = 60, CLOCKS_S = 300 };

/* ---- login ---------------------------------------------------------------------------------- */

/* Unique for every token of this application: made of the time, as nothing here is random. */
static char *token_id(const struct vonage *v, int64_t now_ms)
{
    uint8_t digest[SIGN_MAX];
    struct form text = {0};
    char *hex = NULL, *id = NULL;

    form_printf(&text, "%s %lld", v->application_id, (long long)now_ms);
    if (!text.error && sign_digest(SIGN_SHA256, text.text, text.len, digest) > 0)
        hex = sign_hex(digest, 16);
    form_done(&text);
    if (hex)
        form_printf(&text, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
    free(hex);
    if (!text.error && text.text)
        id = strdup(text.text);
    form_done(&text);
    return id;
}

/* Where no token is needed there has to be one all the same: the host waits for it. */
int vonage_login(const void *self, int64_t now_ms, struct provider_req *req,
                 struct provider_grant *grant)
{
    const struct vonage *v = self;
    json_int_t now_s = now_ms / 1000;
    json_t *claims;
    char *id, *token = NULL;
    int r = -ENOMEM;

    (void)req;
    if (v->auth != VONAGE_AUTH_JWT)
        return v->host->grant_token(grant, "-", 1, 0);
    id = token_id(v, now_ms);
    claims = json_pack("{s:s, s:I, s:I, s:s}", "application_id", v->application_id, "iat", now_s,
                       "exp", now_s + TOKEN_S, "jti", id ? id : "");
    if (id && claims)
        token = sign_jwt_rs256(claims, v->private_key);
    if (token)
        r = v->host->grant_token(grant, token, strlen(token),
                                 (int64_t)(TOKEN_S - TOKEN_SLACK_S) * 1000);
    free(id);
    free(token);
    json_decref(claims);
    return r;
}

/* ---- build ---------------------------------------------------------------------------------- */

static json_t *message(const struct vonage *v, const struct provider_msg *msg)
{
    const char *hook = msg->callback_url;

    return json_pack("{s:s, s:s, s:s, s:s, s:s%, s:s, s:I, s:s*, s:s*}", "channel", "sms",
                     "message_type", "text", "to", msg->recipient + (*msg->recipient == '+'),
                     "from", vonage_sender(v, msg), "text", msg->body, msg->body_len, "client_ref",
                     msg->id, "ttl", (json_int_t)when_validity(msg->validity_ms, 1000, 20, 604800),
                     "webhook_url", hook, "webhook_version", hook ? "v1" : NULL);
}

int vonage_messages_build(const struct vonage *v, const struct provider_msg *msg,
                          struct provider_req *req)
{
    struct text_measure measure;
    struct form url = {0};
    char *bearer = NULL;
    int r;

    if (!vonage_sender(v, msg))
        return -EINVAL;
    if (text_measure(msg->body, msg->body_len, &measure) < 0)
        return -EILSEQ;
    if (measure.characters > TEXT_MAX)
        return -EMSGSIZE;
    if (v->auth == VONAGE_AUTH_JWT && !msg->token)
        return -EINVAL;
    if (v->auth == VONAGE_AUTH_JWT && !(bearer = request_bearer(msg->token)))
        return -ENOMEM;
    form_printf(&url, "%s/v1/messages", v->url);
    r = url.error ? url.error
                  : request_post_json(v->host, req, url.text, bearer ? bearer : v->basic,
                                      message(v, msg));
    form_done(&url);
    free(bearer);
    return r;
}

/* ---- judge ---------------------------------------------------------------------------------- */

#define ROW(code, outcome)                                                                         \
    {                                                                                              \
        code, 0, PROVIDER_##outcome, VERDICT_PLAIN                                                 \
    }

/* What follows '#' in a problem's type. */
static const struct verdict_row rows[] = {
    {"1240", 0, PROVIDER_REJECTED, VERDICT_OPT_OUT},
    {"1320", 0, PROVIDER_ACCEPTED, VERDICT_DUPLICATE}, /* "already sent" */
    ROW("unauthorized", HELD),
    ROW("forbidden", HELD),
    ROW("low-balance", HELD),
    ROW("unprovisioned", HELD),
    ROW("account-suspended", HELD),
    ROW("application-suspended", HELD),
    ROW("jwt-expired", HELD),
    ROW("jwt-revoked", HELD),
    ROW("invalid-signature", HELD),
    ROW("1060", HELD),
    ROW("1070", HELD),
    ROW("1080", HELD),
    ROW("1120", HELD), /* sender */
    ROW("1140", HELD),
    ROW("1160", HELD),
    ROW("1010", REJECTED),
    ROW("1020", REJECTED),
    ROW("1040", REJECTED),
    ROW("1050", REJECTED),
    ROW("1090", REJECTED),
    ROW("1130", REJECTED),
    ROW("1170", REJECTED),
    ROW("1190", REJECTED),
    ROW("1250", REJECTED),
    ROW("1251", REJECTED),
    ROW("1260", REJECTED),
    ROW("1270", REJECTED),
    ROW("1280", REJECTED),
    ROW("1282", REJECTED),
    ROW("1290", REJECTED),
    ROW("1300", REJECTED),
    ROW("1310", REJECTED),
    ROW("1000", THROTTLED),
    ROW("1241", THROTTLED),
    ROW("throttled", THROTTLED),
    ROW("1030", REFUSED),
    ROW("1100", REFUSED), /* "not submitted" */
    ROW("1180", REFUSED),
    ROW("1220", REFUSED),
    ROW("1230", REFUSED),
    ROW("1331", REFUSED),
};

/* Signed here a quarter of an hour ago at most, so a fresh token may help. */
static bool is_login(const struct vonage *v, int status, const char *code)
{
    if (v->auth != VONAGE_AUTH_JWT)
        return false;
    return code ? strcmp(code, "unauthorized") == 0 || strcmp(code, "jwt-expired") == 0
                : status == 401;
}

int vonage_messages_judge(const struct vonage *v, const struct provider_reply *reply,
                          const json_t *body, struct provider_verdict *verdict)
{
    static const struct verdict_row login = {.mark = VERDICT_LOGIN};
    static const struct verdict_row unknown = {.outcome = PROVIDER_UNKNOWN};
    const struct verdict_row by_status = {.outcome = verdict_of_status(reply->status)};
    const char *code = vonage_problem(body), *id = json_text_at(body, "message_uuid");
    const struct verdict_row *row = &by_status;

    if (reply->status / 100 == 2) {
        if (!id || !*id)
            return verdict_say(v->host, verdict, &unknown, NULL, "not an answer of Vonage's");
        v->host->verdict(verdict, PROVIDER_ACCEPTED);
        return v->host->verdict_id(verdict, id, strlen(id));
    }
    if (is_login(v, reply->status, code))
        row = &login;
    else if (code && (row = verdict_find(rows, sizeof(rows) / sizeof(*rows), reply->status, code)))
        ;
    else
        row = &by_status;
    return verdict_say(v->host, verdict, row, code,
                       code ? json_text_at(body, "detail") : "not an answer of Vonage's");
}

/* ---- receipts ------------------------------------------------------------------------------- */

static bool body_is(const struct provider_callback *cb, const char *wanted_hex)
{
    uint8_t digest[SIGN_MAX];
    size_t n = sign_digest(SIGN_SHA256, cb->body, cb->body_len, digest);
    char *hex = n > 0 ? sign_hex(digest, n) : NULL;
    bool ok = sign_equal_text(hex, wanted_hex);

    free(hex);
    return ok;
}

/* The token names issuer, account and the body's hash. */
static bool claims_fit(const struct vonage *v, const struct provider_callback *cb,
                       const json_t *claims)
{
    const char *issuer = json_text_at(claims, "iss"), *key = json_text_at(claims, "api_key");

    return issuer && strcmp(issuer, "Vonage") == 0 &&
           (!v->api_key || (key && strcmp(key, v->api_key) == 0)) &&
           body_is(cb, json_text_at(claims, "payload_hash"));
}

static bool is_authentic(const struct vonage *v, const struct provider_callback *cb)
{
    const char *value = callback_header(cb, "authorization");
    bool ok = false;

    if (!value || strncasecmp(value, "Bearer ", 7) != 0)
        return false;
    value += 7;
    for (char *const *secret = v->signature_secrets; *secret && !ok; secret++) {
        json_t *claims = sign_jwt_hs_verify(value, strlen(value), *secret, strlen(*secret),
                                            cb->now_ms / 1000, CLOCKS_S);

        ok = claims && claims_fit(v, cb, claims);
        json_decref(claims);
    }
    return ok;
}

static enum provider_status status_of(const char *word, const char *code)
{
    if (strcmp(word, "delivered") == 0 || strcmp(word, "read") == 0)
        return PROVIDER_STATUS_DELIVERED;
    if (strcmp(word, "undeliverable") == 0)
        return PROVIDER_STATUS_UNDELIVERED;
    if (strcmp(word, "rejected") == 0) /* 1360: its time to live was over */
        return code && strcmp(code, "1360") == 0 ? PROVIDER_STATUS_EXPIRED
                                                 : PROVIDER_STATUS_REJECTED;
    return PROVIDER_STATUS_IN_TRANSIT;
}

static int read_status(const struct vonage *v, const json_t *body, const char *word,
                       struct provider_events *out)
{
    const json_t *error = json_object_get(body, "error");
    char buf[24];
    struct provider_receipt r = {
        .vendor_id = json_text_at(body, "message_uuid"),
        .ref = json_text_at(body, "client_ref"),
        .code = vonage_problem(error),
        .detail = json_text_at(error, "detail"),
    };

    if (!r.code)
        r.code = json_word_at(error, "title", buf, sizeof(buf));
    r.status = status_of(word, r.code);
    if (r.ref && !*r.ref)
        r.ref = NULL;
    if (!when_parse(json_text_at(body, "timestamp"), 0, &r.at_ms))
        r.at_ms = 0;
    return v->host->receipt(out, &r);
}

static int read_events(const struct vonage *v, const json_t *body, struct provider_events *out)
{
    const char *status = json_text_at(body, "status");
    struct provider_inbound m = {
        .from = json_text_at(body, "from"),
        .to = json_text_at(body, "to"),
        .text = json_text_at(body, "text"),
        .id = json_text_at(body, "message_uuid"),
    };

    if (!m.id || !*m.id)
        return -EBADMSG;
    if (status)
        return read_status(v, body, status, out);
    return m.from && m.text ? v->host->inbound(out, &m) : -EBADMSG;
}

int vonage_messages_receipt(const struct vonage *v, const struct provider_callback *cb,
                            struct provider_events *out)
{
    json_t *body;
    int r;

    if (v->signature_secrets && !is_authentic(v, cb))
        return -EACCES;
    body = json_body(cb->body, cb->body_len);
    r = body ? read_events(v, body, out) : -EBADMSG;
    json_decref(body);
    return r;
}
