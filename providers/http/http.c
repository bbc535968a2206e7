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
    hp_template_done(&self->ask.url);
    hp_receipt_done(&self->receipt);
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

bool hp_sends(const struct hp_self *self, enum hp_field field)
{
    bool sends = hp_uses(&self->url, field) || hp_uses(&self->body, field);

    for (size_t i = 0; i < self->headers_count; i++)
        sends |= hp_uses(&self->headers[i].value, field);
    return sends;
}

static void describe_ask(const struct hp_ask *ask, struct provider_caps *ret)
{
    ret->ask = ask->kind;
    if (ask->kind == PROVIDER_ASK_NONE)
        return;
    ret->absence_proves = ask->absence_proves;
    ret->ask_delay_ms = ask->delay_ms;
    ret->ask_window_ms = ask->window_ms;
    ret->asks_per_minute = (uint32_t)ask->per_minute;
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
    if (hp_sends(self, HP_FIELD_RECIPIENT_DIGITS))
        ret->number = PROVIDER_NUMBER_DIGITS;
    if (hp_sends(self, HP_FIELD_VALIDITY_S))
        ret->validity = PROVIDER_VALIDITY_S;
    else if (hp_sends(self, HP_FIELD_EXPIRES_MS))
        ret->validity = PROVIDER_VALIDITY_ABSOLUTE;
    describe_ask(&self->ask, ret);
    if (!self->receipt.on)
        return;
    ret->receipts =
        self->receipt.scheme == HP_UNSIGNED ? PROVIDER_RECEIPTS_UNSIGNED : PROVIDER_RECEIPTS_SIGNED;
    ret->receipts_by_id = !self->receipt.ref && !hp_sends(self, HP_FIELD_CALLBACK_URL);
}

/* ---- build ---------------------------------------------------------------------------------- */

int hp_read_meta(const struct hp_self *self, const struct provider_msg *msg, json_t **ret)
{
    *ret = NULL;
    if (!msg->meta_json ||
        (!hp_sends(self, HP_FIELD_META) && !hp_uses(&self->ask.url, HP_FIELD_META)))
        return 0;
    *ret = json_loads(msg->meta_json, 0, NULL);
    if (json_is_object(*ret))
        return 0;
    json_decref(*ret);
    *ret = NULL;
    return -EINVAL;
}

int hp_build_url(const struct hp_self *self, const struct hp_template *url,
                 const struct hp_values *values, struct provider_req *req)
{
    struct hp_buf buf = {0};
    int r = hp_template_render(url, values, &buf);

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

/* A structured field's string (RFC 8941, 3.3.3); without quotes the key stands as it is. */
static int build_key(const struct hp_self *self, const char *name, const char *key,
                     struct provider_req *req)
{
    struct hp_buf buf = {0};
    int r;

    if (!name)
        return 0;
    if (!self->key_quoted)
        return self->host->req_header(req, name, key);
    hp_buf_add(&buf, "\"", 1);
    for (const char *p = key; *p; p++) {
        if (*p == '"' || *p == '\\')
            hp_buf_add(&buf, "\\", 1);
        hp_buf_add(&buf, p, 1);
    }
    hp_buf_add(&buf, "\"", 1);
    r = buf.error ? buf.error : self->host->req_header(req, name, buf.data);
    hp_buf_done(&buf);
    return r;
}

int hp_build_headers(const struct hp_self *self, const struct hp_values *values, bool asking,
                     struct provider_req *req)
{
    const struct provider_host *host = self->host;
    int r = 0;

    for (size_t i = 0; i < self->headers_count && r == 0; i++)
        if (!asking || !hp_uses(&self->headers[i].value, HP_FIELD_KEY))
            r = build_header(self, &self->headers[i], values, req);
    if (asking)
        return r; /* no body, and no key that could be taken for a repeat */
    if (r == 0 && self->content_type)
        r = host->req_header(req, "Content-Type", self->content_type);
    if (r == 0)
        r = build_key(self, self->dedup_header, values->msg->key, req);
    return r < 0 ? r : build_key(self, self->key_header, values->msg->key, req);
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
    int r = hp_read_meta(self, msg, &values.meta);

    if (r < 0)
        return r;
    r = self->host->req_method(req, self->method);
    if (r == 0)
        r = hp_build_url(self, &self->url, &values, req);
    if (r == 0)
        r = hp_build_headers(self, &values, false, req);
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

static int hp_ask_entry(const void *arg, const struct provider_question *q,
                        struct provider_req *req)
{
    return hp_ask(arg, q, req);
}

static int hp_ask_judge_entry(const void *arg, const struct provider_question *q,
                              const struct provider_reply *reply, struct provider_answer *answer)
{
    return hp_ask_judge(arg, q, reply, answer);
}

static int hp_receive_entry(const void *arg, const struct provider_callback *cb,
                            struct provider_events *out)
{
    return hp_receive(arg, cb, out);
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
        .ask = hp_ask_entry,
        .ask_judge = hp_ask_judge_entry,
        .receipt = hp_receive_entry,
    };

    return &provider;
}
