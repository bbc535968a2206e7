/* The SMS API: form in, JSON out, and errors inside a 200. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/request.h"
#include "providers/kit/verdict.h"
#include "providers/kit/when.h"
#include "providers/vonage/vonage.h"
#include "worker/core/text.h"

/* ---- build ---------------------------------------------------------------------------------- */

/* The vendor does not look: a text sent as "text" that GSM-7 cannot write arrives as ???. */
static int fill(const struct vonage *v, const struct provider_msg *msg, struct form *body)
{
    const char *sender = vonage_sender(v, msg);
    struct text_measure measure;

    if (!sender)
        return -EINVAL;
    if (text_measure(msg->body, msg->body_len, &measure) < 0)
        return -EILSEQ;
    if (v->auth == VONAGE_AUTH_BODY) {
        form_add(body, "api_key", v->api_key);
        form_add(body, "api_secret", v->api_secret);
    }
    form_add(body, "from", sender);
    form_add(body, "to", msg->recipient + (*msg->recipient == '+'));
    form_add_n(body, "text", msg->body, msg->body_len);
    form_add(body, "type", measure.alphabet == TEXT_GSM7 ? "text" : "unicode");
    form_add_i64(body, "ttl", when_validity(msg->validity_ms, 1, 20000, 604800000));
    form_add(body, "client-ref", msg->id);
    form_add(body, "callback", msg->callback_url);
    return body->error;
}

int vonage_sms_build(const struct vonage *v, const struct provider_msg *msg,
                     struct provider_req *req)
{
    struct form body = {0}, url = {0};
    int r = fill(v, msg, &body);

    form_printf(&url, "%s/sms/json", v->url);
    if (r == 0)
        r = url.error;
    if (r == 0)
        r = request_post(v->host, req, url.text, v->auth == VONAGE_AUTH_BASIC ? v->basic : NULL,
                         "application/x-www-form-urlencoded", body.text, body.len);
    form_done(&body);
    form_done(&url);
    return r;
}

/* ---- judge ---------------------------------------------------------------------------------- */

/* messages[].status. "Non-zero means not queued" (troubleshooting guide): a number that is not
 * here may work later. */
static const struct verdict_row rows[] = {
    {"1", 0, PROVIDER_THROTTLED, VERDICT_PLAIN},
    {"10", 0, PROVIDER_THROTTLED, VERDICT_PLAIN}, /* too many binds */
    {"3", 0, PROVIDER_REJECTED, VERDICT_PLAIN},   /* bad parameter */
    {"6", 0, PROVIDER_REJECTED, VERDICT_PLAIN},   /* no route, unknown prefix */
    {"7", 0, PROVIDER_REJECTED, VERDICT_PLAIN},   /* number barred */
    {"12", 0, PROVIDER_REJECTED, VERDICT_PLAIN},  /* too long */
    {"17", 0, PROVIDER_REJECTED, VERDICT_PLAIN},  /* blocked by provider */
    {"22", 0, PROVIDER_REJECTED, VERDICT_PLAIN},  /* network code */
    {"33", 0, PROVIDER_REJECTED, VERDICT_PLAIN},  /* number deactivated */
    {"2", 0, PROVIDER_HELD, VERDICT_PLAIN},       /* missing parameter */
    {"4", 0, PROVIDER_HELD, VERDICT_PLAIN},       /* credentials */
    {"8", 0, PROVIDER_HELD, VERDICT_PLAIN},       /* account barred */
    {"9", 0, PROVIDER_HELD, VERDICT_PLAIN},       /* no credit */
    {"11", 0, PROVIDER_HELD, VERDICT_PLAIN},      /* not enabled for HTTP */
    {"14", 0, PROVIDER_HELD, VERDICT_PLAIN},      /* signature */
    {"15", 0, PROVIDER_HELD, VERDICT_PLAIN},      /* sender */
    {"23", 0, PROVIDER_HELD, VERDICT_PLAIN},      /* callback URL */
    {"29", 0, PROVIDER_HELD, VERDICT_PLAIN},      /* demo account */
    {"32", 0, PROVIDER_HELD, VERDICT_PLAIN},      /* signed and with a secret */
    {"5", 0, PROVIDER_REFUSED, VERDICT_PLAIN},    /* internal error */
    {NULL, 0, PROVIDER_REFUSED, VERDICT_PLAIN},
};

static const struct verdict_row unknown = {.outcome = PROVIDER_UNKNOWN};

/* "Throughput Rate Exceeded - please wait [ 978 ] and retry": milliseconds. -1: none. */
static int64_t wait_of(const char *text)
{
    const char *at = text ? strchr(text, '[') : NULL;
    int64_t ms = 0;
    int digits = 0;

    if (!at)
        return -1;
    for (at++; *at == ' '; at++)
        ;
    for (; *at >= '0' && *at <= '9' && digits < 9; at++, digits++)
        ms = ms * 10 + (*at - '0');
    return digits > 0 && (*at == ' ' || *at == ']') ? ms : -1;
}

/* One element a part, each with a fate of its own. */
struct parts {
    size_t all, taken;
    const json_t *failed; /* the first that was not taken */
    bool broken;          /* one without a status, or taken without an id */
};

static const char *part_id(const json_t *part)
{
    const char *status = json_text_at(part, "status"), *id = json_text_at(part, "message-id");

    return status && strcmp(status, "0") == 0 && id && *id ? id : NULL;
}

static struct parts count_parts(const json_t *messages)
{
    struct parts p = {.all = json_array_size(messages)};
    const json_t *part;
    const char *status;
    size_t i;

    json_array_foreach (messages, i, part) {
        status = json_text_at(part, "status");
        if (part_id(part))
            p.taken++;
        else if (!status || !*status || strspn(status, "0123456789") != strlen(status) ||
                 strcmp(status, "0") == 0)
            p.broken = true;
        else if (!p.failed)
            p.failed = part;
    }
    return p;
}

/* Any part taken: the vendor works on it, and a resend would double what it took. */
static int say_taken(const struct vonage *v, const json_t *messages, const struct parts *p,
                     struct provider_verdict *verdict)
{
    const char *code = json_text_at(p->failed, "status"), *id;
    struct form detail = {0};
    const json_t *part;
    size_t i, n = 0;
    int r = 0;

    v->host->verdict(verdict, PROVIDER_ACCEPTED);
    json_array_foreach (messages, i, part) {
        if (r < 0 || !(id = part_id(part)))
            continue;
        if (n++ == 0)
            r = v->host->verdict_id(verdict, id, strlen(id));
        if (r == 0 && p->taken > 1)
            r = v->host->verdict_part(verdict, id, strlen(id));
    }
    if (r == 0 && p->taken < p->all) {
        form_printf(&detail, "%zu of %zu parts accepted", p->taken, p->all);
        if (code)
            form_printf(&detail, ", the first failure: status %s", code);
        r = detail.error ? detail.error : v->host->verdict_detail(verdict, detail.text, detail.len);
        form_done(&detail);
        if (r == 0 && code)
            r = v->host->verdict_code(verdict, code, strlen(code));
    }
    return r;
}

int vonage_sms_judge(const struct vonage *v, const struct provider_reply *reply, const json_t *body,
                     struct provider_verdict *verdict)
{
    const json_t *messages = json_object_get(body, "messages");
    struct parts p = count_parts(messages);
    const struct verdict_row by_status = {.outcome = verdict_of_status(reply->status)};
    const char *code, *text;
    int64_t wait;
    int r;

    if (p.all == 0 || reply->status >= 500 || reply->status < 200)
        return verdict_say(v->host, verdict, &by_status, vonage_problem(body),
                           vonage_problem(body) ? json_text_at(body, "detail")
                                                : "not an answer of Vonage's");
    if (p.taken > 0 && reply->status / 100 == 2)
        return say_taken(v, messages, &p, verdict);
    if (p.broken || p.taken > 0 || !p.failed)
        return verdict_say(v->host, verdict, &unknown, NULL, "not an answer of Vonage's");
    code = json_text_at(p.failed, "status");
    text = json_text_at(p.failed, "error-text");
    r = verdict_say(v->host, verdict,
                    verdict_find(rows, sizeof(rows) / sizeof(*rows), reply->status, code), code,
                    text);
    if (r == 0 && strcmp(code, "1") == 0 && (wait = wait_of(text)) >= 0)
        v->host->verdict_retry_after(verdict, wait);
    return r;
}
