/* Callbacks of Sinch's: signature, delivery reports, and messages people send.
 *
 * Signed, where a secret was agreed on, is "body.nonce.timestamp" under HMAC-SHA256. Sinch calls
 * again for up to a day with the same signature, so the timestamp's age says nothing. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "providers/kit/callback.h"
#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/sign.h"
#include "providers/kit/when.h"
#include "providers/sinch/sinch.h"

/* ---- signature ------------------------------------------------------------------------------ */

static bool signed_with(const char *secret, const char *text, size_t len, const char *signature)
{
    uint8_t mac[SIGN_MAX];
    size_t n = sign_hmac(SIGN_SHA256, secret, strlen(secret), text, len, mac);
    char *coded = n > 0 ? sign_base64(mac, n) : NULL;
    bool ok = coded && sign_equal_text(coded, signature);

    free(coded);
    return ok;
}

/* The body may hold a NUL: it is copied, not printed. */
static char *signed_text(const struct provider_callback *cb, const char *nonce,
                         const char *timestamp, size_t *ret_len)
{
    size_t nonce_len = strlen(nonce), timestamp_len = strlen(timestamp);
    char *text = malloc(cb->body_len + nonce_len + timestamp_len + 3), *at = text;

    if (!text)
        return NULL;
    if (cb->body_len > 0)
        at = mempcpy(at, cb->body, cb->body_len);
    *at++ = '.';
    at = mempcpy(at, nonce, nonce_len);
    *at++ = '.';
    at = mempcpy(at, timestamp, timestamp_len);
    *at = '\0';
    *ret_len = (size_t)(at - text);
    return text;
}

static bool is_authentic(const struct sinch *self, const struct provider_callback *cb)
{
    const char *signature = callback_header(cb, "x-sinch-webhook-signature");
    const char *nonce = callback_header(cb, "x-sinch-webhook-signature-nonce");
    const char *timestamp = callback_header(cb, "x-sinch-webhook-signature-timestamp");
    const char *algorithm = callback_header(cb, "x-sinch-webhook-signature-algorithm");
    bool ok = false;
    size_t len = 0;
    char *text;

    if (!signature || !nonce || !timestamp ||
        (algorithm && strcasecmp(algorithm, "HmacSHA256") != 0))
        return false;
    text = signed_text(cb, nonce, timestamp, &len);
    for (char *const *secret = self->secrets; text && *secret && !ok; secret++)
        ok = signed_with(*secret, text, len, signature);
    free(text);
    return ok;
}

/* ---- events --------------------------------------------------------------------------------- */

static const struct {
    const char *word;
    enum provider_status status;
} statuses[] = {
    {"Delivered", PROVIDER_STATUS_DELIVERED}, {"Failed", PROVIDER_STATUS_UNDELIVERED},
    {"Deleted", PROVIDER_STATUS_UNDELIVERED}, {"Aborted", PROVIDER_STATUS_UNDELIVERED},
    {"Unknown", PROVIDER_STATUS_UNDELIVERED}, /* final: nobody ever said */
    {"Rejected", PROVIDER_STATUS_REJECTED},   {"Cancelled", PROVIDER_STATUS_REJECTED},
    {"Expired", PROVIDER_STATUS_EXPIRED},
};

/* Capitals differ between Sinch's own descriptions. A word that is new to us says nothing final. */
static enum provider_status status_of(const char *word)
{
    for (size_t i = 0; i < sizeof(statuses) / sizeof(*statuses); i++)
        if (strcasecmp(statuses[i].word, word) == 0)
            return statuses[i].status;
    return PROVIDER_STATUS_IN_TRANSIT;
}

/* One state: of the report itself, or of an entry of its list. */
static int read_state(const struct sinch *self, const json_t *report, const json_t *state,
                      struct provider_events *out)
{
    const char *word = json_text_at(state, "status");
    char buf[24];
    struct provider_receipt r = {
        .ref = json_text_at(report, "client_reference"),
        .vendor_id = json_text_at(report, "batch_id"),
    };

    if (!word || !r.vendor_id || !*r.vendor_id)
        return -EBADMSG;
    r.status = status_of(word);
    if (r.status != PROVIDER_STATUS_DELIVERED && r.status != PROVIDER_STATUS_IN_TRANSIT)
        r.code = json_word_at(state, "code", buf, sizeof(buf)); /* 0, 400 and 401 are no errors */
    if (!when_parse(json_text_at(report, "operator_status_at"), 0, &r.at_ms) &&
        !when_parse(json_text_at(report, "at"), 0, &r.at_ms))
        r.at_ms = 0;
    return self->host->receipt(out, &r);
}

/* A batch of ours has one recipient: one entry, or one an intermediate state as well. */
static int read_summary(const struct sinch *self, const json_t *report, struct provider_events *out)
{
    const json_t *list = json_path(report, "statuses"), *state;
    size_t i;
    int r = json_array_size(list) > 0 ? 0 : -EBADMSG;

    json_array_foreach (list, i, state)
        if (r == 0)
            r = read_state(self, report, state, out);
    return r;
}

static int read_inbound(const struct sinch *self, const json_t *body, struct provider_events *out)
{
    struct provider_inbound m = {
        .from = json_text_at(body, "from"),
        .to = json_text_at(body, "to"),
        .text = json_text_at(body, "body"),
        .id = json_text_at(body, "id"),
    };

    return m.from && m.text ? self->host->inbound(out, &m) : -EBADMSG;
}

/* Reports of MMS and binary messages are none of ours: taken, and left alone. */
static int read_event(const struct sinch *self, const json_t *body, struct provider_events *out)
{
    const char *type = json_text_at(body, "type");

    if (!type)
        return -EBADMSG;
    if (strcmp(type, "recipient_delivery_report_sms") == 0)
        return read_state(self, body, body, out);
    if (strcmp(type, "delivery_report_sms") == 0)
        return read_summary(self, body, out);
    if (strcmp(type, "mo_text") == 0)
        return read_inbound(self, body, out);
    return 0;
}

int sinch_receipt(const void *arg, const struct provider_callback *cb, struct provider_events *out)
{
    const struct sinch *self = arg;
    json_t *body;
    int r;

    if (self->secrets && !is_authentic(self, cb))
        return -EACCES;
    body = json_body(cb->body, cb->body_len);
    r = read_event(self, body, out);
    json_decref(body);
    return r;
}
