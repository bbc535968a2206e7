/* The JSON Web Tokens of sign.h: RFC 7519 over RFC 7515's compact form. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/sign.h"

struct token { /* where its three parts lie */
    const char *header, *claims, *signature;
    size_t header_len, claims_len, signature_len;
};

static bool split(const char *text, size_t len, struct token *ret)
{
    const char *first = memchr(text, '.', len);
    const char *second = first ? memchr(first + 1, '.', len - (size_t)(first + 1 - text)) : NULL;

    if (!second)
        return false;
    ret->header = text;
    ret->header_len = (size_t)(first - text);
    ret->claims = first + 1;
    ret->claims_len = (size_t)(second - ret->claims);
    ret->signature = second + 1;
    ret->signature_len = len - (size_t)(ret->signature - text);
    return true;
}

/* A part as a JSON object; duplicate names are refused, as two readers might see two tokens. */
static json_t *part_object(const char *part, size_t len)
{
    size_t n = 0;
    uint8_t *text = sign_unbase64url(part, len, &n);
    json_t *object = text ? json_loadb((const char *)text, n, JSON_REJECT_DUPLICATES, NULL) : NULL;

    free(text);
    if (json_is_object(object))
        return object;
    json_decref(object);
    return NULL;
}

json_t *sign_jwt_claims_untrusted(const char *token, size_t len)
{
    struct token t;

    return split(token, len, &t) ? part_object(t.claims, t.claims_len) : NULL;
}

/* ---- verifying ------------------------------------------------------------------------------ */

static bool hash_of_header(const struct token *t, enum sign_hash *ret)
{
    static const struct {
        const char *alg;
        enum sign_hash hash;
    } known[] = {{"HS256", SIGN_SHA256}, {"HS384", SIGN_SHA384}, {"HS512", SIGN_SHA512}};
    json_t *header = part_object(t->header, t->header_len);
    const char *alg = json_string_value(json_object_get(header, "alg"));
    bool found = false;

    /* "crit" names extensions a reader must understand: we understand none. */
    for (size_t i = 0; alg && !json_object_get(header, "crit") && i < 3 && !found; i++)
        if (strcmp(known[i].alg, alg) == 0) {
            *ret = known[i].hash;
            found = true;
        }
    json_decref(header);
    return found;
}

static bool signature_ok(const struct token *t, enum sign_hash hash, const void *key,
                         size_t key_len)
{
    uint8_t mac[SIGN_MAX];
    size_t n = 0;
    size_t mac_len = sign_hmac(hash, key, key_len, t->header,
                               (size_t)(t->claims + t->claims_len - t->header), mac);
    uint8_t *signature = sign_unbase64url(t->signature, t->signature_len, &n);
    bool ok = mac_len > 0 && signature && sign_equal(mac, mac_len, signature, n);

    free(signature);
    return ok;
}

/* Whether a claim that is a time lies as it must; one that is no number never does. */
static bool time_ok(const json_t *claims, const char *name, int sign, int64_t now_s,
                    int64_t leeway_s)
{
    const json_t *value = json_object_get(claims, name);

    if (!value)
        return true;
    if (!json_is_number(value))
        return false;
    return sign * (json_number_value(value) - (double)now_s) <= (double)leeway_s;
}

json_t *sign_jwt_hs_verify(const char *token, size_t len, const void *key, size_t key_len,
                           int64_t now_s, int64_t leeway_s)
{
    enum sign_hash hash = SIGN_SHA256;
    struct token t;
    json_t *claims;

    /* Without a key everybody could sign. */
    if (key_len == 0 || !split(token, len, &t) || !hash_of_header(&t, &hash) ||
        !signature_ok(&t, hash, key, key_len))
        return NULL;
    claims = part_object(t.claims, t.claims_len);
    if (time_ok(claims, "nbf", 1, now_s, leeway_s) && time_ok(claims, "exp", -1, now_s, leeway_s))
        return claims;
    json_decref(claims);
    return NULL;
}

/* ---- making --------------------------------------------------------------------------------- */

static char *unsigned_token(const char *header, const json_t *claims)
{
    char *json = json_dumps(claims, JSON_COMPACT);
    char *head = sign_base64url((const uint8_t *)header, strlen(header));
    char *body = json ? sign_base64url((const uint8_t *)json, strlen(json)) : NULL;
    char *text = NULL;

    if (head && body && asprintf(&text, "%s.%s", head, body) < 0)
        text = NULL;
    free(json);
    free(head);
    free(body);
    return text;
}

/* Takes `text`. */
static char *with_signature(char *text, const uint8_t *signature, size_t len)
{
    char *end = signature && len > 0 ? sign_base64url(signature, len) : NULL;
    char *token = NULL;

    if (text && end && asprintf(&token, "%s.%s", text, end) < 0)
        token = NULL;
    free(end);
    free(text);
    return token;
}

char *sign_jwt_hs256(const json_t *claims, const void *key, size_t key_len)
{
    char *text = unsigned_token("{\"alg\":\"HS256\",\"typ\":\"JWT\"}", claims);
    uint8_t mac[SIGN_MAX];
    size_t n = text ? sign_hmac(SIGN_SHA256, key, key_len, text, strlen(text), mac) : 0;

    return with_signature(text, mac, n);
}

char *sign_jwt_rs256(const json_t *claims, const char *private_pem)
{
    char *text = unsigned_token("{\"alg\":\"RS256\",\"typ\":\"JWT\"}", claims);
    size_t n = 0;
    uint8_t *signature = text ? sign_rsa_sha256(private_pem, text, strlen(text), &n) : NULL;
    char *token = with_signature(text, signature, n);

    free(signature);
    return token;
}
