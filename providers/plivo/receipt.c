/* Callbacks of Plivo's: signature, what became of a message, and messages people send.
 *
 * V3 signs, under HMAC-SHA256 with the auth token, the URL without its query, the query sorted, the
 * form's parameters sorted, and a nonce. V2 signs the URL without its query and the nonce, so it
 * shows that Plivo called, not what it said. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/callback.h"
#include "providers/kit/form.h"
#include "providers/kit/sign.h"
#include "providers/kit/when.h"
#include "providers/plivo/plivo.h"

/* ---- signature ------------------------------------------------------------------------------ */

static int by_name_then_value(const void *a, const void *b)
{
    const struct provider_param *pa = a, *pb = b;
    int r = strcmp(pa->name, pb->name);

    return r != 0 ? r : strcmp(pa->value, pb->value);
}

/* Sorted; "name=value" joined by & when `query`, else names and values without anything between. */
static void add_sorted(struct form *text, const struct provider_param *params, size_t n, bool query)
{
    struct provider_param *sorted = n > 0 ? calloc(n, sizeof(*sorted)) : NULL;

    if (n == 0)
        return;
    if (!sorted) {
        text->error = -ENOMEM;
        return;
    }
    memcpy(sorted, params, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), by_name_then_value);
    for (size_t i = 0; i < n; i++) {
        form_raw(text, query && i > 0 ? "&" : "");
        form_raw(text, sorted[i].name);
        form_raw(text, query ? "=" : "");
        form_raw(text, sorted[i].value);
    }
    free(sorted);
}

static void add_v3(struct form *text, const struct provider_callback *cb, const char *nonce)
{
    form_printf(text, "%.*s", (int)strcspn(cb->url, "?#"), cb->url);
    if (cb->query_count > 0 || cb->form_count > 0)
        form_raw(text, "?");
    add_sorted(text, cb->query, cb->query_count, true);
    if (cb->query_count > 0 && cb->form_count > 0)
        form_raw(text, ".");
    add_sorted(text, cb->form, cb->form_count, false);
    form_printf(text, ".%s", nonce);
}

static void add_v2(struct form *text, const struct provider_callback *cb, const char *nonce)
{
    form_printf(text, "%.*s%s", (int)strcspn(cb->url, "?#"), cb->url, nonce);
}

/* Whether `wanted` is among the signatures, commas between them. */
static bool is_among(const char *signatures, const char *wanted)
{
    size_t wanted_len = strlen(wanted);
    bool found = false;

    while (*signatures) {
        size_t len = strcspn(signatures, ","), blanks = strspn(signatures, " ");

        if (blanks < len && sign_equal(signatures + blanks, len - blanks, wanted, wanted_len))
            found = true;
        signatures += len;
        signatures += *signatures == ',';
    }
    return found;
}

static bool signed_with(const char *token, const struct form *text, const char *signatures)
{
    uint8_t mac[SIGN_MAX];
    size_t n = sign_hmac(SIGN_SHA256, token, strlen(token), text->text, text->len, mac);
    char *coded = n > 0 ? sign_base64(mac, n) : NULL;
    bool ok = coded && is_among(signatures, coded);

    free(coded);
    return ok;
}

static bool is_authentic(const struct plivo *p, const struct provider_callback *cb)
{
    bool v3 = p->signature == PLIVO_V3;
    const char *signatures =
        callback_header(cb, v3 ? "x-plivo-signature-v3" : "x-plivo-signature-v2");
    const char *nonce =
        callback_header(cb, v3 ? "x-plivo-signature-v3-nonce" : "x-plivo-signature-v2-nonce");
    struct form text = {0};
    bool ok = false;

    if (!signatures || !nonce || !*nonce)
        return false;
    (v3 ? add_v3 : add_v2)(&text, cb, nonce);
    for (char *const *token = p->tokens; text.error == 0 && *token && !ok; token++)
        ok = signed_with(*token, &text, signatures);
    form_done(&text);
    return ok;
}

/* ---- events --------------------------------------------------------------------------------- */

static const struct {
    const char *word;
    enum provider_status status;
} statuses[] = {
    {"delivered", PROVIDER_STATUS_DELIVERED},     {"read", PROVIDER_STATUS_DELIVERED},
    {"undelivered", PROVIDER_STATUS_UNDELIVERED}, {"failed", PROVIDER_STATUS_UNDELIVERED},
    {"rejected", PROVIDER_STATUS_REJECTED},
};

/* A word that is new to us says nothing final. */
static enum provider_status status_of(const char *word, const char *code)
{
    for (size_t i = 0; i < sizeof(statuses) / sizeof(*statuses); i++)
        if (strcmp(statuses[i].word, word) == 0)
            return statuses[i].status == PROVIDER_STATUS_UNDELIVERED && code &&
                           strcmp(code, "420") == 0
                       ? PROVIDER_STATUS_EXPIRED
                       : statuses[i].status;
    return PROVIDER_STATUS_IN_TRANSIT;
}

static int64_t time_of(const struct provider_callback *cb)
{
    static const char *const names[] = {"DeliveryReportTime", "SentTime", "QueuedTime"};
    int64_t ms;

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (when_parse(callback_param(cb, names[i]), 0, &ms))
            return ms;
    return 0;
}

static int read_status(const struct plivo *p, const struct provider_callback *cb, const char *id,
                       const char *word, struct provider_events *out)
{
    const char *code = callback_param(cb, "ErrorCode");
    struct provider_receipt r = {
        .vendor_id = id,
        /* 000 is how "no error" is written. */
        .code = code && *code && strcmp(code, "000") != 0 ? code : NULL,
        .at_ms = time_of(cb),
    };

    r.status = status_of(word, r.code);
    return p->host->receipt(out, &r);
}

int plivo_receipt(const void *self, const struct provider_callback *cb, struct provider_events *out)
{
    const struct plivo *p = self;
    const char *id = callback_param(cb, "MessageUUID"), *word = callback_param(cb, "Status");
    struct provider_inbound m = {
        .from = callback_param(cb, "From"),
        .to = callback_param(cb, "To"),
        .text = callback_param(cb, "Text"),
        .id = id,
    };

    if (p->signature != PLIVO_UNSIGNED && !is_authentic(p, cb))
        return -EACCES;
    if (!id || !*id)
        return -EBADMSG;
    if (word)
        return read_status(p, cb, id, word, out);
    return m.from && m.text ? p->host->inbound(out, &m) : -EBADMSG;
}
