/* AWS End User Messaging SMS v2, SendTextMessage: JSON 1.0, SigV4, every error of the customer
 * under HTTP 400. Events come as notifications of Amazon SNS under RSA. Facts: AWS's service
 * description and user guides. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/sign.h"
#include "providers/kit/when.h"
#include "providers/sandbox/dialect.h"
#include "providers/sandbox/dialects/aws_sigv4.h"
#include "providers/sandbox/dialects/aws_sns_key.h"
#include "worker/core/text.h"

#define TYPE      "application/x-amz-json-1.0"
#define TARGET    "PinpointSMSVoiceV2.SendTextMessage"
#define NAMESPACE "com.amazonaws.pinpointsmsvoicev2#"
#define CERT_PATH "/SimpleNotificationService.pem"

enum { BODY_MAX = 1600, TTL_MIN_S = 5, TTL_MAX_S = 259200, CONTEXT_MAX = 5, IDENTITY_MAX = 256 };

/* ---- answers -------------------------------------------------------------------------------- */

static int say_error(struct sb_reply *reply, int status, const char *exception, const char *reason,
                     const char *message)
{
    json_t *body = json_pack("{s:o, s:s}", "__type", json_sprintf(NAMESPACE "%s", exception),
                             "Message", message);

    if (reason)
        json_object_set_new(body, "Reason", json_string(reason));
    sb_reply_header(reply, "x-amzn-ErrorType", exception);
    return sb_reply_json(reply, status, body);
}

static int refuse_read(struct sb_reply *reply, const char *exception, const char *reason,
                       const char *message)
{
    int rc = say_error(reply, 400, exception, reason, message);

    return rc < 0 ? rc : -EINVAL;
}

static int invalid(struct sb_reply *reply, const char *message)
{
    return refuse_read(reply, "ValidationException", "FIELD_VALIDATION_FAILED", message);
}

/* ---- requests ------------------------------------------------------------------------------- */

static int check_signature(const struct sb_call *c, struct sb_reply *reply)
{
    switch (aws_sigv4_check(c, "sms-voice")) {
    case AWS_OK:
        return 0;
    case AWS_MISSING:
        return refuse_read(reply, "MissingAuthenticationTokenException", NULL,
                           "Missing Authentication Token");
    case AWS_KEY:
        return refuse_read(reply, "UnrecognizedClientException", NULL,
                           "The security token included in the request is invalid.");
    case AWS_TIME:
        return refuse_read(reply, "InvalidSignatureException", NULL, "Signature expired");
    case AWS_MISMATCH:
        return refuse_read(reply, "InvalidSignatureException", NULL,
                           "The request signature we calculated does not match the signature you "
                           "provided.");
    default:
        return -ENOMEM;
    }
}

static bool is_e164(const char *s)
{
    size_t digits = s && *s == '+' ? strspn(s + 1, "0123456789") : 0;

    return digits >= 7 && digits <= 15 && s[digits + 1] == '\0' && s[1] != '0';
}

static bool context_ok(const json_t *context)
{
    const char *name;
    json_t *value;

    if (!context)
        return true;
    if (!json_is_object(context) || json_object_size(context) > CONTEXT_MAX)
        return false;
    json_object_foreach ((json_t *)context, name, value)
        if (!*name || !json_is_string(value))
            return false;
    return true;
}

static int read_options(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    const char *type = json_text_at(c->json, "MessageType");
    const json_t *ttl = json_path(c->json, "TimeToLive");

    if (type && strcmp(type, "TRANSACTIONAL") != 0 && strcmp(type, "PROMOTIONAL") != 0)
        return invalid(reply, "MessageType is not valid");
    if (ttl && (!json_is_integer(ttl) || json_integer_value(ttl) < TTL_MIN_S ||
                json_integer_value(ttl) > TTL_MAX_S))
        return invalid(reply, "TimeToLive must be between 5 and 259200");
    if (!context_ok(json_path(c->json, "Context")))
        return invalid(reply, "Context must have 5 pairs at most");
    s->validity_ms = ttl ? json_integer_value(ttl) * 1000 : 0;
    s->no_receipt = !json_text_at(c->json, "ConfigurationSetName");
    s->extra = (json_t *)json_path(c->json, "Context");
    return 0;
}

static int read_send(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    const char *target = sb_call_header(c, "X-Amz-Target");
    struct text_measure m;
    int rc = check_signature(c, reply);

    if (rc < 0)
        return rc;
    if (!target || strcmp(target, TARGET) != 0 || !sb_call_type(c, TYPE))
        return refuse_read(reply, "UnknownOperationException", NULL, "Unknown operation");
    if (!json_is_object(c->json))
        return refuse_read(reply, "SerializationException", NULL, "The body is not JSON");
    s->to = json_text_at(c->json, "DestinationPhoneNumber");
    s->from = json_text_at(c->json, "OriginationIdentity");
    s->text = json_text_at(c->json, "MessageBody");
    if (!is_e164(s->to))
        return refuse_read(reply, "ValidationException", "INVALID_PARAMETER",
                           "DestinationPhoneNumber is not valid");
    if (s->from && (!*s->from || strlen(s->from) > IDENTITY_MAX))
        return invalid(reply, "OriginationIdentity is not valid");
    if (!s->text || !*s->text || text_measure(s->text, strlen(s->text), &m) < 0 ||
        m.characters > BODY_MAX)
        return invalid(reply, "MessageBody must have 1 to 1600 characters");
    return read_options(c, s, reply);
}

static int accept_send(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m,
                       bool replay, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)replay;
    return sb_reply_printf(reply, 200, TYPE, "{\"MessageId\":\"%s\"}", m->ids[0]);
}

static int refuse_send(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                       const struct sb_msg *known, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)known;
    switch (why) {
    case SB_REFUSE_NUMBER:
        return say_error(reply, 400, "ValidationException", "INVALID_PARAMETER",
                         "DestinationPhoneNumber is not valid");
    case SB_REFUSE_THROTTLED:
        return say_error(reply, 400, "ThrottlingException", NULL, "Rate exceeded");
    case SB_REFUSE_OPT_OUT:
        return say_error(reply, 400, "ConflictException", "DESTINATION_PHONE_NUMBER_OPTED_OUT",
                         "Destination phone number has opted out");
    case SB_REFUSE_ACCOUNT:
        return say_error(reply, 400, "ServiceQuotaExceededException",
                         "MONTHLY_SPEND_LIMIT_REACHED_FOR_TEXT", "Monthly spend limit reached");
    case SB_REFUSE_ERROR:
        return say_error(reply, sb_reply_status(reply), "InternalServerException", NULL,
                         "Internal error");
    default:
        return -ENOTSUP;
    }
}

static int serve_cert(struct sb_call *c, struct sb_reply *reply)
{
    (void)c;
    return sb_reply_text(reply, 200, "application/x-pem-file", aws_sns_cert);
}

/* ---- notifications -------------------------------------------------------------------------- */

static int sign_text(json_t *envelope, enum sb_forge forge, struct form *text)
{
    uint8_t *signature;
    char *base64;
    size_t len = 0;
    int rc;

    if (forge == SB_FORGED)
        form_raw(text, "x"); /* the genuine key, but over another text */
    if (text->error)
        return text->error;
    signature = sign_rsa_sha256(aws_sns_key, text->text, text->len, &len);
    base64 = signature ? sign_base64(signature, len) : NULL;
    rc = base64 ? json_object_set_new(envelope, "Signature", json_string(base64)) : -1;
    free(base64);
    free(signature);
    return rc == 0 ? 0 : -ENOMEM;
}

/* "Name\nvalue\n" of these, in this order. */
static int sign_envelope(json_t *envelope, enum sb_forge forge)
{
    static const char *const names[] = {"Message", "MessageId", "Timestamp", "TopicArn", "Type"};
    struct form text = {0};
    int rc;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        form_printf(&text, "%s\n%s\n", names[i], json_text_at(envelope, names[i]));
    rc = sign_text(envelope, forge, &text);
    form_done(&text);
    return rc;
}

/* Wraps an event (`take`) into a notification and posts it. */
static int notify(const struct sb_world *w, const char *id, json_t *take, enum sb_forge forge,
                  struct sb_out *out)
{
    char at[WHEN_SIZE];
    char *message = json_text(take), *body = NULL;
    json_t *envelope =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o}", "Type", "Notification", "MessageId", id,
                  "TopicArn", sb_setting(w, "topic_arn"), "Message", message, "Timestamp",
                  when_rfc3339(sb_now_ms(w), at), "SignatureVersion", "2", "SigningCertURL",
                  json_sprintf("https://sns.%s.amazonaws.com" CERT_PATH, sb_setting(w, "region")));
    int rc = message && envelope ? 0 : -ENOMEM;

    if (rc == 0 && forge != SB_UNSIGNED)
        rc = sign_envelope(envelope, forge);
    if (rc == 0 && !(body = json_text(envelope)))
        rc = -ENOMEM;
    if (rc == 0)
        rc = sb_out_call(out, "POST", sb_out_target(out));
    if (rc == 0)
        rc = sb_out_header(out, "x-amz-sns-message-type", "Notification");
    if (rc == 0)
        rc = sb_out_header(out, "x-amz-sns-message-id", id);
    if (rc == 0)
        rc = sb_out_header(out, "x-amz-sns-topic-arn", sb_setting(w, "topic_arn"));
    if (rc == 0)
        rc = sb_out_body(out, "text/plain; charset=UTF-8", body, strlen(body));
    free(body);
    free(message);
    json_decref(envelope);
    json_decref(take);
    return rc;
}

static int receipt(const struct sb_world *w, const struct sb_receipt *items, size_t n,
                   enum sb_forge forge, struct sb_out *out)
{
    static const char *const words[] = {
        [SB_ST_QUEUED] = "TEXT_QUEUED",       [SB_ST_SENT] = "TEXT_SUCCESSFUL",
        [SB_ST_DELIVERED] = "TEXT_DELIVERED", [SB_ST_UNDELIVERED] = "TEXT_UNREACHABLE",
        [SB_ST_EXPIRED] = "TEXT_TTL_EXPIRED", [SB_ST_REJECTED] = "TEXT_CARRIER_BLOCKED",
    };
    const struct sb_msg *m = items->msg;
    const char *word = words[items->state];
    char id[SB_ID_SIZE];
    json_t *event;

    if (n > 1)
        return -ENOTSUP;
    event = json_pack("{s:s, s:s, s:I, s:b, s:s?, s:s, s:s, s:I, s:s, s:s, s:O?, s:i}", "eventType",
                      word, "eventVersion", "1.0", "eventTimestamp", (json_int_t)items->at_ms,
                      "isFinal", items->state > SB_ST_SENT, "originationPhoneNumber", m->from,
                      "destinationPhoneNumber", m->to, "messageId", m->ids[items->part],
                      "messageRequestTimestamp", (json_int_t)m->taken_ms, "messageStatus", word,
                      "messageStatusDescription", "told by the sandbox", "context", m->extra,
                      "totalMessageParts", (int)m->parts);
    if (!event)
        return -ENOMEM;
    sb_id_uuid(w, m, 100 + (size_t)items->state, id);
    return notify(w, id, event, forge, out);
}

static int inbound(const struct sb_world *w, const struct sb_inbound *m, enum sb_forge forge,
                   struct sb_out *out)
{
    json_t *event = json_pack("{s:s, s:s, s:s, s:s, s:s}", "originationNumber", m->from,
                              "destinationNumber", m->to, "messageKeyword", "KEYWORD_SANDBOX",
                              "messageBody", m->text, "inboundMessageId", m->id);

    return event ? notify(w, m->id, event, forge, out) : -ENOMEM;
}

static const struct sb_setting settings[] = {
    AWS_SETTINGS,
    {"topic_arn", "arn:aws:sns:eu-central-1:123456789012:sms-events",
     "the topic of notifications; their certificate is at " CERT_PATH},
    {NULL, NULL, NULL},
};

static const struct sb_dialect_route routes[] = {
    {"POST", "/", NULL, false},
    {"GET", CERT_PATH, serve_cert, false},
    {NULL, NULL, NULL, false},
};

const struct sb_dialect sb_dialect_aws_sms_voice = {
    .name = "aws-sms-voice",
    .help = "End User Messaging v2; SigV4; errors under HTTP 400; events signed as Amazon SNS does",
    .settings = settings,
    .routes = routes,
    .dedup = SB_DEDUP_NONE,
    .read = read_send,
    .accept = accept_send,
    .refuse = refuse_send,
    .receipt = receipt,
    .inbound = inbound,
};
