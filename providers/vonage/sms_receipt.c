/* Callbacks of the SMS API: delivery receipts and messages people send, by GET, form or JSON. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/when.h"
#include "providers/vonage/vonage.h"

/* The parameters of a call by any of the account's three methods: GET, form, or JSON. */
struct params {
    struct provider_param *v;
    size_t n;
    json_t *json; /* owns the texts of a JSON body */
    bool in_query;
};

static int params_json(struct params *p, const struct provider_callback *cb)
{
    const char *name;
    json_t *value;
    void *next;

    p->json = json_body(cb->body, cb->body_len);
    if (!json_is_object(p->json) || json_object_size(p->json) == 0)
        return -EBADMSG;
    json_object_foreach_safe(
        p->json, next, name,
        value) if (json_is_integer(value) &&
                   json_object_set_new(p->json, name,
                                       json_sprintf("%" JSON_INTEGER_FORMAT,
                                                    json_integer_value(value)))) return -ENOMEM;
    p->v = calloc(json_object_size(p->json), sizeof(*p->v));
    if (!p->v)
        return -ENOMEM;
    json_object_foreach (p->json, name, value)
        if (json_is_string(value))
            p->v[p->n++] = (struct provider_param){name, json_string_value(value)};
    return 0;
}

static int params_read(struct params *p, const struct provider_callback *cb)
{
    const struct provider_param *from = cb->form_count > 0 ? cb->form : cb->query;
    size_t n = cb->form_count > 0 ? cb->form_count : cb->query_count;

    if (cb->form_count == 0 && cb->body_len > 0)
        return params_json(p, cb);
    if (n == 0)
        return -EBADMSG;
    p->in_query = cb->form_count == 0;
    p->v = calloc(n, sizeof(*p->v));
    if (!p->v)
        return -ENOMEM;
    memcpy(p->v, from, n * sizeof(*p->v));
    p->n = n;
    return 0;
}

static void params_done(struct params *p)
{
    free(p->v);
    json_decref(p->json);
}

static const char *param(const struct params *p, const char *name)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->v[i].name, name) == 0)
            return p->v[i].value;
    return NULL;
}

static int by_name(const void *a, const void *b)
{
    const struct provider_param *pa = a, *pb = b;

    return strcmp(pa->name, pb->name);
}

/* "&name=value" for each in order of names, `sig` left out, '&' and '=' of values as '_'. */
static int signed_text(const struct params *p, bool without_k, struct form *text)
{
    struct provider_param *sorted = calloc(p->n, sizeof(*sorted));

    if (!sorted)
        return -ENOMEM;
    memcpy(sorted, p->v, p->n * sizeof(*sorted));
    qsort(sorted, p->n, sizeof(*sorted), by_name);
    for (size_t i = 0; i < p->n; i++) {
        size_t begin;

        if (strcmp(sorted[i].name, "sig") == 0 || (without_k && strcmp(sorted[i].name, "k") == 0))
            continue;
        form_printf(text, "&%s=", sorted[i].name);
        begin = text->len;
        form_raw(text, sorted[i].value);
        for (size_t at = begin; text->error == 0 && at < text->len; at++)
            if (text->text[at] == '&' || text->text[at] == '=')
                text->text[at] = '_';
    }
    free(sorted);
    return text->error;
}

static bool signed_with(const struct vonage *v, const char *secret, const struct form *text,
                        const char *sig)
{
    uint8_t digest[SIGN_MAX];
    struct form whole = {0};
    size_t n;
    char *hex;
    bool ok;

    if (v->md5_hash) {
        form_raw(&whole, text->text);
        form_raw(&whole, secret);
        n = whole.error ? 0 : sign_digest(SIGN_MD5, whole.text, whole.len, digest);
        form_done(&whole);
    } else {
        n = sign_hmac(v->signature_hash, secret, strlen(secret), text->text, text->len, digest);
    }
    hex = n > 0 ? sign_hex(digest, n) : NULL;
    ok = sign_equal_text(hex, sig);
    free(hex);
    return ok;
}

static bool any_signed(const struct vonage *v, const struct params *p, bool without_k,
                       const char *sig)
{
    struct form text = {0};
    bool ok = false;

    if (signed_text(p, without_k, &text) == 0 && text.len > 0)
        for (char *const *secret = v->signature_secrets; *secret && !ok; secret++)
            ok = signed_with(v, *secret, &text, sig);
    form_done(&text);
    return ok;
}

/* In a GET the vendor's parameters stand beside `k`, which is of our URL: not documented whether
 * it counts as one, so either way is fine. */
static bool is_authentic(const struct vonage *v, const struct params *p)
{
    const char *given = param(p, "sig");
    char *sig = given ? strdup(given) : NULL;
    bool ok;

    if (!sig)
        return false;
    for (char *c = sig; *c; c++)
        if (*c >= 'A' && *c <= 'F')
            *c = (char)(*c - 'A' + 'a');
    ok = any_signed(v, p, p->in_query, sig) || (p->in_query && any_signed(v, p, false, sig));
    free(sig);
    return ok;
}

static enum provider_status status_of(const char *word)
{
    static const struct {
        const char *word;
        enum provider_status status;
    } words[] = {
        {"delivered", PROVIDER_STATUS_DELIVERED}, {"expired", PROVIDER_STATUS_EXPIRED},
        {"failed", PROVIDER_STATUS_UNDELIVERED},  {"rejected", PROVIDER_STATUS_REJECTED},
        {"accepted", PROVIDER_STATUS_IN_TRANSIT}, {"buffered", PROVIDER_STATUS_IN_TRANSIT},
        {"unknown", PROVIDER_STATUS_IN_TRANSIT},
    };

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (strcasecmp(words[i].word, word) == 0)
            return words[i].status;
    return PROVIDER_STATUS_IN_TRANSIT;
}

static int read_events(const struct vonage *v, const struct params *p, struct provider_events *out)
{
    const char *status = param(p, "status"), *code = param(p, "err-code");
    struct provider_receipt r = {
        .vendor_id = param(p, "messageId"),
        .ref = param(p, "client-ref"),
        .code = code && strcmp(code, "0") != 0 ? code : NULL,
    };
    struct provider_inbound m = {
        .from = param(p, "msisdn"),
        .to = param(p, "to"),
        .text = param(p, "text"),
        .id = r.vendor_id,
    };

    if (!r.vendor_id || !*r.vendor_id)
        return -EBADMSG;
    if (!status)
        return m.from && m.text ? v->host->inbound(out, &m) : -EBADMSG;
    r.status = status_of(status);
    if (r.ref && !*r.ref)
        r.ref = NULL;
    if (!when_parse(param(p, "message-timestamp"), 0, &r.at_ms))
        r.at_ms = 0;
    return v->host->receipt(out, &r);
}

int vonage_sms_receipt(const struct vonage *v, const struct provider_callback *cb,
                       struct provider_events *out)
{
    struct params p = {0};
    int r = params_read(&p, cb);

    if (r != -ENOMEM && v->signature_secrets && (r < 0 || !is_authentic(v, &p)))
        r = -EACCES;
    if (r == 0)
        r = read_events(v, &p, out);
    params_done(&p);
    return r;
}
