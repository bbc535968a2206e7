/* Callbacks by settings: receipts, and messages of people. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/http/http.h"
#include "providers/kit/callback.h"
#include "providers/kit/sign.h"
#include "providers/kit/when.h"

static const char *const our_words[PROVIDER_STATUS_MAX_] = {
    [PROVIDER_STATUS_IN_TRANSIT] = "in_transit",   [PROVIDER_STATUS_DELIVERED] = "delivered",
    [PROVIDER_STATUS_UNDELIVERED] = "undelivered", [PROVIDER_STATUS_EXPIRED] = "expired",
    [PROVIDER_STATUS_REJECTED] = "rejected",
};

/* A value of a callback: of a JSON entry or a parameter, by how its name begins. */
struct source {
    const struct hp_self *self;
    const struct provider_callback *cb;
    const json_t *entry;
};

static const char *value_of(const struct source *s, const char *name, char digits[static 24])
{
    const char *text;
    size_t len;

    if (!name)
        return NULL;
    if (*name == '/' || !*name) {
        const json_t *at = hp_pointer_get(s->entry, name);

        if (json_is_boolean(at))
            return json_is_true(at) ? "true" : "false";
        /* jansson refuses a NUL in a string unless it is asked not to. */
        return hp_text_at(s->entry, name, digits, &text, &len) ? text : NULL;
    }
    /* Nothing in a signed call counts but what the signature covers. */
    if (s->self->receipt.scheme != HP_UNSIGNED)
        text = callback_form(s->cb, name);
    else
        text = callback_param(s->cb, name);
    return text && *text ? text : NULL;
}

/* The settings' word for the vendor's; a word they do not name proves nothing. */
static uint32_t status_of(const struct hp_receipt *r, const char *word)
{
    const char *ours = json_string_value(json_object_get(r->statuses, word));

    for (uint32_t i = 0; ours && i < PROVIDER_STATUS_MAX_; i++)
        if (strcmp(ours, our_words[i]) == 0)
            return i;
    return PROVIDER_STATUS_IN_TRANSIT;
}

static int64_t time_of(const char *text)
{
    int64_t ms = 0;
    char *end;

    if (!text)
        return 0;
    if (strspn(text, "0123456789") == strlen(text)) {
        errno = 0;
        ms = strtoll(text, &end, 10);
        if (errno || ms > INT64_C(100000000000000))
            return 0;
        return ms < INT64_C(100000000000) ? ms * 1000 : ms;
    }
    return when_parse(text, 0, &ms) ? ms : 0;
}

static int read_inbound(const struct source *s, struct provider_events *out)
{
    const struct hp_receipt *r = &s->self->receipt;
    char from[24], to[24], text[24], id[24];
    const struct provider_inbound m = {
        .from = value_of(s, r->from, from),
        .to = value_of(s, r->to, to),
        .text = value_of(s, r->text, text),
        .id = value_of(s, r->inbound_id, id),
    };

    return m.from && m.text ? s->self->host->inbound(out, &m) : -EBADMSG;
}

static int read_receipt(const struct source *s, const char *word, struct provider_events *out)
{
    const struct hp_receipt *r = &s->self->receipt;
    char ref[24], id[24], code[24], when[24];
    struct provider_receipt event = {
        .status = status_of(r, word),
        .ref = value_of(s, r->ref, ref),
        .vendor_id = value_of(s, r->id, id),
        .code = value_of(s, r->code, code),
        .at_ms = time_of(value_of(s, r->time, when)),
    };

    if (!event.ref && !event.vendor_id && !callback_query(s->cb, "k"))
        return -EBADMSG;
    if (!event.code && event.status != PROVIDER_STATUS_DELIVERED)
        event.code = word;
    return s->self->host->receipt(out, &event);
}

static int read_one(const struct source *s, struct provider_events *out)
{
    char digits[24];
    const char *word = value_of(s, s->self->receipt.status, digits);

    return word ? read_receipt(s, word, out) : read_inbound(s, out);
}

/* One entry that says nothing does not spoil the others. */
static int read_list(struct source *s, const json_t *list, struct provider_events *out)
{
    size_t read = 0;
    int r = 0;

    for (size_t i = 0; i < json_array_size(list) && (r == 0 || r == -EBADMSG); i++) {
        s->entry = json_array_get(list, i);
        r = read_one(s, out);
        read += r == 0;
    }
    return r == -EBADMSG && read > 0 ? 0 : r;
}

static int read_events(const struct hp_self *self, const struct provider_callback *cb,
                       struct provider_events *out)
{
    struct source s = {.self = self, .cb = cb};
    json_t *body = hp_read_json(cb->body, cb->body_len);
    const json_t *list = self->receipt.list ? hp_pointer_get(body, self->receipt.list) : NULL;
    int r;

    s.entry = body;
    if (self->receipt.list && !json_is_array(list))
        r = -EBADMSG;
    else
        r = list ? read_list(&s, list, out) : read_one(&s, out);
    json_decref(body);
    return r;
}

int hp_receive(const struct hp_self *self, const struct provider_callback *cb,
               struct provider_events *out)
{
    const struct hp_receipt *r = &self->receipt;
    int result;

    if (r->scheme != HP_UNSIGNED && !hp_signature_ok(r, cb))
        return -EACCES;
    result = read_events(self, cb, out);
    if (result < 0 || (r->answer_status == 200 && !r->answer_body))
        return result;
    return self->host->callback_answer(out, (int)r->answer_status,
                                       r->answer_body ? r->answer_type : NULL, r->answer_body,
                                       r->answer_body ? strlen(r->answer_body) : 0);
}

/* ---- signatures ----------------------------------------------------------------------------- */

static bool hmac_is(const struct hp_receipt *r, const struct hp_secret *secret,
                    const struct provider_callback *cb, const char *given)
{
    enum sign_hash hash = r->scheme == HP_HMAC_SHA1 ? SIGN_SHA1 : SIGN_SHA256;
    uint8_t mac[SIGN_MAX];
    size_t n = sign_hmac(hash, secret->data, secret->len, cb->body, cb->body_len, mac);
    char *wanted = n == 0 ? NULL : r->base64 ? sign_base64(mac, n) : sign_hex(mac, n);
    bool same = sign_equal_text(wanted, given);

    free(wanted);
    return same;
}

static bool hmac_ok(const struct hp_receipt *r, const struct provider_callback *cb)
{
    const char *given = callback_header(cb, r->header);
    size_t prefix = r->prefix ? strlen(r->prefix) : 0;
    bool ok = false;
    char *text;

    /* A signature over nothing is the same for every call. */
    if (!given || cb->body_len == 0 || strncmp(given, r->prefix ? r->prefix : "", prefix) != 0)
        return false;
    text = strdup(given + prefix);
    for (char *p = text; p && *p && !r->base64; p++)
        *p = (char)tolower((unsigned char)*p);
    for (size_t i = 0; text && i < r->secrets_n; i++)
        ok |= hmac_is(r, &r->secrets[i], cb, text);
    free(text);
    return ok;
}

/* One of the blank-separated "v1,BASE64" is ours. */
static bool in_signatures(const char *list, const char *wanted)
{
    size_t len = strlen(wanted);
    bool ok = false;

    while (*list) {
        size_t n;

        list += strspn(list, " ");
        n = strcspn(list, " ");
        if (n == len + 3 && strncmp(list, "v1,", 3) == 0)
            ok |= sign_equal(list + 3, len, wanted, len);
        list += n;
    }
    return ok;
}

/* Standard Webhooks: HMAC-SHA256 over "id.timestamp.body". */
static bool standard_ok(const struct hp_receipt *r, const struct provider_callback *cb)
{
    const char *id = callback_header(cb, "webhook-id");
    const char *stamp = callback_header(cb, "webhook-timestamp");
    const char *list = callback_header(cb, "webhook-signature");
    int64_t at_ms = stamp && strspn(stamp, "0123456789") == strlen(stamp) ? time_of(stamp) : 0;
    struct hp_buf text = {0};
    uint8_t mac[SIGN_MAX];
    bool ok = false;

    if (!id || !list || at_ms == 0 || llabs(cb->now_ms - at_ms) > r->tolerance_ms)
        return false;
    hp_buf_add(&text, id, strlen(id));
    hp_buf_add(&text, ".", 1);
    hp_buf_add(&text, stamp, strlen(stamp));
    hp_buf_add(&text, ".", 1);
    hp_buf_add(&text, cb->body ? cb->body : "", cb->body_len);
    for (size_t i = 0; !text.error && i < r->secrets_n; i++) {
        size_t n =
            sign_hmac(SIGN_SHA256, r->secrets[i].data, r->secrets[i].len, text.data, text.len, mac);
        char *wanted = n > 0 ? sign_base64(mac, n) : NULL;

        ok |= wanted && in_signatures(list, wanted);
        free(wanted);
    }
    hp_buf_done(&text);
    return ok;
}

bool hp_signature_ok(const struct hp_receipt *r, const struct provider_callback *cb)
{
    return r->scheme == HP_STANDARD_WEBHOOKS ? standard_ok(r, cb) : hmac_ok(r, cb);
}
