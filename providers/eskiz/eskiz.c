/* Eskiz.uz: settings, the request that sends, the login. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/eskiz/eskiz.h"
#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/request.h"
#include "providers/kit/sender.h"
#include "providers/kit/settings.h"
#include "providers/kit/sign.h"

/* ---- settings ------------------------------------------------------------------------------- */

static void ez_close(void *arg)
{
    struct ez_self *self = arg;

    if (!self)
        return;
    free(self->url);
    free(self->email);
    free(self->password);
    free(self->from);
    free(self);
}

static void read_settings(struct ez_self *self, struct settings *s)
{
    static const char *const lookups[] = {"window", "dispatch", NULL};
    static const char *const refusals[] = {"hold", "reject", NULL};

    self->url = settings_url(s, "url", "https://notify.eskiz.uz");
    self->email = settings_text(s, "email", NULL);
    self->password = settings_text(s, "password", NULL);
    self->from = settings_text(s, "from", "4546");
    self->by_dispatch = settings_word(s, "lookup", lookups, 0) == 1;
    self->ask_delay_ms = settings_int(s, "lookup_delay_s", 60, 0, 3600) * 1000;
    /* 100 rows of long Cyrillic texts stay within the 256 KiB the worker reads of an answer. */
    self->page_size = settings_int(s, "lookup_page", 100, 20, 200);
    self->absence_proves = settings_bool(s, "absence_proves", false);
    self->reject_text = settings_word(s, "unapproved_text", refusals, 0) == 1;
    if (self->from && sender_kind(self->from) == SENDER_BAD)
        (void)settings_refuse(s, "from", "your nickname at Eskiz, or 4546", "%s", SENDER_RULE);
}

static int ez_open(const struct provider_host *host, const char *settings_json,
                   struct provider_report *report, void **ret_self)
{
    struct ez_self *self = calloc(1, sizeof(*self));
    struct settings s;
    int r;

    if (!self)
        return -ENOMEM;
    self->host = host;
    r = settings_begin(&s, host, settings_json, report);
    if (r == 0)
        read_settings(self, &s);
    r = settings_end(&s);
    if (r < 0) {
        ez_close(self);
        return r;
    }
    *ret_self = self;
    return 0;
}

static void ez_describe(const void *arg, struct provider_caps *ret)
{
    const struct ez_self *self = arg;

    ret->ask = PROVIDER_ASK_BY_KEY;
    ret->absence_proves = self->absence_proves;
    ret->ask_delay_ms = self->ask_delay_ms;
    ret->receipts = PROVIDER_RECEIPTS_UNSIGNED;
    ret->number = PROVIDER_NUMBER_DIGITS;
}

/* ---- build ---------------------------------------------------------------------------------- */

int64_t ez_dispatch_id(const char *message_id)
{
    uint32_t hash = 2166136261u; /* FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv/ */

    for (const char *p = message_id; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    hash &= 0x7fffffffu;
    return hash ? (int64_t)hash : 1;
}

int ez_post(const struct ez_self *self, struct provider_req *req, const char *path,
            const char *token, const char *type, const struct form *body)
{
    char *bearer = token ? request_bearer(token) : NULL;
    struct form url = {0};
    int r = body->error;

    form_printf(&url, "%s%s", self->url, path);
    if (r == 0)
        r = token && !bearer ? -ENOMEM : url.error;
    if (r == 0)
        r = request_post(self->host, req, url.text, bearer, type, body->text, body->len);
    form_done(&url);
    free(bearer);
    return r;
}

/* The vendor wants the number as a JSON number, without the plus. */
static json_t *number_of(const char *recipient)
{
    const char *digits = recipient + (*recipient == '+');
    size_t len = strlen(digits);

    if (len == 0 || len > 15 || strspn(digits, "0123456789") != len)
        return NULL;
    return json_integer(strtoll(digits, NULL, 10));
}

/* NULL: out of memory, or a text that is not UTF-8. Members in this order, always. */
static json_t *body_of(const struct ez_self *self, const struct provider_msg *msg)
{
    json_auto_t *body = json_object();
    json_t *entry = json_object(), *list = json_array();
    int bad = 0;

    bad |= json_object_set_new(entry, "user_sms_id", json_string(msg->id));
    bad |= json_object_set_new(entry, "to", number_of(msg->recipient));
    bad |= json_object_set_new(entry, "text", json_stringn(msg->body, msg->body_len));
    bad |= json_object_set_new(body, "from", json_string(msg->sender ? msg->sender : self->from));
    if (self->by_dispatch)
        bad |= json_object_set_new(body, "dispatch_id", json_integer(ez_dispatch_id(msg->id)));
    if (msg->callback_url)
        bad |= json_object_set_new(body, "callback_url", json_string(msg->callback_url));
    bad |= json_array_append_new(list, entry);
    bad |= json_object_set_new(body, "messages", list);
    return bad ? NULL : json_incref(body);
}

static int ez_build(const void *arg, const struct provider_msg *msg, struct provider_req *req)
{
    const struct ez_self *self = arg;
    json_auto_t *body = NULL;
    struct form text = {0};
    int r;

    if (!msg->token || (msg->sender && sender_kind(msg->sender) == SENDER_BAD))
        return -EINVAL;
    body = body_of(self, msg);
    if (!body)
        return -EINVAL;
    text.text = json_text(body);
    if (!text.text)
        return -ENOMEM;
    text.len = strlen(text.text);
    r = ez_post(self, req, "/api/message/sms/send-batch", msg->token, "application/json", &text);
    form_done(&text);
    return r;
}

/* ---- login ---------------------------------------------------------------------------------- */

static int ez_login(const void *arg, int64_t now_ms, struct provider_req *req,
                    struct provider_grant *grant)
{
    const struct ez_self *self = arg;
    struct form body = {0};
    int r;

    (void)now_ms;
    (void)grant;
    form_add(&body, "email", self->email);
    form_add(&body, "password", self->password);
    r = ez_post(self, req, "/api/auth/login", NULL, EZ_FORM, &body);
    form_done(&body);
    return r;
}

/* The token says itself how long it lives; documented are 30 days. */
static int64_t lifetime_ms(const char *token, size_t len)
{
    const int64_t documented_s = INT64_C(30) * 24 * 3600;
    json_auto_t *claims = sign_jwt_claims_untrusted(token, len);
    int64_t from, to;

    if (!claims || !json_i64_at(claims, "iat", &from) || !json_i64_at(claims, "exp", &to))
        return documented_s * 1000;
    if (from <= 0 || to <= from || to - from > documented_s)
        return documented_s * 1000;
    return (to - from) * 1000;
}

static int ez_login_judge(const void *arg, const struct provider_reply *reply,
                          struct provider_grant *grant)
{
    const struct ez_self *self = arg;
    json_auto_t *body = NULL;
    const char *token;

    if (!reply->complete || !(body = json_body(reply->body, reply->body_len)))
        return 0;
    token = json_text_at(body, "data/token");
    if (reply->status == 200 && token && *token)
        return self->host->grant_token(grant, token, strlen(token),
                                       lifetime_ms(token, strlen(token)));
    /* A refusal is the vendor's own word about us; a busy or broken vendor is asked again. */
    if (json_path(body, "message") && (reply->status == 400 || reply->status == 401 ||
                                       reply->status == 403 || reply->status == 422))
        self->host->grant_refuse(grant, json_text_at(body, "status"),
                                 json_text_at(body, "message"));
    return 0;
}

__attribute__((visibility("default"))) const struct provider *provider_entry(void)
{
    static const struct provider provider = {
        .abi_major = PROVIDER_ABI_MAJOR,
        .abi_minor = PROVIDER_ABI_MINOR,
        .size = sizeof(struct provider),
        .name = "eskiz",
        .open = ez_open,
        .close = ez_close,
        .describe = ez_describe,
        .build = ez_build,
        .judge = ez_judge,
        .ask = ez_ask,
        .ask_judge = ez_ask_judge,
        .login = ez_login,
        .login_judge = ez_login_judge,
        .receipt = ez_receipt,
    };

    return &provider;
}
