#include "providers/sandbox/dialects/aws_sigv4.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/form.h"
#include "providers/kit/sign.h"
#include "providers/kit/when.h"

#define ALGORITHM "AWS4-HMAC-SHA256"

enum { DATE_LEN = 8, STAMP_LEN = 16, SKEW_MS = 300 * 1000 };

struct authorization { /* the header's parts; texts are owned */
    char *credential, *headers, *signature;
};

static void authorization_done(struct authorization *a)
{
    free(a->credential);
    free(a->headers);
    free(a->signature);
}

/* "Name=value" up to a comma or blank; NULL when it is not there. */
static char *member(const char *header, const char *name)
{
    const char *p = strstr(header, name);

    if (!p)
        return NULL;
    p += strlen(name);
    return strndup(p, strcspn(p, ", "));
}

static bool authorization_read(const struct sb_call *c, struct authorization *a)
{
    const char *header = sb_call_header(c, "Authorization");

    if (!header || strncmp(header, ALGORITHM " ", sizeof(ALGORITHM)) != 0)
        return false;
    a->credential = member(header, "Credential=");
    a->headers = member(header, "SignedHeaders=");
    a->signature = member(header, "Signature=");
    return a->credential && a->headers && a->signature;
}

/* "20261130T223000Z" within five minutes of our time. */
static bool stamp_ok(const struct sb_call *c, const char *stamp)
{
    struct form text = {0};
    int64_t at_ms, now_ms = sb_now_ms(c->world);
    bool ok;

    if (!stamp || strlen(stamp) != STAMP_LEN || stamp[DATE_LEN] != 'T')
        return false;
    form_printf(&text, "%.4s-%.2s-%.2sT%.2s:%.2s:%.2sZ", stamp, stamp + 4, stamp + 6, stamp + 9,
                stamp + 11, stamp + 13);
    ok = text.error == 0 && when_parse(text.text, 0, &at_ms) && at_ms > now_ms - SKEW_MS &&
         at_ms < now_ms + SKEW_MS;
    form_done(&text);
    return ok;
}

static void add_hex(struct form *f, const void *data, size_t len)
{
    uint8_t digest[SIGN_MAX];
    size_t n = sign_digest(SIGN_SHA256, data, len, digest);
    char *hex = n > 0 ? sign_hex(digest, n) : NULL;

    if (hex)
        form_raw(f, hex);
    else
        f->error = -ENOMEM;
    free(hex);
}

/* A header's value without blanks around it, runs of blanks inside made one. */
static void add_value(struct form *f, const char *value)
{
    char one[2] = {0};
    bool blank = false;

    for (value += strspn(value, " \t"); *value; value++) {
        if (*value == ' ' || *value == '\t') {
            blank = true;
            continue;
        }
        if (blank)
            form_raw(f, " ");
        blank = false;
        one[0] = *value;
        form_raw(f, one);
    }
}

/* Lines of the signed headers in their order; false: one is not there. */
static bool add_headers(const struct sb_call *c, const char *names, struct form *f)
{
    bool all = true;

    while (*names && all) {
        size_t len = strcspn(names, ";");
        char *name = strndup(names, len);
        const char *value = name ? sb_call_header(c, name) : NULL;

        all = value != NULL;
        if (all) {
            form_printf(f, "%s:", name);
            add_value(f, value);
            form_raw(f, "\n");
        }
        free(name);
        names += len;
        names += *names == ';';
    }
    return all;
}

/* Whether the list, with its separators, holds this name. */
static bool is_signed(const char *names, const char *name)
{
    size_t len = strlen(name);

    for (const char *p = names; (p = strstr(p, name)); p += len)
        if ((p == names || p[-1] == ';') && (p[len] == ';' || p[len] == '\0'))
            return true;
    return false;
}

/* signature = HMAC(HMAC(HMAC(HMAC(HMAC("AWS4" secret, date), region), service), "aws4_request"),
 * text), in hex; the caller frees. */
static char *signature_of(const char *secret, const char *const scope[4], const struct form *text)
{
    uint8_t key[SIGN_MAX], next[SIGN_MAX];
    struct form first = {0};
    size_t len = 0;

    form_printf(&first, "AWS4%s", secret);
    if (first.error == 0)
        len = sign_hmac(SIGN_SHA256, first.text, first.len, scope[0], strlen(scope[0]), key);
    form_done(&first);
    for (size_t i = 1; i < 4 && len > 0; i++) {
        len = sign_hmac(SIGN_SHA256, key, len, scope[i], strlen(scope[i]), next);
        memcpy(key, next, len);
    }
    if (len > 0)
        len = sign_hmac(SIGN_SHA256, key, len, text->text, text->len, next);
    return len > 0 ? sign_hex(next, len) : NULL;
}

static enum aws_fault compare(const struct sb_call *c, const char *service, const char *stamp,
                              const struct authorization *a)
{
    const char *region = sb_setting(c->world, "region");
    char date[DATE_LEN + 1] = {0};
    const char *const scope[4] = {date, region, service, "aws4_request"};
    struct form canonical = {0}, text = {0};
    enum aws_fault fault = AWS_NO_MEMORY;
    char *wanted = NULL;
    bool all;

    memcpy(date, stamp, DATE_LEN);
    form_printf(&canonical, "%s\n%s\n\n", c->method, c->path);
    all = add_headers(c, a->headers, &canonical);
    form_printf(&canonical, "\n%s\n", a->headers);
    add_hex(&canonical, c->body ? c->body : "", c->len);
    form_printf(&text, ALGORITHM "\n%s\n%s/%s/%s/aws4_request\n", stamp, date, region, service);
    if (canonical.error == 0)
        add_hex(&text, canonical.text, canonical.len);
    if (canonical.error == 0 && text.error == 0)
        wanted = signature_of(sb_setting(c->world, "secret_access_key"), scope, &text);
    if (wanted)
        fault = all && sign_equal_text(wanted, a->signature) ? AWS_OK : AWS_MISMATCH;
    free(wanted);
    form_done(&canonical);
    form_done(&text);
    return fault;
}

/* KEY/DATE/REGION/SERVICE/aws4_request */
static enum aws_fault check_credential(const struct sb_call *c, const char *service,
                                       const char *stamp, const char *credential)
{
    const char *key = sb_setting(c->world, "access_key_id");
    struct form scope = {0};
    size_t len = strlen(key);
    enum aws_fault fault;

    if (strncmp(credential, key, len) != 0 || credential[len] != '/')
        return AWS_KEY;
    form_printf(&scope, "%.8s/%s/%s/aws4_request", stamp, sb_setting(c->world, "region"), service);
    if (scope.error)
        fault = AWS_NO_MEMORY;
    else
        fault = strcmp(scope.text, credential + len + 1) == 0 ? AWS_OK : AWS_MISMATCH;
    form_done(&scope);
    return fault;
}

static enum aws_fault check(const struct sb_call *c, const char *service,
                            const struct authorization *a)
{
    const char *token = sb_setting(c->world, "session_token");
    const char *given = sb_call_header(c, "x-amz-security-token");
    const char *stamp = sb_call_header(c, "x-amz-date");
    enum aws_fault fault;

    if (!stamp_ok(c, stamp))
        return AWS_TIME;
    fault = check_credential(c, service, stamp, a->credential);
    if (fault != AWS_OK)
        return fault;
    if (*token ? !sign_equal_text(token, given) : given != NULL)
        return AWS_KEY;
    if (!is_signed(a->headers, "host") || !is_signed(a->headers, "x-amz-date") ||
        (given && !is_signed(a->headers, "x-amz-security-token")) || c->query_n > 0)
        return AWS_MISMATCH;
    return compare(c, service, stamp, a);
}

enum aws_fault aws_sigv4_check(const struct sb_call *c, const char *service)
{
    struct authorization a = {0};
    enum aws_fault fault = authorization_read(c, &a) ? check(c, service, &a) : AWS_MISSING;

    authorization_done(&a);
    return fault;
}
