/* Kannel's smsbox, `sendsms`. See README.md: no key, no look-up, no message id; receipts come back
 * to a URL that carries our id. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kannel/kannel.h"
#include "providers/kit/form.h"
#include "providers/kit/settings.h"
#include "providers/kit/when.h"
#include "worker/core/text.h"

enum {
    DLR_ALL = 31,
    VALIDITY_MAX_MIN = 7 * 24 * 60,
    PARTS_DEFAULT = 10, /* smsbox's own max-messages */
    PARTS_MAX = 255,    /* what a concatenation header can number */
};

static void kannel_close(void *arg)
{
    struct kannel *self = arg;

    if (!self)
        return;
    free(self->url);
    free(self->username);
    free(self->password);
    free(self->from);
    free(self->smsc);
    free(self->account);
    free(self);
}

/* ---- settings ------------------------------------------------------------------------------- */

static void read_url(struct kannel *self, struct settings *s)
{
    char *root = settings_url(s, "url", "http://127.0.0.1:13013");
    char *path = settings_text(s, "path", "/cgi-bin/sendsms");
    struct form url = {0};

    if (path && (path[0] != '/' || strpbrk(path, "?# %")))
        settings_refuse(s, "path", "write it as smsbox's sendsms-url, such as /cgi-bin/sendsms",
                        "must begin with / and hold no ?, #, %% or blank");
    if (root && path) {
        form_raw(&url, root);
        form_raw(&url, path);
    }
    if (url.error)
        s->error = url.error;
    self->url = url.text;
    free(root);
    free(path);
}

static int kannel_open(const struct provider_host *host, const char *settings_json,
                       struct provider_report *report, void **ret_self)
{
    static const char *const methods[] = {"POST", "GET", NULL};
    struct kannel *self = calloc(1, sizeof(*self));
    struct settings s;
    int r;

    if (!self)
        return -ENOMEM;
    self->host = host;
    if (settings_begin(&s, host, settings_json, report) == 0) {
        read_url(self, &s);
        self->username = settings_text(&s, "username", NULL);
        self->password = settings_text(&s, "password", NULL);
        self->from = settings_text(&s, "from", "");
        self->smsc = settings_text(&s, "smsc", "");
        self->account = settings_text(&s, "account", "");
        self->get = settings_word(&s, "method", methods, 0) == 1;
        self->plus = settings_bool(&s, "plus", true);
        self->dlr_mask = settings_int(&s, "dlr_mask", DLR_ALL, 1, DLR_ALL);
        self->max_parts = settings_int(&s, "max_parts", PARTS_DEFAULT, 1, PARTS_MAX);
    }
    r = settings_end(&s);
    if (r < 0) {
        kannel_close(self);
        return r;
    }
    *ret_self = self;
    return 0;
}

static void kannel_describe(const void *arg, struct provider_caps *ret)
{
    const struct kannel *self = arg;

    ret->answers_without_id = true;
    ret->receipts = PROVIDER_RECEIPTS_UNSIGNED;
    ret->number = self->plus ? PROVIDER_NUMBER_PLUS : PROVIDER_NUMBER_DIGITS;
    ret->validity = PROVIDER_VALIDITY_MIN;
}

/* ---- build ---------------------------------------------------------------------------------- */

/* One message in smsbox's words. Texts that were made here are owned. */
struct request {
    const char *to, *from, *coding, *account;
    char validity[24], mask[24];
    struct form dlr_url;
};

/* smsbox puts the event, the network's words and its id in place of the escapes. It looks for them
 * in the whole URL, so a % of ours is doubled. */
static void write_dlr_url(struct form *f, const char *callback_url)
{
    for (const char *p = callback_url; *p; p++)
        form_printf(f, *p == '%' ? "%c%c" : "%c", *p, *p);
    form_raw(f, strchr(callback_url, '?') ? "&" : "?");
    form_raw(f, "d=%d&a=%A&f=%F");
}

static int prepare(const struct kannel *self, const struct provider_msg *msg, struct request *q)
{
    struct text_measure m;

    if (text_measure(msg->body, msg->body_len, &m) < 0)
        return -EINVAL;
    /* smsbox would send words of its own for an empty text, and cut a long one: both "Accepted". */
    if (m.segments == 0 || m.segments > (uint64_t)self->max_parts)
        return -EINVAL;
    q->to = msg->recipient + (self->plus ? 0 : msg->recipient[0] == '+');
    q->from = msg->sender ? msg->sender : self->from;
    q->coding = m.alphabet == TEXT_GSM7 ? "0" : "2";
    /* Shown in the access logs of both boxes: how an operator finds a message in doubt. */
    q->account = self->account ? self->account : msg->id;
    snprintf(q->validity, sizeof(q->validity), "%lld",
             (long long)when_validity(msg->validity_ms, 60000, 1, VALIDITY_MAX_MIN));
    if (!msg->callback_url)
        return 0;
    snprintf(q->mask, sizeof(q->mask), "%lld", (long long)self->dlr_mask);
    write_dlr_url(&q->dlr_url, msg->callback_url);
    return q->dlr_url.error;
}

static int build_get(const struct kannel *self, const struct provider_msg *msg,
                     const struct request *q, struct provider_req *req)
{
    struct form url = {0};
    int r;

    form_raw(&url, self->url);
    form_raw(&url, "?");
    form_add(&url, "username", self->username);
    form_add(&url, "password", self->password);
    form_add(&url, "from", q->from);
    form_add(&url, "to", q->to);
    form_add_n(&url, "text", msg->body, msg->body_len);
    form_add(&url, "coding", q->coding);
    form_add(&url, "charset", "UTF-8");
    form_add(&url, "validity", q->validity);
    form_add(&url, "smsc", self->smsc);
    form_add(&url, "account", q->account);
    form_add(&url, "dlr-mask", q->dlr_url.text ? q->mask : NULL);
    form_add(&url, "dlr-url", q->dlr_url.text);
    r = url.error;
    if (r == 0)
        r = self->host->req_method(req, "GET");
    if (r == 0)
        r = self->host->req_url(req, url.text);
    form_done(&url);
    return r;
}

/* smsbox knows no form: the text is the body, all else stands in headers. */
static int build_post(const struct kannel *self, const struct provider_msg *msg,
                      const struct request *q, struct provider_req *req)
{
    const struct provider_host *host = self->host;
    const struct provider_header headers[] = {
        {"Content-Type", "text/plain; charset=UTF-8"},
        {"X-Kannel-Username", self->username},
        {"X-Kannel-Password", self->password},
        {"X-Kannel-From", q->from},
        {"X-Kannel-To", q->to},
        {"X-Kannel-Coding", q->coding},
        {"X-Kannel-Validity", q->validity},
        {"X-Kannel-SMSC", self->smsc},
        {"X-Kannel-Account", q->account},
        {"X-Kannel-DLR-Mask", q->dlr_url.text ? q->mask : NULL},
        {"X-Kannel-DLR-Url", q->dlr_url.text},
    };
    int r = host->req_method(req, "POST");

    if (r == 0)
        r = host->req_url(req, self->url);
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]) && r == 0; i++)
        if (headers[i].value)
            r = host->req_header(req, headers[i].name, headers[i].value);
    return r < 0 ? r : host->req_body(req, msg->body, msg->body_len);
}

static int kannel_build(const void *arg, const struct provider_msg *msg, struct provider_req *req)
{
    const struct kannel *self = arg;
    struct request q = {0};
    int r = prepare(self, msg, &q);

    if (r == 0)
        r = self->get ? build_get(self, msg, &q, req) : build_post(self, msg, &q, req);
    form_done(&q.dlr_url);
    return r;
}

static int kannel_judge_entry(const void *arg, const struct provider_reply *reply,
                              struct provider_verdict *verdict)
{
    return kannel_judge(arg, reply, verdict);
}

static int kannel_receipt_entry(const void *arg, const struct provider_callback *cb,
                                struct provider_events *out)
{
    return kannel_receipt(arg, cb, out);
}

__attribute__((visibility("default"))) const struct provider *provider_entry(void)
{
    static const struct provider provider = {
        .abi_major = PROVIDER_ABI_MAJOR,
        .abi_minor = PROVIDER_ABI_MINOR,
        .size = sizeof(struct provider),
        .name = "kannel",
        .open = kannel_open,
        .close = kannel_close,
        .describe = kannel_describe,
        .build = kannel_build,
        .judge = kannel_judge_entry,
        .receipt = kannel_receipt_entry,
    };

    return &provider;
}
