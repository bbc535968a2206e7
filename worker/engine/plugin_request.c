/* Requests: what could break framing, or go elsewhere than http, is refused before it leaves. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "worker/core/err.h"
#include "worker/engine/plugin_host.h"

enum {
    HEADERS_MAX = 64,
    METHOD_MAX = 32,
};

static const char session_header[] = "x-amz-security-token";

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
    free(request->sigv4);
    free(request->sigv4_userpwd);
    free(request->sigv4_session);
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

static int req_set(struct provider_req *req, char **field, const char *text, const char *what)
{
    if (*field)
        return req_fail(req, -EINVAL, "%s is set twice", what);
    *field = strdup(text);
    return *field ? 0 : req_nomem(req);
}

int plugin_host_req_method(struct provider_req *req, const char *method)
{
    if (!method || !plugin_is_token(method) || strlen(method) > METHOD_MAX)
        return req_fail(req, -EINVAL, "the method is not one");
    return req_set(req, &req->out->method, method, "the method");
}

int plugin_host_req_url(struct provider_req *req, const char *url)
{
    if (!url || (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0))
        return req_fail(req, -EINVAL, "the URL is not http or https");
    if (!plugin_is_url(url))
        return req_fail(req, -EINVAL, "the URL holds a byte that must be escaped");
    return req_set(req, &req->out->url, url, "the URL");
}

static bool is_one_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return false;
}

/* Framing and the connection are the worker's; and replies are read as they come. */
static bool is_workers_header(const char *name)
{
    static const char *const own[] = {
        "content-length", "transfer-encoding", "connection", "expect",         "te",
        "trailer",        "upgrade",           "keep-alive", "accept-encoding"};

    return is_one_of(name, own, sizeof(own) / sizeof(own[0]));
}

static int add_header(struct provider_req *req, const char *name, const char *value)
{
    struct plugin_request *out = req->out;
    struct http_header *grown;

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

int plugin_host_req_header(struct provider_req *req, const char *name, const char *value)
{
    if (!name || !plugin_is_token(name))
        return req_fail(req, -EINVAL, "a header's name is not one");
    if (is_workers_header(name))
        return req_fail(req, -EINVAL, "header \"%s\" is the worker's to set", name);
    if (!value || !plugin_is_header_value(value))
        return req_fail(req, -EINVAL, "header \"%s\": its value holds a line end or control byte",
                        name);
    return add_header(req, name, value);
}

int plugin_host_req_body(struct provider_req *req, const char *data, size_t len)
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

/* ---- AWS ------------------------------------------------------------------------------------ */

/* Regions and services: what may stand between the colons of libcurl's option. */
static bool is_aws_name(const char *s)
{
    return s && *s && s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-")] == '\0';
}

int plugin_host_req_sigv4(struct provider_req *req, const char *region, const char *service,
                          const char *access_key, const char *secret_key, const char *session)
{
    struct plugin_request *out = req->out;

    if (out->sigv4)
        return req_fail(req, -EINVAL, "the request is signed twice");
    if (!is_aws_name(region) || !is_aws_name(service))
        return req_fail(req, -EINVAL, "region or service of the signature is not one");
    /* A colon would end the key where it does not. */
    if (!access_key || !*access_key || strchr(access_key, ':') ||
        !plugin_is_header_value(access_key) || !secret_key || !*secret_key ||
        !plugin_is_header_value(secret_key))
        return req_fail(req, -EINVAL, "the keys of the signature are not ones");
    if (session && (!*session || !plugin_is_header_value(session)))
        return req_fail(req, -EINVAL, "the session token of the signature is not one");
    if (asprintf(&out->sigv4, "aws:amz:%s:%s", region, service) < 0)
        out->sigv4 = NULL;
    if (asprintf(&out->sigv4_userpwd, "%s:%s", access_key, secret_key) < 0)
        out->sigv4_userpwd = NULL;
    out->sigv4_session = session ? strdup(session) : NULL;
    return out->sigv4 && out->sigv4_userpwd && (!session || out->sigv4_session) ? 0
                                                                                : req_nomem(req);
}

/* The session token is a header like any other, and signed with them. */
static int end_sigv4(struct provider_req *req)
{
    static const char *const signers[] = {"authorization", "host", "x-amz-date",
                                          "x-amz-content-sha256", session_header};
    struct plugin_request *out = req->out;
    bool typed = !out->body;

    if (!out->sigv4)
        return 0;
    for (size_t i = 0; i < out->headers_count; i++) {
        const char *name = out->headers[i].name;

        if (is_one_of(name, signers, sizeof(signers) / sizeof(signers[0])))
            return req_fail(req, -EINVAL, "header \"%s\" is the signature's to set", name);
        typed = typed || strcasecmp(name, "content-type") == 0;
    }
    if (!typed)
        return req_fail(req, -EINVAL, "a signed body has no Content-Type");
    return out->sigv4_session ? add_header(req, session_header, out->sigv4_session) : 0;
}

/* ---- building ------------------------------------------------------------------------------- */

int plugin_req_end(const struct plugin *plugin, struct provider_req *req, int r, const char *what,
                   struct err *err)
{
    struct plugin_request *out = req->out;

    if (req->error)
        r = req->error;
    else if (r > 0)
        r = req_fail(req, -EINVAL, "%s answered %d", what, r);
    else if (r < 0 && r != -ENOMEM)
        req_fail(req, r, "cannot %s a request: %s", what, strerror(-r));
    else if (r == 0 && !out->method)
        r = req_fail(req, -EINVAL, "the request has no method");
    else if (r == 0 && !out->url)
        r = req_fail(req, -EINVAL, "the request has no URL");
    else if (r == 0)
        r = end_sigv4(req);
    if (r < 0) {
        plugin_request_clear(out);
        if (req->why)
            err_set(err, r, "plugin \"%s\": %s", plugin->name, req->why);
    }
    free(req->why);
    req->why = NULL;
    return r;
}

int plugin_build(const struct plugin *plugin, const struct provider_msg *msg,
                 struct plugin_request *request, struct err *err)
{
    struct provider_req req = {.out = request};

    plugin_request_clear(request);
    return plugin_req_end(plugin, &req, plugin->api->build(plugin->self, msg, &req), "build", err);
}
