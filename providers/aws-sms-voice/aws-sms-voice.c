/* AWS End User Messaging SMS v2 (service "sms-voice"), SendTextMessage. See README.md. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/aws-sms-voice/aws-sms-voice.h"
#include "providers/kit/callback.h"
#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/request.h"
#include "providers/kit/settings.h"
#include "providers/kit/verdict.h"
#include "providers/kit/when.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum { TYPE_TRANSACTIONAL, TYPE_PROMOTIONAL, TYPE_BY_KIND };
enum { VALIDITY_MIN_S = 5, VALIDITY_MAX_S = 259200, CERTS_MAX = 16 };

static const char region_signs[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

static void eum_close(void *arg)
{
    struct eum_self *self = arg;

    if (!self)
        return;
    free(self->url);
    free(self->region);
    free(self->access_key);
    free(self->secret_key);
    free(self->session);
    free(self->from);
    free(self->configuration_set);
    free(self->max_price);
    settings_list_free(self->certs);
    settings_list_free(self->topics);
    free(self);
}

/* ---- settings ------------------------------------------------------------------------------- */

static void read_region(struct eum_self *self, struct settings *s)
{
    char *host = NULL;

    self->region = settings_text(s, "region", NULL);
    if (self->region && strspn(self->region, region_signs) != strlen(self->region))
        settings_refuse(s, "region", "write it as AWS does: eu-central-1", "is not a region");
    if (self->region && asprintf(&host, "https://sms-voice.%s.amazonaws.com", self->region) < 0)
        host = NULL;
    self->url = settings_url(s, "url", host ? host : "https://sms-voice.amazonaws.com");
    free(host);
}

/* PEM texts hold line ends, which settings_list refuses. One text may stand without a list. */
static void read_certs(struct eum_self *self, struct settings *s)
{
    const json_t *value = settings_json(s, "signing_certs");
    size_t n = json_is_array(value) ? json_array_size(value) : 1;

    if (!value)
        return;
    if (n == 0 || n > CERTS_MAX) {
        settings_refuse(s, "signing_certs", NULL, "must be 1 to %d certificates", CERTS_MAX);
        return;
    }
    self->certs = calloc(n + 1, sizeof(*self->certs));
    for (size_t i = 0; self->certs && i < n; i++) {
        const char *pem =
            json_string_value(json_is_array(value) ? json_array_get(value, i) : value);

        if (!pem || !eum_cert_ok(pem)) {
            settings_refuse(s, "signing_certs",
                            "the PEM text of Amazon SNS's certificate, as {\"file\": \"PATH\"}",
                            "holds something that is no RSA certificate in PEM");
            return;
        }
        if (!(self->certs[i] = strdup(pem)))
            s->error = s->error ? s->error : -ENOMEM;
    }
    if (!self->certs)
        s->error = s->error ? s->error : -ENOMEM;
}

static void read_receipts(struct eum_self *self, struct settings *s)
{
    self->configuration_set = settings_text(s, "configuration_set", "");
    read_certs(self, s);
    self->topics = settings_list(s, "topic_arn");
    /* The certificates are Amazon's, not ours: they vouch for every customer's topics. */
    if (self->certs && !self->topics)
        settings_refuse(s, "topic_arn", "name the topic that the configuration set publishes to",
                        "is required with signing_certs: a signature alone is any AWS customer's");
}

static int eum_open(const struct provider_host *host, const char *settings_json,
                    struct provider_report *report, void **ret_self)
{
    static const char *const types[] = {"TRANSACTIONAL", "PROMOTIONAL", "by_kind", NULL};
    static const char *const country[] = {"hold", "reject", NULL};
    struct eum_self *self = calloc(1, sizeof(*self));
    struct settings s;
    int r;

    if (!self)
        return -ENOMEM;
    self->host = host;
    if (settings_begin(&s, host, settings_json, report) == 0) {
        read_region(self, &s);
        self->access_key = settings_text(&s, "access_key_id", NULL);
        self->secret_key = settings_text(&s, "secret_access_key", NULL);
        self->session = settings_text(&s, "session_token", "");
        self->from = settings_text(&s, "from", "");
        self->max_price = settings_text(&s, "max_price", "");
        self->type = settings_word(&s, "message_type", types, TYPE_TRANSACTIONAL);
        self->hold_country = settings_word(&s, "country_not_enabled", country, 0) == 0;
        read_receipts(self, &s);
    }
    r = settings_end(&s);
    if (r < 0) {
        eum_close(self);
        return r;
    }
    *ret_self = self;
    return 0;
}

static void eum_describe(const void *arg, struct provider_caps *ret)
{
    const struct eum_self *self = arg;

    if (self->certs)
        ret->receipts = PROVIDER_RECEIPTS_SIGNED;
    else if (self->configuration_set)
        ret->receipts = PROVIDER_RECEIPTS_UNSIGNED;
    ret->number = PROVIDER_NUMBER_PLUS;
    ret->validity = PROVIDER_VALIDITY_S;
    ret->limit = PROVIDER_LIMIT_SEGMENT;
}

/* ---- build ---------------------------------------------------------------------------------- */

static json_t *request(const struct eum_self *self, const struct provider_msg *msg)
{
    const char *sender = msg->sender ? msg->sender : self->from;
    bool promotional = self->type == TYPE_PROMOTIONAL ||
                       (self->type == TYPE_BY_KIND && strcmp(msg->kind, "campaign") == 0);
    json_t *body = json_object();
    int r = 0;

    r |= json_object_set_new(body, "DestinationPhoneNumber", json_string(msg->recipient));
    if (sender)
        r |= json_object_set_new(body, "OriginationIdentity", json_string(sender));
    r |= json_object_set_new(body, "MessageBody", json_stringn(msg->body, msg->body_len));
    r |= json_object_set_new(body, "MessageType",
                             json_string(promotional ? "PROMOTIONAL" : "TRANSACTIONAL"));
    if (self->max_price)
        r |= json_object_set_new(body, "MaxPrice", json_string(self->max_price));
    if (msg->validity_ms > 0)
        r |= json_object_set_new(
            body, "TimeToLive",
            json_integer(when_validity(msg->validity_ms, 1000, VALIDITY_MIN_S, VALIDITY_MAX_S)));
    if (self->configuration_set)
        r |=
            json_object_set_new(body, "ConfigurationSetName", json_string(self->configuration_set));
    r |= json_object_set_new(body, "Context", json_pack("{s:s}", "k", msg->id));
    if (r != 0) {
        json_decref(body);
        return NULL;
    }
    return body;
}

static int eum_build(const void *arg, const struct provider_msg *msg, struct provider_req *req)
{
    const struct eum_self *self = arg;
    const struct provider_host *host = self->host;
    json_t *body = request(self, msg);
    char *text = body ? json_text(body) : NULL;
    struct form url = {0};
    int r = body ? (text ? 0 : -ENOMEM) : -EINVAL;

    json_decref(body);
    form_printf(&url, "%s/", self->url);
    if (r == 0)
        r = url.error;
    if (r == 0)
        r = request_post(host, req, url.text, NULL, "application/x-amz-json-1.0", text,
                         strlen(text));
    if (r == 0)
        r = host->req_header(req, "X-Amz-Target", "PinpointSMSVoiceV2.SendTextMessage");
    if (r == 0)
        r = host->req_sigv4(req, self->region, "sms-voice", self->access_key, self->secret_key,
                            self->session);
    free(text);
    form_done(&url);
    return r;
}

/* ---- judge ---------------------------------------------------------------------------------- */

/* Looked up by reason, then by exception. All of the customer's errors come as HTTP 400, too many
 * requests among them. */
static const struct verdict_row rows[] = {
    {"DESTINATION_PHONE_NUMBER_OPTED_OUT", 4, PROVIDER_REJECTED, VERDICT_OPT_OUT},
    {"DESTINATION_PHONE_NUMBER_BLOCKED_BY_PROTECT_NUMBER_OVERRIDE", 4, PROVIDER_REJECTED, 0},
    {"DESTINATION_COUNTRY_BLOCKED_BY_PROTECT_CONFIGURATION", 4, PROVIDER_REJECTED, 0},
    {"FIELD_VALIDATION_FAILED", 4, PROVIDER_REJECTED, 0},
    {"INVALID_PARAMETER", 4, PROVIDER_REJECTED, 0},
    {"MAXIMUM_SIZE_EXCEEDED", 4, PROVIDER_REJECTED, 0},
    {"PRICE_OVER_THRESHOLD", 4, PROVIDER_REJECTED, 0},
    {"INSUFFICIENT_ACCOUNT_REPUTATION", 4, PROVIDER_HELD, 0},
    {"ACCOUNT_DISABLED", 4, PROVIDER_HELD, 0},
    {"MONTHLY_SPEND_LIMIT_REACHED_FOR_TEXT", 4, PROVIDER_HELD, 0},
    {"DESTINATION_PHONE_NUMBER_NOT_VERIFIED", 4, PROVIDER_HELD, 0},
    {"NO_ORIGINATION_IDENTITIES_FOUND", 4, PROVIDER_HELD, 0},
    {"RESOURCE_NOT_ACTIVE", 4, PROVIDER_HELD, 0},
    {"MESSAGE_TYPE_MISMATCH", 4, PROVIDER_HELD, 0},
    {"NUMBER_CAPABILITIES_MISMATCH", 4, PROVIDER_HELD, 0},
    {"SENDER_ID_NOT_REGISTERED", 4, PROVIDER_HELD, 0},
    {"SENDER_ID_NOT_SUPPORTED", 4, PROVIDER_HELD, 0},
    {"INVALID_IDENTITY_FOR_DESTINATION_COUNTRY", 4, PROVIDER_HELD, 0},
    {"ThrottlingException", 0, PROVIDER_THROTTLED, 0},
    {"TooManyRequestsException", 0, PROVIDER_THROTTLED, 0},
    {"RequestLimitExceeded", 0, PROVIDER_THROTTLED, 0},
    {"AccessDeniedException", 4, PROVIDER_HELD, 0},
    {"ResourceNotFoundException", 4, PROVIDER_HELD, 0},
    {"ServiceQuotaExceededException", 4, PROVIDER_HELD, 0},
    {"ConflictException", 4, PROVIDER_HELD, 0}, /* an unlisted reason: rather wait than lose */
    {"ValidationException", 4, PROVIDER_REJECTED, 0},
    /* what a wrong key, clock or policy looks like */
    {"InvalidSignatureException", 4, PROVIDER_HELD, 0},
    {"SignatureDoesNotMatch", 4, PROVIDER_HELD, 0},
    {"IncompleteSignature", 4, PROVIDER_HELD, 0},
    {"IncompleteSignatureException", 4, PROVIDER_HELD, 0},
    {"UnrecognizedClientException", 4, PROVIDER_HELD, 0},
    {"InvalidClientTokenId", 4, PROVIDER_HELD, 0},
    {"MissingAuthenticationToken", 4, PROVIDER_HELD, 0},
    {"MissingAuthenticationTokenException", 4, PROVIDER_HELD, 0},
    {"ExpiredTokenException", 4, PROVIDER_HELD, 0},
    {"RequestExpired", 4, PROVIDER_HELD, 0},
    {"OptInRequired", 4, PROVIDER_HELD, 0},
    {"UnknownOperationException", 4, PROVIDER_HELD, 0},
    {"InternalServerException", 0, PROVIDER_UNKNOWN, 0},
};

static bool is_country(const char *reason)
{
    static const char *const about[] = {"COUNTRY_NOT_ENABLED", "DESTINATION_COUNTRY_BLOCKED"};

    for (size_t i = 0; reason && i < COUNT(about); i++)
        if (strcmp(reason, about[i]) == 0)
            return true;
    return false;
}

/* "com.amazonaws.pinpointsmsvoicev2#ThrottlingException"; the header's form may go on with ":". */
static char *exception_of(const struct provider_reply *reply, const json_t *root)
{
    const char *type = json_text_at(root, "__type");
    const char *hash;

    if (!type)
        type = reply_header(reply, "x-amzn-errortype");
    if (!type)
        return NULL;
    hash = strrchr(type, '#');
    type = hash ? hash + 1 : type;
    return strndup(type, strcspn(type, ":"));
}

static int judge_error(const struct eum_self *self, const struct provider_reply *reply,
                       const json_t *root, struct provider_verdict *v)
{
    char *exception = root ? exception_of(reply, root) : NULL;
    const char *reason = exception ? json_text_at(root, "Reason") : NULL;
    const char *words = json_text_at(root, "Message");
    struct verdict_row plain = {.outcome = verdict_of_status(reply->status)};
    const struct verdict_row *row = NULL;
    int r;

    if (!words)
        words = json_text_at(root, "message");
    if (reason)
        row = verdict_find(rows, COUNT(rows), reply->status, reason);
    if (!row && exception)
        row = verdict_find(rows, COUNT(rows), reply->status, exception);
    if (is_country(reason) && reply->status / 100 == 4) {
        plain.outcome = self->hold_country ? PROVIDER_HELD : PROVIDER_REJECTED;
        row = &plain;
    }
    r = verdict_say(self->host, v, row ? row : &plain, reason ? reason : exception,
                    exception ? words : "the answer is not in the form of this AWS service");
    free(exception);
    return r;
}

static int eum_judge(const void *arg, const struct provider_reply *reply,
                     struct provider_verdict *v)
{
    static const struct verdict_row accepted = {.outcome = PROVIDER_ACCEPTED};
    const struct eum_self *self = arg;
    json_t *root = json_body(reply->body, reply->body_len);
    const char *id = json_text_at(root, "MessageId");
    int r;

    if (reply->status / 100 == 2 && id && *id) {
        r = self->host->verdict_id(v, id, strlen(id));
        if (r == 0)
            r = verdict_say(self->host, v, &accepted, NULL, NULL);
    } else {
        r = judge_error(self, reply, root, v);
    }
    json_decref(root);
    return r;
}

static int eum_receipt_entry(const void *arg, const struct provider_callback *cb,
                             struct provider_events *out)
{
    return eum_receipt(arg, cb, out);
}

__attribute__((visibility("default"))) const struct provider *provider_entry(void)
{
    static const struct provider provider = {
        .abi_major = 1,
        .abi_minor = 1,
        .size = sizeof(struct provider),
        .name = "aws-sms-voice",
        .open = eum_open,
        .close = eum_close,
        .describe = eum_describe,
        .build = eum_build,
        .judge = eum_judge,
        .receipt = eum_receipt_entry,
    };

    return &provider;
}
