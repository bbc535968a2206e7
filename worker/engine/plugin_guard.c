/* The guard: what plugins may call, and what is believed of what they say. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "worker/core/clean.h"
#include "worker/core/err.h"
#include "worker/core/retry_after.h"
#include "worker/core/utf8.h"
#include "worker/engine/plugin.h"
#include "worker/engine/plugin_host.h"

enum {
    ID_MAX = 512,
    CODE_SIZE = 65,
    DETAIL_SIZE = 257,
    HEADERS_MAX = 64,
    METHOD_MAX = 32,
};

/* Longer waits than a week are a mistake; the engine caps much lower. */
static const int64_t retry_after_max_ms = INT64_C(7) * 24 * 3600 * 1000;

struct provider_req {
    struct plugin_request *out;
    int error; /* the first failure; a plugin that ignores it does not get away with it */
    char *why;
};

struct provider_verdict {
    struct plugin_verdict *out;
    unsigned calls;
    const char *fault;
};

/* ---- request -------------------------------------------------------------------------------- */

void plugin_request_clear(struct plugin_request *request)
{
    for (size_t i = 0; i < request->headers_count; i++) {
        free((char *)request->headers[i].name);
        free((char *)request->headers[i].value);
    }
    free(request->headers);
    free(request->method);
    free(request->url);
    free(request->body);
    *request = (struct plugin_request){0};
}

static int req_fail(struct provider_req *req, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int req_fail(struct provider_req *req, int code, const char *fmt, ...)
{
    va_list ap;

    if (req->error)
        return code;
    req->error = code;
    va_start(ap, fmt);
    if (vasprintf(&req->why, fmt, ap) < 0)
        req->why = NULL;
    va_end(ap);
    return code;
}

static int req_nomem(struct provider_req *req)
{
    if (!req->error)
        req->error = -ENOMEM;
    return -ENOMEM;
}

/* A token of RFC 9110 §5.6.2: methods and header names are made of these. */
static bool is_token(const char *s)
{
    size_t len = strlen(s);

    return len > 0 && strspn(s, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == len;
}

static int req_set(struct provider_req *req, char **field, const char *text, const char *what)
{
    if (*field)
        return req_fail(req, -EINVAL, "%s is set twice", what);
    *field = strdup(text);
    return *field ? 0 : req_nomem(req);
}

static int host_method(struct provider_req *req, const char *method)
{
    if (!method || !is_token(method) || strlen(method) > METHOD_MAX)
        return req_fail(req, -EINVAL, "the method is not one");
    return req_set(req, &req->out->method, method, "the method");
}

/* Only what a URL may hold after escaping: no blank, control or byte above ASCII, which
 * libcurl or a proxy might read in another way than it was meant. */
static int host_url(struct provider_req *req, const char *url)
{
    if (!url || (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0))
        return req_fail(req, -EINVAL, "the URL is not http or https");
    for (const char *p = url; *p; p++)
        if (*p <= ' ' || *p >= 0x7f || strchr("\"<>\\^`{|}", *p))
            return req_fail(req, -EINVAL, "the URL holds a byte that must be escaped (0x%02x)",
                            (unsigned char)*p);
    return req_set(req, &req->out->url, url, "the URL");
}

/* Framing and the connection are the worker's; and replies are read as they come. */
static bool is_workers_header(const char *name)
{
    static const char *const own[] = {
        "content-length", "transfer-encoding", "connection", "expect",         "te",
        "trailer",        "upgrade",           "keep-alive", "accept-encoding"};

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (strcasecmp(name, own[i]) == 0)
            return true;
    return false;
}

static bool is_header_value(const char *value)
{
    for (const unsigned char *p = (const unsigned char *)value; *p; p++)
        if ((*p < ' ' && *p != '\t') || *p == 0x7f)
            return false;
    return true;
}

static int host_header(struct provider_req *req, const char *name, const char *value)
{
    struct plugin_request *out = req->out;
    struct http_header *grown;

    if (!name || !is_token(name))
        return req_fail(req, -EINVAL, "a header's name is not one");
    if (is_workers_header(name))
        return req_fail(req, -EINVAL, "header \"%s\" is the worker's to set", name);
    if (!value || !is_header_value(value))
        return req_fail(req, -EINVAL, "header \"%s\": its value holds a line end or control byte",
                        name);
    if (out->headers_count == HEADERS_MAX)
        return req_fail(req, -E2BIG, "more than %d headers", HEADERS_MAX);
    grown = realloc(out->headers, (out->headers_count + 1) * sizeof(*grown));
    if (!grown)
        return req_nomem(req);
    out->headers = grown;
    grown += out->headers_count++;
    grown->name = strdup(name);
    grown->value = strdup(value);
    return grown->name && grown->value ? 0 : req_nomem(req);
}

static int host_body(struct provider_req *req, const char *data, size_t len)
{
    struct plugin_request *out = req->out;

    if (out->body)
        return req_fail(req, -EINVAL, "the body is set twice");
    if (!data && len > 0)
        return req_fail(req, -EINVAL, "the body is missing");
    out->body = malloc(len + 1);
    if (!out->body)
        return req_nomem(req);
    if (len > 0)
        memcpy(out->body, data, len);
    out->body[len] = '\0';
    out->body_len = len;
    return 0;
}

int plugin_build(const struct plugin *plugin, const struct provider_msg *msg,
                 struct plugin_request *request, struct err *err)
{
    struct provider_req req = {.out = request};
    int r;

    plugin_request_clear(request);
    r = plugin->api->build(plugin->self, msg, &req);
    if (req.error)
        r = req.error;
    else if (r > 0)
        r = req_fail(&req, -EINVAL, "build answered %d", r);
    else if (r < 0 && r != -ENOMEM)
        req_fail(&req, r, "cannot build a request: %s", strerror(-r));
    else if (r == 0 && !request->method)
        r = req_fail(&req, -EINVAL, "the request has no method");
    else if (r == 0 && !request->url)
        r = req_fail(&req, -EINVAL, "the request has no URL");
    if (r < 0) {
        plugin_request_clear(request);
        if (req.why)
            err_set(err, r, "plugin \"%s\": %s", plugin->name, req.why);
    }
    free(req.why);
    return r;
}

/* ---- verdict -------------------------------------------------------------------------------- */

static void verdict_reset(struct plugin_verdict *v)
{
    *v = (struct plugin_verdict){.outcome = PROVIDER_UNKNOWN, .retry_after_ms = -1};
}

void plugin_verdict_clear(struct plugin_verdict *verdict)
{
    free(verdict->id);
    free(verdict->code);
    free(verdict->detail);
    verdict_reset(verdict);
}

static void host_verdict(struct provider_verdict *v, enum provider_outcome outcome)
{
    if (v->calls++ > 0)
        v->fault = "it judged twice";
    else if ((unsigned)outcome >= PROVIDER_OUTCOME_MAX_)
        v->fault = "its verdict is out of range";
    else
        v->out->outcome = outcome;
}

/* An id is compared and looked up later: as it is, or not at all. */
static bool id_ok(const char *id, size_t len)
{
    uint32_t code;

    if (len == 0 || len > ID_MAX)
        return false;
    for (size_t at = 0; at < len;)
        if (utf8_next(id, len, &at, &code) < 0 || code < ' ' || (code >= 0x7f && code < 0xa0))
            return false;
    return true;
}

static int host_id(struct provider_verdict *v, const char *id, size_t len)
{
    char *copy;

    if (!id || !id_ok(id, len))
        return -EINVAL;
    copy = strndup(id, len);
    if (!copy)
        return -ENOMEM;
    free(v->out->id);
    v->out->id = copy;
    return 0;
}

static int set_clean(char **field, const char *text, size_t len, size_t size, unsigned flags)
{
    char buf[DETAIL_SIZE];
    char *copy;

    if (!text || len == 0)
        return 0;
    clean_text(buf, size, text, len, flags);
    copy = strdup(buf);
    if (!copy)
        return -ENOMEM;
    free(*field);
    *field = copy;
    return 0;
}

static int host_code(struct provider_verdict *v, const char *code, size_t len)
{
    return set_clean(&v->out->code, code, len, CODE_SIZE, 0);
}

/* Vendors like to repeat the number and the text: runs of digits are masked. */
static int host_detail(struct provider_verdict *v, const char *text, size_t len)
{
    return set_clean(&v->out->detail, text, len, DETAIL_SIZE, CLEAN_MASK_DIGITS);
}

static void host_retry_after(struct provider_verdict *v, int64_t ms)
{
    if (ms >= 0)
        v->out->retry_after_ms = ms < retry_after_max_ms ? ms : retry_after_max_ms;
}

static void host_opt_out(struct provider_verdict *v)
{
    v->out->opt_out = true;
}

static bool is_header(const struct provider_header *h, const char *name)
{
    return strcasecmp(h->name, name) == 0;
}

/* Of two headers the longer wait; a date counts from the vendor's own clock if it tells it. */
static void read_retry_after(const struct provider_reply *reply, int64_t now_unix_s,
                             struct plugin_verdict *v)
{
    int64_t now = now_unix_s, ms;

    for (size_t i = 0; i < reply->headers_count; i++)
        if (is_header(&reply->headers[i], "date"))
            (void)http_date_parse(reply->headers[i].value, strlen(reply->headers[i].value), &now);
    for (size_t i = 0; i < reply->headers_count; i++) {
        const struct provider_header *h = &reply->headers[i];

        if (is_header(h, "retry-after") &&
            retry_after_parse(h->value, strlen(h->value), now, retry_after_max_ms, &ms) &&
            ms > v->retry_after_ms)
            v->retry_after_ms = ms;
    }
}

/* R6: why the verdict proves less than it says, NULL if it does not. A plugin at fault and a
 * vendor's half answer both come here. */
static const char *unproven(const struct plugin *plugin, const struct provider_reply *reply,
                            const struct plugin_verdict *v)
{
    if (v->outcome == PROVIDER_UNKNOWN)
        return NULL;
    if (!reply->complete || reply->status < 200)
        return "the reply is not complete";
    if (v->outcome == PROVIDER_ACCEPTED && !v->id && !plugin->caps.answers_without_id)
        return "accepted without the vendor's id";
    return NULL;
}

static void make_unknown(struct plugin_verdict *v, const char *why)
{
    v->outcome = PROVIDER_UNKNOWN;
    if (!v->detail)
        set_clean(&v->detail, why, strlen(why), DETAIL_SIZE, 0);
}

static bool is_patient(enum provider_outcome outcome)
{
    return outcome == PROVIDER_THROTTLED || outcome == PROVIDER_HELD || outcome == PROVIDER_REFUSED;
}

void plugin_judge(const struct plugin *plugin, const struct provider_reply *reply,
                  int64_t now_unix_s, struct plugin_verdict *verdict)
{
    struct provider_verdict v = {.out = verdict};
    const char *why;
    int r;

    plugin_verdict_clear(verdict);
    r = plugin->api->judge(plugin->self, reply, &v);
    if (r == -ENOMEM)
        make_unknown(verdict, "out of memory while judging");
    else if (r != 0)
        v.fault = "judging failed";
    else if (v.calls == 0)
        v.fault = "it did not judge";
    verdict->fault = v.fault;
    why = v.fault ? v.fault : unproven(plugin, reply, verdict);
    if (why)
        make_unknown(verdict, why);
    if (verdict->outcome != PROVIDER_REJECTED)
        verdict->opt_out = false;
    if (is_patient(verdict->outcome) && verdict->retry_after_ms < 0)
        read_retry_after(reply, now_unix_s, verdict);
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
    .req_method = host_method,
    .req_url = host_url,
    .req_header = host_header,
    .req_body = host_body,
    .verdict = host_verdict,
    .verdict_id = host_id,
    .verdict_code = host_code,
    .verdict_detail = host_detail,
    .verdict_retry_after = host_retry_after,
    .verdict_opt_out = host_opt_out,
    .refuse = host_refuse,
};
