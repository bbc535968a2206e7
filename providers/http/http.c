/* The generic HTTP plugin: any vendor that takes one message per request and answers in JSON
 * is described by settings. See README.md. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/http/http.h"

static void hp_close(void *arg)
{
    struct hp_self *self = arg;

    if (!self)
        return;
    for (size_t i = 0; i < self->headers_count; i++) {
        free(self->headers[i].name);
        hp_template_done(&self->headers[i].value);
    }
    free(self->headers);
    hp_template_done(&self->url);
    hp_template_done(&self->body);
    json_decref(self->settings);
    free(self);
}

static int hp_open(const struct provider_host *host, const char *settings_json,
                   struct provider_report *report, void **ret_self)
{
    struct hp_open open = {.host = host, .report = report};
    struct hp_self *self = calloc(1, sizeof(*self));
    json_error_t je;
    int r;

    if (!self)
        return -ENOMEM;
    self->host = host;
    self->settings = json_loads(settings_json, JSON_REJECT_DUPLICATES, &je);
    if (!json_is_object(self->settings))
        r = hp_refuse(&open, "", NULL, "must be a JSON object: %s",
                      self->settings ? "is something else" : je.text);
    else
        r = hp_settings_read(self, &open);
    if (r < 0) {
        hp_close(self);
        return r;
    }
    *ret_self = self;
    return 0;
}

static void hp_describe(const void *arg, struct provider_caps *ret)
{
    const struct hp_self *self = arg;

    if (self->dedup_window_ms > 0)
        ret->dedup = self->duplicate ? PROVIDER_DEDUP_REJECT : PROVIDER_DEDUP_REPLAY;
    ret->dedup_window_ms = self->dedup_window_ms;
    ret->worst_answer_ms = self->worst_answer_ms;
    /* A refused repeat often does not repeat the id. First answers are held to it by judge. */
    ret->answers_without_id = self->id_optional || self->duplicate;
}

/* ---- build ---------------------------------------------------------------------------------- */

static bool wants_meta(const struct hp_self *self)
{
    bool wants = self->url.has_meta || self->body.has_meta;

    for (size_t i = 0; i < self->headers_count; i++)
        wants |= self->headers[i].value.has_meta;
    return wants;
}

static int build_url(const struct hp_self *self, const struct hp_values *values,
                     struct provider_req *req)
{
    struct hp_buf buf = {0};
    int r = hp_template_render(&self->url, values, &buf);

    if (r == 0)
        r = self->host->req_url(req, buf.data);
    hp_buf_done(&buf);
    return r;
}

static int build_header(const struct hp_self *self, const struct hp_header *h,
                        const struct hp_values *values, struct provider_req *req)
{
    struct hp_buf buf = {0};
    int r;

    if (hp_template_missing(&h->value, values))
        return 0;
    r = hp_template_render(&h->value, values, &buf);
    if (r == 0 && memchr(buf.data, '\0', buf.len))
        r = -EINVAL; /* would be cut there */
    if (r == 0)
        r = self->host->req_header(req, h->name, buf.data);
    hp_buf_done(&buf);
    return r;
}

static int build_headers(const struct hp_self *self, const struct hp_values *values,
                         struct provider_req *req)
{
    const struct provider_host *host = self->host;
    int r = 0;

    for (size_t i = 0; i < self->headers_count && r == 0; i++)
        r = build_header(self, &self->headers[i], values, req);
    if (r == 0 && self->content_type)
        r = host->req_header(req, "Content-Type", self->content_type);
    if (r == 0 && self->dedup_header)
        r = host->req_header(req, self->dedup_header, values->msg->key);
    if (r == 0 && self->key_header)
        r = host->req_header(req, self->key_header, values->msg->key);
    return r;
}

static int build_body(const struct hp_self *self, const struct hp_values *values,
                      struct provider_req *req)
{
    struct hp_buf buf = {0};
    int r;

    if (!self->has_body)
        return 0;
    r = hp_template_render(&self->body, values, &buf);
    if (r == 0)
        r = self->host->req_body(req, buf.data, buf.len);
    hp_buf_done(&buf);
    return r;
}

static int hp_build(const void *arg, const struct provider_msg *msg, struct provider_req *req)
{
    const struct hp_self *self = arg;
    struct hp_values values = {.msg = msg};
    int r;

    if (msg->meta_json && wants_meta(self)) {
        values.meta = json_loads(msg->meta_json, 0, NULL);
        if (!json_is_object(values.meta)) {
            json_decref(values.meta);
            return -EINVAL;
        }
    }
    r = self->host->req_method(req, self->method);
    if (r == 0)
        r = build_url(self, &values, req);
    if (r == 0)
        r = build_headers(self, &values, req);
    if (r == 0)
        r = build_body(self, &values, req);
    json_decref(values.meta);
    return r;
}

static int hp_judge_entry(const void *arg, const struct provider_reply *reply,
                          struct provider_verdict *verdict)
{
    return hp_judge(arg, reply, verdict);
}

__attribute__((visibility("default"))) const struct provider *provider_entry(void)
{
    static const struct provider provider = {
        .abi_major = PROVIDER_ABI_MAJOR,
        .abi_minor = PROVIDER_ABI_MINOR,
        .size = sizeof(struct provider),
        .name = "http",
        .open = hp_open,
        .close = hp_close,
        .describe = hp_describe,
        .build = hp_build,
        .judge = hp_judge_entry,
    };

    return &provider;
}
