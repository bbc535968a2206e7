/* Callbacks of Telnyx': signature, what became of a message, and messages people send.
 *
 * Signed is "timestamp|body" under Ed25519; the timestamp keeps an overheard call from being
 * played again for long. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/callback.h"
#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/sign.h"
#include "providers/kit/when.h"
#include "providers/telnyx/telnyx.h"

enum { SIGNATURE_LEN = 64 };

static const int64_t tolerance_ms = 300000;

/* ---- signature ------------------------------------------------------------------------------ */

static bool is_fresh(const char *timestamp, int64_t now_ms)
{
    size_t len = strlen(timestamp);
    int64_t ms;

    if (len == 0 || len > 12 || strspn(timestamp, "0123456789") != len)
        return false;
    ms = strtoll(timestamp, NULL, 10) * 1000; /* 12 digits fit */
    return ms >= now_ms - tolerance_ms && ms <= now_ms + tolerance_ms;
}

static bool is_signed(const struct telnyx *t, const uint8_t *signature, const char *text,
                      size_t len)
{
    for (size_t i = 0; i < t->keys_n; i++)
        if (sign_ed25519_ok(t->keys[i], signature, text, len))
            return true;
    return false;
}

static bool is_authentic(const struct telnyx *t, const struct provider_callback *cb)
{
    const char *timestamp = callback_header(cb, "telnyx-timestamp");
    const char *coded = callback_header(cb, "telnyx-signature-ed25519");
    size_t head = timestamp ? strlen(timestamp) + 1 : 0, n = 0;
    uint8_t *signature = NULL;
    char *text = NULL;
    bool ok = false;

    if (!timestamp || !coded || !is_fresh(timestamp, cb->now_ms))
        return false;
    signature = sign_unbase64(coded, strlen(coded), &n);
    text = signature && n == SIGNATURE_LEN ? malloc(head + cb->body_len + 1) : NULL;
    if (text) {
        memcpy(text, timestamp, head - 1);
        text[head - 1] = '|';
        if (cb->body_len > 0)
            memcpy(text + head, cb->body, cb->body_len);
        ok = is_signed(t, signature, text, head + cb->body_len);
    }
    free(text);
    free(signature);
    return ok;
}

/* ---- events --------------------------------------------------------------------------------- */

static const struct {
    const char *word;
    enum provider_status status;
} statuses[] = {
    {"delivered", PROVIDER_STATUS_DELIVERED},
    {"delivery_failed", PROVIDER_STATUS_UNDELIVERED},
    {"sending_failed", PROVIDER_STATUS_UNDELIVERED},
    /* The carrier never said; Telnyx is done with it. */
    {"delivery_unconfirmed", PROVIDER_STATUS_UNDELIVERED},
    {"expired", PROVIDER_STATUS_EXPIRED},
};

/* A word that is new to us says nothing final. */
static enum provider_status status_of(const char *word, const char *code)
{
    if (code && (strcmp(code, "40005") == 0 || strcmp(code, "40014") == 0))
        return PROVIDER_STATUS_EXPIRED; /* it was too old when its turn came */
    for (size_t i = 0; i < sizeof(statuses) / sizeof(*statuses); i++)
        if (strcmp(statuses[i].word, word) == 0)
            return statuses[i].status;
    return PROVIDER_STATUS_IN_TRANSIT;
}

static int read_status(const struct telnyx *t, const json_t *data, struct provider_events *out)
{
    const json_t *error = json_path(data, "payload/errors/0");
    const char *word = json_text_at(data, "payload/to/0/status");
    char buf[24];
    struct provider_receipt r = {
        .vendor_id = json_text_at(data, "payload/id"),
        .code = json_word_at(error, "code", buf, sizeof(buf)),
        .detail = json_text_at(error, "title"),
    };

    if (!word || !r.vendor_id || !*r.vendor_id)
        return -EBADMSG;
    r.status = status_of(word, r.code);
    if (!when_parse(json_text_at(data, "occurred_at"), 0, &r.at_ms))
        r.at_ms = 0;
    return t->host->receipt(out, &r);
}

static int read_inbound(const struct telnyx *t, const json_t *data, struct provider_events *out)
{
    struct provider_inbound m = {
        .from = json_text_at(data, "payload/from/phone_number"),
        .to = json_text_at(data, "payload/to/0/phone_number"),
        .text = json_text_at(data, "payload/text"),
        .id = json_text_at(data, "payload/id"),
    };

    return m.from && m.text ? t->host->inbound(out, &m) : -EBADMSG;
}

/* Other events (of calls, of profiles) are none of ours: taken, and left alone. */
static int read_event(const struct telnyx *t, const json_t *body, struct provider_events *out)
{
    const json_t *data = json_path(body, "data");
    const char *type = json_text_at(data, "event_type");

    if (!type)
        return -EBADMSG;
    if (strcmp(type, "message.sent") == 0 || strcmp(type, "message.finalized") == 0)
        return read_status(t, data, out);
    if (strcmp(type, "message.received") == 0)
        return read_inbound(t, data, out);
    return 0;
}

int telnyx_receipt(const void *self, const struct provider_callback *cb,
                   struct provider_events *out)
{
    const struct telnyx *t = self;
    json_t *body;
    int r;

    if (t->keys && !is_authentic(t, cb))
        return -EACCES;
    body = json_body(cb->body, cb->body_len);
    r = read_event(t, body, out);
    json_decref(body);
    return r;
}
