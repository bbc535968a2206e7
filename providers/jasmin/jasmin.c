/* Jasmin's HTTP API, /send. See README.md: no key, no look-up; an answer is an id in a queue. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/jasmin/jasmin.h"
#include "providers/kit/form.h"
#include "providers/kit/settings.h"
#include "providers/kit/when.h"
#include "worker/core/text.h"
#include "worker/core/utf8.h"

enum {
    CREDENTIAL_MAX = 30,
    VALIDITY_MAX_MIN = 7 * 24 * 60,
    PARTS_DEFAULT = 5, /* Jasmin's long_content_max_parts */
    PARTS_MAX = 255,
};

static void jasmin_close(void *arg)
{
    struct jasmin *self = arg;

    if (!self)
        return;
    free(self->url);
    free(self->username);
    free(self->password);
    free(self->from);
    free(self->tags);
    free(self);
}

/* ---- settings ------------------------------------------------------------------------------- */

static void check_credential(struct settings *s, const char *name, const char *value)
{
    if (value && strlen(value) > CREDENTIAL_MAX)
        settings_refuse(s, name, NULL, "Jasmin takes at most %d characters", CREDENTIAL_MAX);
}

/* Joined by commas, as Jasmin reads them. */
static void read_tags(struct jasmin *self, struct settings *s)
{
    char **list = settings_list(s, "tags");
    struct form f = {0};

    for (size_t i = 0; list && list[i]; i++) {
        if (!list[i][0] || strchr(list[i], ','))
            settings_refuse(s, "tags", NULL, "a tag is not empty and holds no comma");
        if (i > 0)
            form_raw(&f, ",");
        form_raw(&f, list[i]);
    }
    if (f.error)
        s->error = f.error;
    self->tags = f.text;
    settings_list_free(list);
}

static void read_url(struct jasmin *self, struct settings *s)
{
    char *root = settings_url(s, "url", "http://127.0.0.1:1401");
    struct form url = {0};

    if (root) {
        form_raw(&url, root);
        form_raw(&url, "/send");
    }
    if (url.error)
        s->error = url.error;
    self->url = url.text;
    free(root);
}

static int jasmin_open(const struct provider_host *host, const char *settings_json,
                       struct provider_report *report, void **ret_self)
{
    static const char *const no_route[] = {"rejected", "held", NULL};
    struct jasmin *self = calloc(1, sizeof(*self));
    struct settings s;
    int r;

    if (!self)
        return -ENOMEM;
    self->host = host;
    if (settings_begin(&s, host, settings_json, report) == 0) {
        read_url(self, &s);
        self->username = settings_text(&s, "username", NULL);
        self->password = settings_text(&s, "password", NULL);
        check_credential(&s, "username", self->username);
        check_credential(&s, "password", self->password);
        self->from = settings_text(&s, "from", "");
        read_tags(self, &s);
        self->dlr_level = settings_int(&s, "dlr_level", 3, 1, 3);
        self->max_parts = settings_int(&s, "max_parts", PARTS_DEFAULT, 1, PARTS_MAX);
        self->no_route_holds = settings_word(&s, "no_route", no_route, 0) == 1;
    }
    r = settings_end(&s);
    if (r < 0) {
        jasmin_close(self);
        return r;
    }
    *ret_self = self;
    return 0;
}

static void jasmin_describe(const void *arg, struct provider_caps *ret)
{
    (void)arg;
    ret->receipts = PROVIDER_RECEIPTS_UNSIGNED;
    ret->number = PROVIDER_NUMBER_DIGITS;
    ret->validity = PROVIDER_VALIDITY_MIN;
}

/* ---- build ---------------------------------------------------------------------------------- */

static void add_hex_unit(struct form *f, uint32_t unit)
{
    form_printf(f, "%04X", (unsigned)(unit & 0xffff));
}

/* UTF-16BE in hexadecimal. */
static int write_hex(struct form *f, const char *text, size_t len)
{
    uint32_t c;

    for (size_t at = 0; at < len;) {
        int r = utf8_next(text, len, &at, &c);

        if (r < 0)
            return r;
        if (c >= 0x10000) {
            add_hex_unit(f, 0xd800 + ((c - 0x10000) >> 10));
            c = 0xdc00 + ((c - 0x10000) & 0x3ff);
        }
        add_hex_unit(f, c);
    }
    return f->error;
}

/* With coding 0 Jasmin replaces what is not in GSM-7 without a word: then the text goes as UCS-2.
 */
static int add_text(struct form *f, const struct jasmin *self, const struct provider_msg *msg)
{
    struct form hex = {0};
    struct text_measure m;
    int r;

    if (text_measure(msg->body, msg->body_len, &m) < 0)
        return -EINVAL;
    if (m.segments == 0 || m.segments > (uint64_t)self->max_parts)
        return -EINVAL; /* it would refuse the one, and cut the other */
    if (m.alphabet == TEXT_GSM7) {
        form_add(f, "coding", "0");
        form_add_n(f, "content", msg->body, msg->body_len);
        return f->error;
    }
    r = write_hex(&hex, msg->body, msg->body_len);
    form_add(f, "coding", "8");
    form_add(f, "hex-content", hex.text);
    form_done(&hex);
    return r < 0 ? r : f->error;
}

static int write_body(struct form *f, const struct jasmin *self, const struct provider_msg *msg)
{
    int r;

    form_add(f, "username", self->username);
    form_add(f, "password", self->password);
    form_add(f, "to", msg->recipient + (msg->recipient[0] == '+'));
    form_add(f, "from", msg->sender ? msg->sender : self->from);
    r = add_text(f, self, msg);
    if (r < 0)
        return r;
    form_add_i64(f, "validity-period", when_validity(msg->validity_ms, 60000, 1, VALIDITY_MAX_MIN));
    form_add(f, "tags", self->tags);
    form_add(f, "dlr", msg->callback_url ? "yes" : "no");
    if (msg->callback_url) {
        form_add_i64(f, "dlr-level", self->dlr_level);
        form_add(f, "dlr-method", "POST");
        form_add(f, "dlr-url", msg->callback_url);
    }
    return f->error;
}

static int jasmin_build(const void *arg, const struct provider_msg *msg, struct provider_req *req)
{
    const struct jasmin *self = arg;
    const struct provider_host *host = self->host;
    struct form f = {0};
    int r = write_body(&f, self, msg);

    if (r == 0)
        r = host->req_method(req, "POST");
    if (r == 0)
        r = host->req_url(req, self->url);
    if (r == 0)
        r = host->req_header(req, "Content-Type", "application/x-www-form-urlencoded");
    if (r == 0)
        r = host->req_body(req, f.text, f.len);
    form_done(&f);
    return r;
}

static int jasmin_judge_entry(const void *arg, const struct provider_reply *reply,
                              struct provider_verdict *verdict)
{
    return jasmin_judge(arg, reply, verdict);
}

static int jasmin_receipt_entry(const void *arg, const struct provider_callback *cb,
                                struct provider_events *out)
{
    return jasmin_receipt(arg, cb, out);
}

__attribute__((visibility("default"))) const struct provider *provider_entry(void)
{
    static const struct provider provider = {
        .abi_major = PROVIDER_ABI_MAJOR,
        .abi_minor = PROVIDER_ABI_MINOR,
        .size = sizeof(struct provider),
        .name = "jasmin",
        .open = jasmin_open,
        .close = jasmin_close,
        .describe = jasmin_describe,
        .build = jasmin_build,
        .judge = jasmin_judge_entry,
        .receipt = jasmin_receipt_entry,
    };

    return &provider;
}
