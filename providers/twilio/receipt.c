/* Callbacks of Twilio's: signature, status of a message, and messages people send.
 *
 * Signed is the URL as Twilio called it, followed by every form parameter's name and value in
 * order of names, under HMAC-SHA1 with the auth token; where a Webhooks Rule applies, under
 * HMAC-SHA256 with that rule's shared key, and a header says so. A JSON body is not in it: the
 * URL carries its SHA-256 then. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/callback.h"
#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/sign.h"
#include "providers/twilio/twilio.h"

/* ---- signature ------------------------------------------------------------------------------ */

static int by_name_then_value(const void *a, const void *b)
{
    const struct provider_param *pa = a, *pb = b;
    int r = strcmp(pa->name, pb->name);

    return r != 0 ? r : strcmp(pa->value, pb->value);
}

/* Names and values, sorted; a pair that comes twice counts once. */
static int add_params(struct form *text, const struct provider_callback *cb)
{
    struct provider_param *sorted;

    if (cb->form_count == 0)
        return 0;
    sorted = calloc(cb->form_count, sizeof(*sorted));
    if (!sorted)
        return -ENOMEM;
    memcpy(sorted, cb->form, cb->form_count * sizeof(*sorted));
    qsort(sorted, cb->form_count, sizeof(*sorted), by_name_then_value);
    for (size_t i = 0; i < cb->form_count; i++) {
        if (i > 0 && by_name_then_value(&sorted[i - 1], &sorted[i]) == 0)
            continue;
        form_raw(text, sorted[i].name);
        form_raw(text, sorted[i].value);
    }
    free(sorted);
    return text->error;
}

/* The URL with its port left out, or with the scheme's own put in: Twilio signs either. */
static int other_port(const char *url, struct form *ret)
{
    const char *host = strstr(url, "://");
    size_t len, port;

    if (!host)
        return -EINVAL;
    host += 3;
    len = strcspn(host, "/?#");
    port = len;
    while (port > 0 && strchr("0123456789", host[port - 1]))
        port--;
    form_printf(ret, "%.*s", (int)(host - url), url);
    if (port > 0 && port < len && host[port - 1] == ':')
        form_printf(ret, "%.*s", (int)(port - 1), host);
    else
        form_printf(ret, "%.*s:%s", (int)len, host, strncmp(url, "https", 5) == 0 ? "443" : "80");
    form_raw(ret, host + len);
    return ret->error;
}

static bool signed_with(const char *secret, enum sign_hash hash, const char *text, size_t len,
                        const char *signature)
{
    uint8_t mac[SIGN_MAX];
    size_t n = sign_hmac(hash, secret, strlen(secret), text, len, mac);
    char *coded = n > 0 ? sign_base64(mac, n) : NULL;
    bool ok = coded && sign_equal_text(coded, signature);

    free(coded);
    return ok;
}

/* True when one of the secrets signed this URL. */
static bool url_signed(const char *url, const struct provider_callback *cb, char *const *secrets,
                       enum sign_hash hash, const char *signature)
{
    struct form text = {0};
    bool ok = false;

    form_raw(&text, url);
    if (add_params(&text, cb) == 0 && text.error == 0)
        for (; *secrets && !ok; secrets++)
            ok = signed_with(*secrets, hash, text.text, text.len, signature);
    form_done(&text);
    return ok;
}

/* A body that is no form is covered by its hash in the URL, which is signed. */
static bool body_covered(const struct provider_callback *cb)
{
    const char *wanted = callback_query(cb, "bodySHA256");
    uint8_t digest[SIGN_MAX];
    size_t n;
    char *hex;
    bool ok;

    if (!wanted)
        return cb->form_count > 0 || cb->body_len == 0;
    n = sign_digest(SIGN_SHA256, cb->body, cb->body_len, digest);
    hex = n > 0 ? sign_hex(digest, n) : NULL;
    ok = sign_equal_text(hex, wanted);
    free(hex);
    return ok;
}

static bool is_authentic(const struct twilio *t, const struct provider_callback *cb)
{
    const char *signature = callback_header(cb, "x-twilio-signature");
    const char *rule = callback_header(cb, "x-twilio-webhooks-signature-settings");
    char *const *secrets = rule ? t->shared_keys : t->auth_tokens;
    enum sign_hash hash = rule ? SIGN_SHA256 : SIGN_SHA1;
    struct form other = {0};
    bool ok;

    if (!signature || !secrets || (rule && !strstr(rule, "algorithm=HMAC_SHA256")) ||
        !body_covered(cb))
        return false;
    ok = url_signed(cb->url, cb, secrets, hash, signature);
    if (!ok && other_port(cb->url, &other) == 0)
        ok = url_signed(other.text, cb, secrets, hash, signature);
    form_done(&other);
    return ok;
}

/* ---- events --------------------------------------------------------------------------------- */

static const char *field(const struct provider_callback *cb, const json_t *json, const char *name)
{
    return json ? json_text_at(json, name) : callback_form(cb, name);
}

/* Twilio's words; NULL-terminated by an empty name. */
static const struct {
    const char *word;
    enum provider_status status;
} statuses[] = {
    {"delivered", PROVIDER_STATUS_DELIVERED},
    {"read", PROVIDER_STATUS_DELIVERED},
    {"undelivered", PROVIDER_STATUS_UNDELIVERED},
    {"failed", PROVIDER_STATUS_UNDELIVERED},
    {"canceled", PROVIDER_STATUS_REJECTED},
    {"queued", PROVIDER_STATUS_IN_TRANSIT},
    {"accepted", PROVIDER_STATUS_IN_TRANSIT},
    {"scheduled", PROVIDER_STATUS_IN_TRANSIT},
    {"sending", PROVIDER_STATUS_IN_TRANSIT},
    {"sent", PROVIDER_STATUS_IN_TRANSIT},
    {"partially_delivered", PROVIDER_STATUS_IN_TRANSIT},
};

static int read_status(const struct twilio *t, const struct provider_callback *cb,
                       const json_t *json, const char *word, struct provider_events *out)
{
    struct provider_receipt r = {
        .vendor_id = field(cb, json, "MessageSid"),
        .code = field(cb, json, "ErrorCode"),
        .detail = field(cb, json, "ErrorMessage"),
        .status = PROVIDER_STATUS_MAX_,
    };

    for (size_t i = 0; i < sizeof(statuses) / sizeof(*statuses); i++)
        if (strcmp(statuses[i].word, word) == 0)
            r.status = statuses[i].status;
    if (r.status == PROVIDER_STATUS_MAX_) /* a new word of theirs says nothing final */
        r.status = PROVIDER_STATUS_IN_TRANSIT;
    /* There is no word for expired; this code says that the validity period was over. */
    if (r.status == PROVIDER_STATUS_UNDELIVERED && r.code && strcmp(r.code, "30036") == 0)
        r.status = PROVIDER_STATUS_EXPIRED;
    return t->host->receipt(out, &r);
}

/* An empty TwiML document: no reply to the person. */
static int read_inbound(const struct twilio *t, const struct provider_callback *cb,
                        const json_t *json, struct provider_events *out)
{
    static const char twiml[] = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Response></Response>";
    struct provider_inbound m = {
        .from = field(cb, json, "From"),
        .to = field(cb, json, "To"),
        .text = field(cb, json, "Body"),
        .id = field(cb, json, "MessageSid"),
    };
    int r = t->host->inbound(out, &m);

    if (r == 0)
        r = t->host->callback_answer(out, 200, "text/xml", twiml, sizeof(twiml) - 1);
    return r;
}

static int read_events(const struct twilio *t, const struct provider_callback *cb,
                       const json_t *json, struct provider_events *out)
{
    const char *status = field(cb, json, "MessageStatus");
    const char *sid = field(cb, json, "MessageSid");
    const char *account = field(cb, json, "AccountSid");

    if (!sid || !*sid || (account && strcmp(account, t->account_sid) != 0))
        return -EBADMSG;
    if (status)
        return read_status(t, cb, json, status, out);
    if (field(cb, json, "From") && field(cb, json, "Body"))
        return read_inbound(t, cb, json, out);
    return -EBADMSG;
}

int twilio_receipt(const void *self, const struct provider_callback *cb,
                   struct provider_events *out)
{
    const struct twilio *t = self;
    json_t *json = NULL;
    int r;

    if ((t->auth_tokens || t->shared_keys) && !is_authentic(t, cb))
        return -EACCES;
    if (cb->form_count == 0 && !(json = json_body(cb->body, cb->body_len)))
        return -EBADMSG;
    r = read_events(t, cb, json, out);
    json_decref(json);
    return r;
}
