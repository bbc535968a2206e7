/* What plugins may call, and what becomes of their words. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "worker/core/clean.h"
#include "worker/core/retry_after.h"
#include "worker/core/utf8.h"
#include "worker/engine/plugin_host.h"

enum { ID_MAX = 512 };

/* Longer waits than a week are a mistake; the engine caps much lower. */
static const int64_t wait_max_ms = INT64_C(7) * 24 * 3600 * 1000;

/* ---- texts ---------------------------------------------------------------------------------- */

bool plugin_id_ok(const char *id, size_t len)
{
    uint32_t code;

    if (len == 0 || len > ID_MAX)
        return false;
    for (size_t at = 0; at < len;)
        if (utf8_next(id, len, &at, &code) < 0 || code < ' ' || (code >= 0x7f && code < 0xa0))
            return false;
    return true;
}

bool plugin_is_token(const char *s)
{
    size_t len = strlen(s);

    return len > 0 && strspn(s, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == len;
}

bool plugin_is_header_value(const char *s)
{
    for (const unsigned char *p = (const unsigned char *)s; *p; p++)
        if ((*p < ' ' && *p != '\t') || *p == 0x7f)
            return false;
    return true;
}

/* No blank, control or byte above ASCII, which libcurl or a proxy might read in another way than
 * it was meant. */
static bool is_url_byte(unsigned char c)
{
    return c > ' ' && c < 0x7f && !strchr("\"<>\\^`{|}", c);
}

bool plugin_is_url(const char *s)
{
    if (strncasecmp(s, "http://", 7) != 0 && strncasecmp(s, "https://", 8) != 0)
        return false;
    while (*s && is_url_byte((unsigned char)*s))
        s++;
    return !*s;
}

int plugin_set_clean(char **field, const char *text, size_t len, size_t size, unsigned flags)
{
    char *buf, *fit;

    if (!text || len == 0)
        return 0;
    buf = malloc(size);
    if (!buf)
        return -ENOMEM;
    len = clean_text(buf, size, text, len, flags);
    fit = realloc(buf, len + 1);
    free(*field);
    *field = fit ? fit : buf;
    return 0;
}

int plugin_set_code(char **field, const char *text, size_t len)
{
    return plugin_set_clean(field, text, len, PLUGIN_CODE_SIZE, 0);
}

/* Vendors like to repeat the number and the text. */
int plugin_set_detail(char **field, const char *text, size_t len)
{
    return plugin_set_clean(field, text, len, PLUGIN_DETAIL_SIZE, CLEAN_MASK_DIGITS);
}

int plugin_ids_add(char ***ids, size_t *n, size_t max, const char *id, size_t len)
{
    char **grown;

    if (!id || !plugin_id_ok(id, len))
        return -EINVAL;
    if (*n == max)
        return -E2BIG;
    grown = realloc(*ids, (*n + 1) * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    *ids = grown;
    grown[*n] = strndup(id, len);
    if (!grown[*n])
        return -ENOMEM;
    ++*n;
    return 0;
}

void plugin_ids_free(char ***ids, size_t *n)
{
    for (size_t i = 0; i < *n; i++)
        free((*ids)[i]);
    free(*ids);
    *ids = NULL;
    *n = 0;
}

/* ---- waits ---------------------------------------------------------------------------------- */

void plugin_set_wait(int64_t *field, int64_t ms)
{
    if (ms >= 0)
        *field = ms < wait_max_ms ? ms : wait_max_ms;
}

/* Of two headers the longer wait; a date counts from the vendor's own clock if it tells it. */
void plugin_read_wait(const struct provider_reply *reply, int64_t now_unix_s, int64_t *field)
{
    int64_t now = now_unix_s, ms;

    for (size_t i = 0; i < reply->headers_count; i++) {
        const struct provider_header *h = &reply->headers[i];

        if (strcasecmp(h->name, "date") == 0)
            (void)http_date_parse(h->value, strlen(h->value), &now);
    }
    for (size_t i = 0; i < reply->headers_count; i++) {
        const struct provider_header *h = &reply->headers[i];

        if (strcasecmp(h->name, "retry-after") == 0 &&
            retry_after_parse(h->value, strlen(h->value), now, wait_max_ms, &ms) && ms > *field)
            *field = ms;
    }
}

/* ---- settings ------------------------------------------------------------------------------- */

static void host_refuse(struct provider_report *r, const char *setting, const char *why,
                        const char *cure)
{
    if (r->why)
        return;
    r->setting = strdup(setting ? setting : "");
    r->why = r->setting ? strdup(why ? why : "refused") : NULL;
    r->cure = cure ? strdup(cure) : NULL;
}

const struct provider_host plugin_host = {
    .size = sizeof(struct provider_host),
    .req_method = plugin_host_req_method,
    .req_url = plugin_host_req_url,
    .req_header = plugin_host_req_header,
    .req_body = plugin_host_req_body,
    .verdict = plugin_host_verdict,
    .verdict_id = plugin_host_verdict_id,
    .verdict_code = plugin_host_verdict_code,
    .verdict_detail = plugin_host_verdict_detail,
    .verdict_retry_after = plugin_host_verdict_retry_after,
    .verdict_opt_out = plugin_host_verdict_opt_out,
    .refuse = host_refuse,
    .req_sigv4 = plugin_host_req_sigv4,
    .verdict_part = plugin_host_verdict_part,
    .verdict_duplicate = plugin_host_verdict_duplicate,
    .verdict_login = plugin_host_verdict_login,
    .answer = plugin_host_answer,
    .answer_id = plugin_host_answer_id,
    .answer_more = plugin_host_answer_more,
    .answer_retry_after = plugin_host_answer_retry_after,
    .answer_code = plugin_host_answer_code,
    .answer_detail = plugin_host_answer_detail,
    .answer_login = plugin_host_answer_login,
    .grant_token = plugin_host_grant_token,
    .grant_refuse = plugin_host_grant_refuse,
    .receipt = plugin_host_receipt,
    .inbound = plugin_host_inbound,
    .callback_answer = plugin_host_callback_answer,
    .callback_confirm = plugin_host_callback_confirm,
};
