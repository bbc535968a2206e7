/* Amazon SNS at our door: notifications that carry events of End User Messaging. */
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>

#include "providers/aws-sms-voice/aws-sms-voice.h"
#include "providers/kit/callback.h"
#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/sign.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* An encrypted PEM would make OpenSSL ask on the terminal. */
static int no_passphrase(char *buf, int size, int writing, void *arg)
{
    (void)buf;
    (void)size;
    (void)writing;
    (void)arg;
    return -1;
}

bool eum_cert_ok(const char *pem)
{
    size_t len = strlen(pem);
    BIO *bio = len <= INT_MAX ? BIO_new_mem_buf(pem, (int)len) : NULL;
    bool is_cert = strstr(pem, "-----BEGIN CERTIFICATE-----") != NULL;
    X509 *cert = bio && is_cert ? PEM_read_bio_X509(bio, NULL, no_passphrase, NULL) : NULL;
    EVP_PKEY *key = cert              ? X509_get_pubkey(cert)
                    : bio && !is_cert ? PEM_read_bio_PUBKEY(bio, NULL, no_passphrase, NULL)
                                      : NULL;
    bool ok = key && EVP_PKEY_get_base_id(key) == EVP_PKEY_RSA;

    EVP_PKEY_free(key);
    X509_free(cert);
    BIO_free(bio);
    ERR_clear_error();
    return ok;
}

/* ---- signature ------------------------------------------------------------------------------ */

/* "name\nvalue\n" for each in this order; Subject only where there is one. */
static bool text_to_sign(const json_t *root, bool subscription, struct form *text)
{
    static const char *const notification[] = {"Message",   "MessageId", "Subject",
                                               "Timestamp", "TopicArn",  "Type"};
    static const char *const confirmation[] = {"Message", "MessageId", "SubscribeURL", "Timestamp",
                                               "Token",   "TopicArn",  "Type"};
    const char *const *names = subscription ? confirmation : notification;
    size_t n = subscription ? COUNT(confirmation) : COUNT(notification);

    for (size_t i = 0; i < n; i++) {
        const char *value = json_text_at(root, names[i]);

        if (value)
            form_printf(text, "%s\n%s\n", names[i], value);
        else if (strcmp(names[i], "Subject") != 0)
            return false;
    }
    return text->error == 0;
}

static bool topic_ok(const struct eum_self *self, const json_t *root)
{
    const char *topic = json_text_at(root, "TopicArn");

    for (char **p = self->topics; topic && p && *p; p++)
        if (strcmp(*p, topic) == 0)
            return true;
    return false;
}

static bool signature_ok(const struct eum_self *self, const json_t *root, bool subscription)
{
    const char *version = json_text_at(root, "SignatureVersion");
    const char *base64 = json_text_at(root, "Signature");
    enum sign_hash hash = version && strcmp(version, "1") == 0 ? SIGN_SHA1 : SIGN_SHA256;
    struct form text = {0};
    uint8_t *signature = NULL;
    size_t len = 0;
    bool ok = false;

    if (!version || (strcmp(version, "1") != 0 && strcmp(version, "2") != 0) || !base64)
        return false;
    signature = sign_unbase64(base64, strlen(base64), &len);
    if (signature && text_to_sign(root, subscription, &text))
        for (char **pem = self->certs; *pem && !ok; pem++)
            ok = sign_rsa_ok(hash, *pem, signature, len, text.text, text.len);
    free(signature);
    form_done(&text);
    return ok;
}

/* ---- events --------------------------------------------------------------------------------- */

/* Handed to a carrier is delivery only where the event says that nothing more will follow. */
static bool map_status(const json_t *event, const char *name, uint32_t *ret)
{
    static const struct {
        const char *name;
        uint32_t status;
    } map[] = {
        {"TEXT_DELIVERED", PROVIDER_STATUS_DELIVERED},
        {"TEXT_QUEUED", PROVIDER_STATUS_IN_TRANSIT},
        {"TEXT_PENDING", PROVIDER_STATUS_IN_TRANSIT},
        {"TEXT_SENT", PROVIDER_STATUS_IN_TRANSIT},
        {"TEXT_INVALID", PROVIDER_STATUS_UNDELIVERED},
        {"TEXT_INVALID_MESSAGE", PROVIDER_STATUS_UNDELIVERED},
        {"TEXT_UNREACHABLE", PROVIDER_STATUS_UNDELIVERED},
        {"TEXT_CARRIER_UNREACHABLE", PROVIDER_STATUS_UNDELIVERED},
        {"TEXT_UNKNOWN", PROVIDER_STATUS_UNDELIVERED},
        {"TEXT_BLOCKED", PROVIDER_STATUS_REJECTED},
        {"TEXT_CARRIER_BLOCKED", PROVIDER_STATUS_REJECTED},
        {"TEXT_SPAM", PROVIDER_STATUS_REJECTED},
        {"TEXT_PROTECT_BLOCKED", PROVIDER_STATUS_REJECTED},
        {"TEXT_TTL_EXPIRED", PROVIDER_STATUS_EXPIRED},
    };

    if (strcmp(name, "TEXT_SUCCESSFUL") == 0) {
        *ret = json_is_true(json_path(event, "isFinal")) ? PROVIDER_STATUS_DELIVERED
                                                         : PROVIDER_STATUS_IN_TRANSIT;
        return true;
    }
    for (size_t i = 0; i < COUNT(map); i++)
        if (strcmp(name, map[i].name) == 0) {
            *ret = map[i].status;
            return true;
        }
    return false;
}

/* A topic may carry other things (voice, media, somebody's test): taken, and nothing said. */
static int read_event(const struct eum_self *self, const json_t *event, struct provider_events *out)
{
    struct provider_inbound in = {
        .from = json_text_at(event, "originationNumber"),
        .to = json_text_at(event, "destinationNumber"),
        .text = json_text_at(event, "messageBody"),
        .id = json_text_at(event, "inboundMessageId"),
    };
    struct provider_receipt r = {
        .ref = json_text_at(event, "context/k"),
        .vendor_id = json_text_at(event, "messageId"),
        .code = json_text_at(event, "messageStatus"),
        .detail = json_text_at(event, "messageStatusDescription"),
    };
    const char *type = json_text_at(event, "eventType");

    if (in.from && in.text && in.id)
        return self->host->inbound(out, &in);
    /* eventType is the status for some events; messageStatus has the same words. */
    if (!r.code || !map_status(event, r.code, &r.status)) {
        if (!type || !map_status(event, type, &r.status))
            return 0;
        r.code = type;
    }
    if (!r.ref && !r.vendor_id)
        return 0;
    if (!json_i64_at(event, "eventTimestamp", &r.at_ms) || r.at_ms < 0)
        r.at_ms = 0;
    return self->host->receipt(out, &r);
}

static int read_notification(const struct eum_self *self, const json_t *root,
                             struct provider_events *out)
{
    const char *message = json_text_at(root, "Message");
    json_t *event = message ? json_body(message, strlen(message)) : NULL;
    int r = message ? 0 : -EBADMSG;

    if (json_is_object(event))
        r = read_event(self, event, out);
    json_decref(event);
    return r;
}

/* An operator opens it by hand, yet nobody should be led elsewhere than to Amazon SNS. */
static bool subscribe_url_ok(const char *url)
{
    static const char begin[] = "https://sns.";
    static const char end[] = ".amazonaws.com/";
    size_t region;

    if (strncmp(url, begin, sizeof(begin) - 1) != 0)
        return false;
    url += sizeof(begin) - 1;
    region = strspn(url, "abcdefghijklmnopqrstuvwxyz0123456789-");
    return region > 0 && strncmp(url + region, end, sizeof(end) - 1) == 0;
}

static int read_envelope(const struct eum_self *self, const json_t *root, const char *type,
                         struct provider_events *out)
{
    bool notification = strcmp(type, "Notification") == 0;
    bool subscription = strcmp(type, "SubscriptionConfirmation") == 0;
    const char *url = json_text_at(root, "SubscribeURL");

    if (!notification && !subscription && strcmp(type, "UnsubscribeConfirmation") != 0)
        return self->certs ? -EACCES : -EBADMSG;
    if (self->certs && !signature_ok(self, root, !notification))
        return -EACCES;
    if (self->topics && !topic_ok(self, root))
        return -EACCES;
    if (notification)
        return read_notification(self, root, out);
    if (!subscription)
        return 0; /* its URL would subscribe again what somebody ended on purpose */
    return url && subscribe_url_ok(url) ? self->host->callback_confirm(out, url) : -EBADMSG;
}

int eum_receipt(const struct eum_self *self, const struct provider_callback *cb,
                struct provider_events *out)
{
    const char *raw = callback_header(cb, "x-amz-sns-rawdelivery");
    json_t *root = json_body(cb->body, cb->body_len);
    const char *type = json_text_at(root, "Type");
    int r;

    if (!json_is_object(root))
        r = self->certs ? -EACCES : -EBADMSG;
    else if (type)
        r = read_envelope(self, root, type, out);
    else if (self->certs || self->topics)
        r = -EACCES; /* raw delivery has neither signature nor topic */
    else
        r = raw && strcmp(raw, "true") == 0 ? read_event(self, root, out) : -EBADMSG;
    json_decref(root);
    return r;
}
