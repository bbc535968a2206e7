/* Settings of callbacks. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/http/http.h"
#include "providers/kit/sign.h"

enum {
    TOLERANCE_DEFAULT_S = 300,
    TOLERANCE_MAX_S = 86400,
    SECRETS_MAX = 8,
};

static const char *const receipt_keys[] = {"list",     "ref",     "id",   "status",
                                           "statuses", "code",    "time", "signature",
                                           "answer",   "inbound", NULL};
static const char *const signature_keys[] = {"scheme", "secret",      "header", "encoding",
                                             "prefix", "tolerance_s", NULL};
static const char *const answer_keys[] = {"status", "body", "content_type", NULL};
static const char *const inbound_keys[] = {"from", "to", "text", "id", NULL};
static const char *const words[] = {"in_transit", "delivered", "undelivered",
                                    "expired",    "rejected",  NULL};

void hp_receipt_done(struct hp_receipt *receipt)
{
    for (size_t i = 0; i < receipt->secrets_n; i++)
        free(receipt->secrets[i].data);
    free(receipt->secrets);
    free(receipt->header_lower);
}

static int check_object(const struct hp_open *open, const char *path, const json_t *value,
                        const char *const *known)
{
    if (!json_is_object(value))
        return hp_refuse(open, path, NULL, "must be an object");
    return hp_check_keys(open, path, value, known);
}

/* A name of a value: a parameter's, or a JSON pointer. */
static int get_name(const struct hp_open *open, const char *path, const json_t *object,
                    const char *key, const char **ret)
{
    int r = hp_get_string(open, path, object, key, ret);

    if (r == 0 && *ret && **ret == '/')
        r = hp_get_pointer(open, path, object, key, ret);
    return r;
}

static int index_of(const char *const *list, const char *word)
{
    for (int i = 0; word && list[i]; i++)
        if (strcmp(list[i], word) == 0)
            return i;
    return -1;
}

static int read_statuses(struct hp_receipt *r, const struct hp_open *open, const json_t *receipt)
{
    const json_t *statuses = json_object_get(receipt, "statuses");
    const char *word;
    json_t *ours;

    if (!json_is_object(statuses) || json_object_size(statuses) == 0)
        return hp_refuse(open, "receipt.statuses", "write {\"DELIVRD\": \"delivered\"}",
                         "must be an object: the vendor's words and what they mean");
    json_object_foreach ((json_t *)statuses, word, ours)
        if (index_of(words, json_string_value(ours)) < 0)
            return hp_refuse(open, "receipt.statuses",
                             "write in_transit, delivered, undelivered, expired or rejected",
                             "\"%s\" means none of ours", word);
    r->statuses = statuses;
    return 0;
}

static int read_names(struct hp_receipt *r, const struct hp_open *open, const json_t *receipt)
{
    const struct {
        const char *key, *path, **ret;
    } names[] = {
        {"ref", "receipt.ref", &r->ref},          {"id", "receipt.id", &r->id},
        {"status", "receipt.status", &r->status}, {"code", "receipt.code", &r->code},
        {"time", "receipt.time", &r->time},
    };
    int result = hp_get_pointer(open, "receipt.list", receipt, "list", &r->list);

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && result == 0; i++)
        result = get_name(open, names[i].path, receipt, names[i].key, names[i].ret);
    if (result == 0 && !r->status)
        result = hp_refuse(open, "receipt.status", "write \"/status\", or the parameter's name",
                           "is missing: where does the vendor say what became of it?");
    return result;
}

static int read_inbound(struct hp_receipt *r, const struct hp_open *open, const json_t *receipt)
{
    const json_t *inbound = json_object_get(receipt, "inbound");
    int result;

    if (!inbound)
        return 0;
    result = check_object(open, "receipt.inbound", inbound, inbound_keys);
    if (result == 0)
        result = get_name(open, "receipt.inbound.from", inbound, "from", &r->from);
    if (result == 0)
        result = get_name(open, "receipt.inbound.to", inbound, "to", &r->to);
    if (result == 0)
        result = get_name(open, "receipt.inbound.text", inbound, "text", &r->text);
    if (result == 0)
        result = get_name(open, "receipt.inbound.id", inbound, "id", &r->inbound_id);
    if (result == 0 && (!r->from || !r->text))
        result = hp_refuse(open, "receipt.inbound", NULL, "needs \"from\" and \"text\"");
    return result;
}

/* ---- signatures ----------------------------------------------------------------------------- */

/* Standard Webhooks writes a secret as whsec_BASE64; the others take its bytes as they are. */
static int add_secret(struct hp_receipt *r, const struct hp_open *open, const json_t *value)
{
    static const char prefix[] = "whsec_";
    struct hp_secret *s = &r->secrets[r->secrets_n];
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);

    if (!text || len == 0)
        return hp_refuse(open, "receipt.signature.secret", NULL,
                         "must be a string that is not empty, or a list of them");
    if (r->scheme != HP_STANDARD_WEBHOOKS) {
        s->data = (uint8_t *)strdup(text);
        s->len = len;
    } else {
        if (strncmp(text, prefix, strlen(prefix)) == 0)
            text += strlen(prefix);
        s->data = sign_unbase64(text, strlen(text), &s->len);
        if (!s->data || s->len == 0) {
            free(s->data);
            s->data = NULL;
            return hp_refuse(open, "receipt.signature.secret", "write it as whsec_… was given",
                             "is not base64");
        }
    }
    if (!s->data)
        return -ENOMEM;
    r->secrets_n++;
    return 0;
}

static int read_secrets(struct hp_receipt *r, const struct hp_open *open, const json_t *signature)
{
    const json_t *secret = json_object_get(signature, "secret");
    size_t n = json_is_array(secret) ? json_array_size(secret) : 1;
    int result = 0;

    if (!secret || n == 0 || n > SECRETS_MAX)
        return hp_refuse(open, "receipt.signature.secret", NULL,
                         "is missing, or more than %d of them", SECRETS_MAX);
    r->secrets = calloc(n, sizeof(*r->secrets));
    if (!r->secrets)
        return -ENOMEM;
    for (size_t i = 0; i < n && result == 0; i++)
        result = add_secret(r, open, json_is_array(secret) ? json_array_get(secret, i) : secret);
    return result;
}

static int read_header(struct hp_receipt *r, const struct hp_open *open, const json_t *signature)
{
    static const char *const encodings[] = {"hex", "base64", NULL};
    const char *header = NULL, *encoding = NULL;
    int result = hp_get_string(open, "receipt.signature.header", signature, "header", &header);

    if (result < 0)
        return result;
    if (!header || !hp_is_token(header))
        return hp_refuse(open, "receipt.signature.header", NULL,
                         "must name the header with the signature");
    result = hp_get_string(open, "receipt.signature.prefix", signature, "prefix", &r->prefix);
    if (result == 0)
        result =
            hp_get_string(open, "receipt.signature.encoding", signature, "encoding", &encoding);
    if (result < 0)
        return result;
    if (encoding && index_of(encodings, encoding) < 0)
        return hp_refuse(open, "receipt.signature.encoding", NULL, "must be \"hex\" or \"base64\"");
    r->base64 = encoding && strcmp(encoding, "base64") == 0;
    r->header_lower = strdup(header);
    for (char *p = r->header_lower; p && *p; p++)
        *p = (char)tolower((unsigned char)*p);
    r->header = r->header_lower;
    return r->header ? 0 : -ENOMEM;
}

/* Headers and encoding of Standard Webhooks are fixed. */
static int check_standard(const struct hp_open *open, const json_t *signature)
{
    static const char *const fixed[] = {"header", "encoding", "prefix", NULL};

    for (size_t i = 0; fixed[i]; i++)
        if (json_object_get(signature, fixed[i]))
            return hp_refuse(open, "receipt.signature", "leave it out",
                             "\"%s\" is fixed by standard-webhooks", fixed[i]);
    return 0;
}

static int read_signature(struct hp_receipt *r, const struct hp_open *open, const json_t *receipt)
{
    static const char *const schemes[] = {"none", "hmac-sha1", "hmac-sha256", "standard-webhooks",
                                          NULL};
    const json_t *signature = json_object_get(receipt, "signature"), *tolerance;
    const char *scheme = NULL;
    int64_t tolerance_s = TOLERANCE_DEFAULT_S;
    int result, i;

    if (!signature)
        return 0;
    result = check_object(open, "receipt.signature", signature, signature_keys);
    if (result == 0)
        result = hp_get_string(open, "receipt.signature.scheme", signature, "scheme", &scheme);
    if (result < 0)
        return result;
    i = index_of(schemes, scheme);
    if (i < 0)
        return hp_refuse(open, "receipt.signature.scheme",
                         "write none, hmac-sha1, hmac-sha256 or standard-webhooks",
                         "must be one of those known");
    r->scheme = (enum hp_scheme)i;
    if (r->scheme == HP_UNSIGNED)
        return 0;
    tolerance = json_object_get(signature, "tolerance_s");
    if (tolerance)
        result = hp_get_int(open, "receipt.signature.tolerance_s", tolerance, 1, TOLERANCE_MAX_S,
                            &tolerance_s);
    r->tolerance_ms = tolerance_s * 1000;
    if (result == 0)
        result = r->scheme == HP_STANDARD_WEBHOOKS ? check_standard(open, signature)
                                                   : read_header(r, open, signature);
    return result < 0 ? result : read_secrets(r, open, signature);
}

/* ---- the answer ----------------------------------------------------------------------------- */

static int read_answer(struct hp_receipt *r, const struct hp_open *open, const json_t *receipt)
{
    const json_t *answer = json_object_get(receipt, "answer"), *status;
    int result;

    r->answer_status = 200;
    r->answer_type = "text/plain";
    if (!answer)
        return 0;
    result = check_object(open, "receipt.answer", answer, answer_keys);
    status = json_object_get(answer, "status");
    if (result == 0 && status)
        result = hp_get_int(open, "receipt.answer.status", status, 200, 299, &r->answer_status);
    if (result == 0)
        result = hp_get_string(open, "receipt.answer.body", answer, "body", &r->answer_body);
    if (result == 0 && json_object_get(answer, "content_type"))
        result = hp_get_string(open, "receipt.answer.content_type", answer, "content_type",
                               &r->answer_type);
    for (const char *p = r->answer_type; result == 0 && *p; p++)
        if (*p < ' ' || *p == 0x7f)
            result = hp_refuse(open, "receipt.answer.content_type", NULL,
                               "holds a line end or control byte");
    return result;
}

int hp_receipt_read(struct hp_self *self, const struct hp_open *open)
{
    const json_t *receipt = json_object_get(self->settings, "receipt");
    struct hp_receipt *r = &self->receipt;
    int result;

    if (!receipt)
        return 0;
    result = check_object(open, "receipt", receipt, receipt_keys);
    if (result == 0)
        result = read_names(r, open, receipt);
    if (result == 0)
        result = read_statuses(r, open, receipt);
    if (result == 0)
        result = read_inbound(r, open, receipt);
    if (result == 0)
        result = read_signature(r, open, receipt);
    if (result == 0)
        result = read_answer(r, open, receipt);
    if (result < 0)
        return result;
    if (!r->ref && !r->id && !hp_sends(self, HP_FIELD_CALLBACK_URL))
        return hp_refuse(open, "receipt",
                         "name \"ref\" or \"id\", or send {{callback_url}} with each message",
                         "nothing in a receipt says which message it speaks of");
    r->on = true;
    return 0;
}
