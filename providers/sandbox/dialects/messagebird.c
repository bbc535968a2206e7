/* MessageBird's REST API: JSON, no de-duplication, a list by recipient and time that shows the
 * customer's `reference`. Reports are GETs whose URL is signed in a JWT. Facts: MessageBird's
 * OpenAPI description and the request validator of its Python client. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/sign.h"
#include "providers/kit/when.h"
#include "providers/sandbox/dialect.h"
#include "worker/core/text.h"

#define FORGED_KEY "not the signing key"

enum { BODY_MAX = 1377, LIMIT_DEFAULT = 20, LIMIT_MAX = 200, JWT_LIFE_S = 60 };

/* ---- answers -------------------------------------------------------------------------------- */

static int say_error(struct sb_reply *reply, int status, int code, const char *description,
                     const char *parameter)
{
    return sb_reply_json(reply, status,
                         json_pack("{s:[{s:i, s:s, s:s?}]}", "errors", "code", code, "description",
                                   description, "parameter", parameter));
}

static int refuse_read(struct sb_reply *reply, int status, int code, const char *description,
                       const char *parameter)
{
    int rc = say_error(reply, status, code, description, parameter);

    return rc < 0 ? rc : -EINVAL;
}

static json_t *time_json(int64_t ms)
{
    char buf[WHEN_SIZE];
    const char *text = when_rfc3339(ms, buf);

    return json_sprintf("%.19s+00:00", text); /* an offset in place of the Z */
}

static const char *status_word(enum sb_state state)
{
    static const char *const words[] = {
        [SB_ST_QUEUED] = "sent",         [SB_ST_SENT] = "buffered",
        [SB_ST_DELIVERED] = "delivered", [SB_ST_UNDELIVERED] = "delivery_failed",
        [SB_ST_EXPIRED] = "expired",     [SB_ST_REJECTED] = "delivery_failed",
    };

    return words[state];
}

/* Recipients are numbers here, beyond 32 bits. */
static json_t *number_json(const char *digits)
{
    return json_integer(strtoll(digits, NULL, 10));
}

static json_t *message_json(const struct sb_world *w, const struct sb_msg *m)
{
    bool delivered = m->state == SB_ST_DELIVERED;
    bool failed = m->state == SB_ST_UNDELIVERED || m->state == SB_ST_REJECTED;
    json_t *validity = m->validity_ms > 0 ? json_integer(m->validity_ms / 1000) : json_null();
    json_t *item = json_pack("{s:o, s:s, s:o, s:i}", "recipient", number_json(m->to), "status",
                             status_word(m->state), "statusDatetime", time_json(m->changed_ms),
                             "messagePartCount", (int)m->parts);

    (void)w;
    return json_pack("{s:s, s:o, s:s, s:s, s:s, s:s, s:s?, s:o, s:i, s:{}, s:s, s:i, s:n, s:o, "
                     "s:{s:i, s:i, s:i, s:i, s:[o]}}",
                     "id", m->ids[0], "href",
                     json_sprintf("https://rest.messagebird.com/messages/%s", m->ids[0]),
                     "direction", "mt", "type", "sms", "originator", m->from, "body", m->text,
                     "reference", m->ref, "validity", validity, "gateway", 10, "typeDetails",
                     "datacoding", "plain", "mclass", 1, "scheduledDatetime", "createdDatetime",
                     time_json(m->taken_ms), "recipients", "totalCount", 1, "totalSentCount", 1,
                     "totalDeliveredCount", delivered, "totalDeliveryFailedCount", failed, "items",
                     item);
}

/* ---- requests ------------------------------------------------------------------------------- */

static int check_key(const struct sb_call *c, struct sb_reply *reply)
{
    const char *key = sb_call_bearer(c, "AccessKey");

    if (key && strcmp(key, sb_setting(c->world, "access_key")) == 0)
        return 0;
    return refuse_read(reply, 401, 2, "Request not allowed (incorrect access_key)", "access_key");
}

static bool is_originator(const char *s)
{
    size_t len = s ? strlen(s) : 0;
    size_t digits = s ? strspn(s, "0123456789") : 0;

    return len > 0 && (digits == len ? len <= 15 : len <= 11 || (*s == '+' && len <= 16));
}

/* A number in international form, without the plus. */
static bool is_number(const char *s)
{
    size_t len = s ? strlen(s) : 0;

    return len >= 7 && len <= 15 && *s != '0' && strspn(s, "0123456789") == len;
}

static int read_options(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    const json_t *validity = json_path(c->json, "validity");
    const char *coding = json_text_at(c->json, "datacoding");

    if (coding && strcmp(coding, "auto") != 0 && strcmp(coding, "plain") != 0 &&
        strcmp(coding, "unicode") != 0)
        return refuse_read(reply, 422, 9, "datacoding is invalid", "datacoding");
    if (validity && !json_is_null(validity)) {
        if (!json_is_integer(validity) || json_integer_value(validity) < 1)
            return refuse_read(reply, 422, 9, "validity is invalid", "validity");
        s->validity_ms = json_integer_value(validity) * 1000;
    }
    s->callback = json_text_at(c->json, "reportUrl");
    if (s->callback && strncmp(s->callback, "http", 4) != 0)
        return refuse_read(reply, 422, 9, "reportUrl is invalid", "reportUrl");
    s->ref = json_text_at(c->json, "reference");
    s->no_receipt = !s->ref || !*s->ref; /* "required for a status report callback to be sent" */
    return 0;
}

static int read_send(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    const json_t *list = json_path(c->json, "recipients");
    struct text_measure m;
    int rc = check_key(c, reply);

    if (rc < 0)
        return rc;
    if (!json_is_object(c->json))
        return refuse_read(reply, 422, 9, "no (correct) body found", "body");
    s->from = json_text_at(c->json, "originator");
    s->to = json_text_at(c->json, "recipients/0");
    s->text = json_text_at(c->json, "body");
    if (!is_originator(s->from))
        return refuse_read(reply, 422, 9, "originator is invalid", "originator");
    if (json_array_size(list) != 1 || !is_number(s->to)) /* the sandbox takes one a request */
        return refuse_read(reply, 422, 9, "no (correct) recipients found", "recipient");
    if (!s->text || !*s->text || text_measure(s->text, strlen(s->text), &m) < 0 ||
        m.characters > BODY_MAX)
        return refuse_read(reply, 422, 9, "body is invalid", "body");
    return read_options(c, s, reply);
}

static int accept_send(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m,
                       bool replay, struct sb_reply *reply)
{
    (void)s;
    (void)replay;
    return sb_reply_json(reply, 201, message_json(c->world, m));
}

/* No documented answer for an opted-out number or for "try later". */
static int refuse_send(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                       const struct sb_msg *known, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)known;
    switch (why) {
    case SB_REFUSE_NUMBER:
        return say_error(reply, 422, 9, "no (correct) recipients found", "recipient");
    case SB_REFUSE_ACCOUNT:
        return say_error(reply, 402, 25, "Not enough balance", NULL);
    case SB_REFUSE_ERROR:
        return say_error(reply, sb_reply_status(reply), 99, "Internal error", NULL);
    default:
        return -ENOTSUP;
    }
}

static void make_id(const struct sb_world *w, const struct sb_msg *m, size_t part,
                    char buf[SB_ID_SIZE])
{
    sb_id_hex(w, m, part, "", 32, buf);
}

/* ---- look-ups ------------------------------------------------------------------------------- */

static int serve_one(struct sb_call *c, struct sb_reply *reply)
{
    const struct sb_msg *m;
    int rc = check_key(c, reply);

    if (rc < 0)
        return rc == -EINVAL ? 0 : rc;
    m = sb_msg_by_id(c->world, sb_call_part(c, "id"), NULL);
    if (!m)
        return say_error(reply, 404, 20, "message not found", NULL);
    return sb_reply_json(reply, 200, message_json(c->world, m));
}

static bool number_of(const char *text, long fallback, long max, long *ret)
{
    char *end = NULL;

    *ret = text ? strtol(text, &end, 10) : fallback;
    return !text || (end != text && !*end && *ret >= 0 && *ret <= max);
}

static bool time_of(const char *text, int64_t *ret_ms)
{
    return !text || when_parse(text, 0, ret_ms);
}

static int serve_list(struct sb_call *c, struct sb_reply *reply)
{
    const char *direction = sb_call_query(c, "direction");
    const char *status = sb_call_query(c, "status");
    struct sb_filter f = {.to = sb_call_query(c, "recipient"),
                          .from = sb_call_query(c, "originator")};
    const struct sb_msg *m = NULL;
    long limit, offset, total = 0;
    int rc = check_key(c, reply);

    if (rc < 0)
        return rc == -EINVAL ? 0 : rc;
    if (!number_of(sb_call_query(c, "limit"), LIMIT_DEFAULT, LIMIT_MAX, &limit) ||
        !number_of(sb_call_query(c, "offset"), 0, 1000000, &offset) ||
        !time_of(sb_call_query(c, "from"), &f.from_ms) ||
        !time_of(sb_call_query(c, "until"), &f.to_ms))
        return say_error(reply, 422, 9, "a parameter is invalid", NULL);
    json_t *items = json_array();
    while ((m = sb_msg_next(c->world, &f, m))) {
        if ((direction && strcmp(direction, "mt") != 0) ||
            (status && strcmp(status, status_word(m->state)) != 0))
            continue;
        if (total >= offset && total < offset + limit)
            json_array_append_new(items, message_json(c->world, m));
        total++;
    }
    json_t *count = json_integer((json_int_t)json_array_size(items));
    return sb_reply_json(reply, 200,
                         json_pack("{s:I, s:I, s:o, s:I, s:{s:n, s:n}, s:o}", "offset",
                                   (json_int_t)offset, "limit", (json_int_t)limit, "count", count,
                                   "totalCount", (json_int_t)total, "links", "previous", "next",
                                   "items", items));
}

/* ---- reports -------------------------------------------------------------------------------- */

/* The header's JWT vouches for the whole URL by its SHA-256. */
static int add_signature(const struct sb_world *w, const char *url, const char *jti,
                         enum sb_forge forge, struct sb_out *out)
{
    const char *key = forge == SB_FORGED ? FORGED_KEY : sb_setting(w, "signing_key");
    json_int_t now_s = sb_now_ms(w) / 1000;
    uint8_t digest[SIGN_MAX];
    size_t n = sign_digest(SIGN_SHA256, url, strlen(url), digest);
    char *hex = n > 0 ? sign_hex(digest, n) : NULL;
    json_t *claims = hex ? json_pack("{s:s, s:I, s:I, s:s, s:s}", "iss", "MessageBird", "nbf",
                                     now_s, "exp", now_s + JWT_LIFE_S, "jti", jti, "url_hash", hex)
                         : NULL;
    char *token = claims ? sign_jwt_hs256(claims, key, strlen(key)) : NULL;
    int rc = token ? sb_out_header(out, "MessageBird-Signature-JWT", token) : -ENOMEM;

    free(token);
    free(hex);
    json_decref(claims);
    return rc;
}

static void begin(struct form *url, const struct sb_out *out)
{
    const char *target = sb_out_target(out);

    form_raw(url, target);
    form_raw(url, strchr(target, '?') ? "&" : "?");
}

static int get(const struct sb_world *w, struct form *url, const char *jti, enum sb_forge forge,
               struct sb_out *out)
{
    int rc = url->error ? url->error : sb_out_call(out, "GET", url->text);

    if (rc == 0 && forge != SB_UNSIGNED)
        rc = add_signature(w, url->text, jti, forge, out);
    form_done(url);
    return rc;
}

static int receipt(const struct sb_world *w, const struct sb_receipt *items, size_t n,
                   enum sb_forge forge, struct sb_out *out)
{
    const struct sb_msg *m = items->msg;
    bool failed = items->state >= SB_ST_UNDELIVERED;
    char at[WHEN_SIZE];
    struct form stamp = {0}, url = {0};

    if (n > 1)
        return -ENOTSUP;
    form_printf(&stamp, "%.19s+00:00", when_rfc3339(items->at_ms, at));
    begin(&url, out);
    form_add(&url, "id", m->ids[items->part]);
    form_add(&url, "reference", m->ref);
    form_add(&url, "recipient", m->to);
    form_add(&url, "status", status_word(items->state));
    form_add(&url, "statusReason", failed ? "unknown subscriber" : "successfully delivered");
    if (failed)
        form_add(&url, "statusErrorCode", "1");
    form_add(&url, "statusDatetime", stamp.text);
    form_add_i64(&url, "messagePartCount", m->parts);
    form_add(&url, "mccmnc", "43404");
    form_done(&stamp);
    return get(w, &url, m->ids[items->part], forge, out);
}

static int inbound(const struct sb_world *w, const struct sb_inbound *m, enum sb_forge forge,
                   struct sb_out *out)
{
    struct form url = {0};

    begin(&url, out);
    form_add(&url, "id", m->id);
    form_add(&url, "recipient", m->to);
    form_add(&url, "originator", m->from);
    form_add(&url, "body", m->text);
    return get(w, &url, m->id, forge, out);
}

static const struct sb_setting settings[] = {
    {"access_key", "test_sandbox", "the AccessKey"},
    {"signing_key", "sandbox-signing-key", "signs reports; not the access key"},
    {NULL, NULL, NULL},
};

static const struct sb_dialect_route routes[] = {
    {"POST", "/messages", NULL, false},
    {"GET", "/messages", serve_list, false},
    {"GET", "/messages/{id}", serve_one, false},
    {NULL, NULL, NULL, false},
};

const struct sb_dialect sb_dialect_messagebird = {
    .name = "messagebird",
    .help = "REST API; list by recipient and time shows the reference; JWT-signed reports",
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
