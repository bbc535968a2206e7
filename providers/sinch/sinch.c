/* Sinch, SMS API (XMS batches). See README.md. */
#include "providers/sinch/sinch.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/json.h"
#include "providers/kit/request.h"
#include "providers/kit/sender.h"
#include "providers/kit/settings.h"
#include "providers/kit/verdict.h"
#include "providers/kit/when.h"

/* The longest life of a batch, and the one it gets without expire_at. */
static const int64_t expire_max_ms = INT64_C(3) * 86400 * 1000;

/* ---- settings ------------------------------------------------------------------------------- */

/* What stands in a URL must not change it. */
static bool is_plain(const char *text)
{
    return text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")] ==
           '\0';
}

/* The root of the API: `url`, or the region's host for this kind of credentials. */
static char *root_of(struct settings *s, bool by_token)
{
    static const char *const regions[] = {"us", "eu", "au", "br", "ca", NULL};
    const char *region = regions[settings_word(s, "region", regions, 0)];
    char *url = settings_url(s, "url", "");

    if (!url && !s->error &&
        asprintf(&url, "https://%s%s.sms.api.sinch.com", by_token ? "" : "zt.", region) < 0)
        return NULL;
    return url;
}

static int set_batches_url(struct sinch *self, struct settings *s, const char *name, char *plan)
{
    char *root = root_of(s, self->api_token != NULL);
    int r = s->error;

    if (r == 0 && !is_plain(plan))
        r = settings_refuse(s, name, NULL, "holds more than letters, digits, - and _");
    if (r == 0 && (!root || asprintf(&self->batches_url, "%s/xms/v1/%s/batches", root, plan) < 0)) {
        self->batches_url = NULL;
        r = -ENOMEM;
    }
    free(root);
    return r;
}

/* One token for a service plan. */
static int read_plan(struct sinch *self, struct settings *s)
{
    char *plan = settings_text(s, "service_plan_id", NULL);
    int r;

    if (settings_has(s, "key_id") || settings_has(s, "key_secret") || settings_has(s, "project_id"))
        settings_refuse(s, "api_token", "leave it out, or key_id, key_secret and project_id",
                        "stands beside the credentials of a project");
    r = set_batches_url(self, s, "service_plan_id", plan);
    free(plan);
    return r;
}

/* A project's key: OAuth2 client credentials. */
static int read_project(struct sinch *self, struct settings *s)
{
    char *auth_url = settings_url(s, "auth_url", "https://auth.sinch.com");
    char *project = settings_text(s, "project_id", NULL);
    char *id = settings_text(s, "key_id", NULL), *secret = settings_text(s, "key_secret", NULL);
    int r;

    if (settings_has(s, "service_plan_id"))
        settings_refuse(s, "service_plan_id", "write api_token too, or project_id instead",
                        "belongs to an api_token");
    r = set_batches_url(self, s, "project_id", project);
    if (r == 0) {
        self->basic = request_basic(id, secret);
        if (asprintf(&self->token_url, "%s/oauth2/token", auth_url) < 0)
            self->token_url = NULL;
        r = self->basic && self->token_url ? 0 : -ENOMEM;
    }
    free(auth_url);
    free(project);
    free(id);
    free(secret);
    return r;
}

static int read_settings(struct sinch *self, struct settings *s)
{
    static const char *const reports[] = {"per_recipient_final", "per_recipient", NULL};

    if (!settings_has(s, "api_token") && !settings_has(s, "key_id"))
        settings_refuse(s, "api_token",
                        "set api_token and service_plan_id, or key_id, key_secret "
                        "and project_id",
                        "no credentials");
    self->api_token = settings_text(s, "api_token", "");
    self->from = settings_text(s, "from", "");
    self->report = reports[settings_word(s, "delivery_report", reports, 0)];
    self->secrets = settings_list(s, "webhook_secret");
    self->lookup_delay_ms = settings_int(s, "lookup_delay_s", 60, 0, 3600) * 1000;
    self->absence_proves = settings_bool(s, "absence_proves", false);
    if (self->from && sender_kind(self->from) == SENDER_BAD)
        settings_refuse(s, "from", NULL, SENDER_RULE);
    return self->api_token ? read_plan(self, s) : read_project(self, s);
}

static void sinch_close(void *arg)
{
    struct sinch *self = arg;

    if (!self)
        return;
    free(self->batches_url);
    free(self->api_token);
    free(self->token_url);
    free(self->basic);
    free(self->from);
    settings_list_free(self->secrets);
    free(self);
}

static int sinch_open(const struct provider_host *host, const char *settings_json,
                      struct provider_report *report, void **ret_self)
{
    struct sinch *self = calloc(1, sizeof(*self));
    struct settings s;
    int r, end;

    if (!self)
        return -ENOMEM;
    self->host = host;
    r = settings_begin(&s, host, settings_json, report);
    if (r == 0)
        r = read_settings(self, &s);
    end = settings_end(&s);
    if (r == 0)
        r = end;
    if (r < 0) {
        sinch_close(self);
        return r;
    }
    *ret_self = self;
    return 0;
}

static void sinch_describe(const void *arg, struct provider_caps *ret)
{
    const struct sinch *self = arg;

    ret->ask = PROVIDER_ASK_BY_KEY;
    ret->absence_proves = self->absence_proves;
    ret->ask_delay_ms = self->lookup_delay_ms;
    ret->receipts = self->secrets ? PROVIDER_RECEIPTS_SIGNED : PROVIDER_RECEIPTS_UNSIGNED;
    ret->number = PROVIDER_NUMBER_DIGITS;
    ret->validity = PROVIDER_VALIDITY_ABSOLUTE;
    ret->limit = PROVIDER_LIMIT_MESSAGE;
}

/* ---- build ---------------------------------------------------------------------------------- */

char *sinch_bearer(const struct sinch *s, const struct provider_msg *msg)
{
    const char *token = s->api_token ? s->api_token : msg->token;

    return token ? request_bearer(token) : NULL;
}

/* Expiry, but no later than Sinch takes, counted from when the message was first claimed: it cannot
 * have been sent before. */
static const char *expire_at(const struct provider_msg *msg, char buf[WHEN_SIZE])
{
    int64_t life_ms = msg->validity_ms < expire_max_ms ? msg->validity_ms : expire_max_ms;

    return when_rfc3339(msg->expires_ms - msg->validity_ms + life_ms, buf);
}

static json_t *batch(const struct sinch *self, const struct provider_msg *msg, const char *sender)
{
    char when[WHEN_SIZE];
    json_t *body = json_pack("{s:[s]}", "to", msg->recipient + (*msg->recipient == '+'));
    int r = body ? 0 : -1;

    if (sender)
        r |= json_object_set_new(body, "from", json_string(sender + (*sender == '+')));
    r |= json_object_set_new(body, "body", json_stringn(msg->body, msg->body_len));
    r |= json_object_set_new(body, "type", json_string("mt_text"));
    r |= json_object_set_new(body, "client_reference", json_string(msg->id));
    if (msg->callback_url) {
        r |= json_object_set_new(body, "delivery_report", json_string(self->report));
        r |= json_object_set_new(body, "callback_url", json_string(msg->callback_url));
    }
    r |= json_object_set_new(body, "expire_at", json_string(expire_at(msg, when)));
    if (r == 0)
        return body;
    json_decref(body);
    return NULL;
}

static int sinch_build(const void *arg, const struct provider_msg *msg, struct provider_req *req)
{
    const struct sinch *self = arg;
    const char *sender = msg->sender ? msg->sender : self->from;
    char *bearer;
    int r;

    if (sender && sender_kind(sender) == SENDER_BAD)
        return -EINVAL;
    bearer = sinch_bearer(self, msg);
    if (!bearer)
        return -EINVAL;
    r = request_post_json(self->host, req, self->batches_url, bearer, batch(self, msg, sender));
    free(bearer);
    return r;
}

/* ---- judge ---------------------------------------------------------------------------------- */

static const struct verdict_row rows[] = {
    {"syntax_invalid_json", 4, PROVIDER_REJECTED, VERDICT_PLAIN},
    {"syntax_invalid_parameter_format", 4, PROVIDER_REJECTED, VERDICT_PLAIN},
    {"syntax_constraint_violation", 4, PROVIDER_REJECTED, VERDICT_PLAIN},
    {"unknown_group", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"unknown_campaign", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"missing_callback_url", 4, PROVIDER_HELD, VERDICT_PLAIN},
};

/* A token that was refused is worth a new one where we log in. */
static const struct verdict_row login = {.outcome = PROVIDER_HELD, .mark = VERDICT_LOGIN};

static int judge_error(const struct sinch *self, int status, const json_t *body,
                       struct provider_verdict *verdict)
{
    const char *code = json_text_at(body, "code"), *text = json_text_at(body, "text");
    const struct verdict_row by_status = {.outcome = verdict_of_status(status)};
    const struct verdict_row *row =
        code ? verdict_find(rows, sizeof(rows) / sizeof(*rows), status, code) : NULL;

    if (status == 401 && !self->api_token)
        row = &login;
    return verdict_say(self->host, verdict, row ? row : &by_status, code,
                       code ? text : "not an answer of Sinch's");
}

/* A success is Sinch's own only with a batch: its id and recipients. */
static int judge_taken(const struct sinch *self, const json_t *body,
                       struct provider_verdict *verdict)
{
    const char *id = json_text_at(body, "id");

    if (!id || !*id || !json_is_array(json_path(body, "to")))
        return verdict_say(self->host, verdict, NULL, NULL, "a success without a batch");
    self->host->verdict(verdict, PROVIDER_ACCEPTED);
    return self->host->verdict_id(verdict, id, strlen(id));
}

static int sinch_judge(const void *arg, const struct provider_reply *reply,
                       struct provider_verdict *verdict)
{
    const struct sinch *self = arg;
    json_t *body = reply->complete ? json_body(reply->body, reply->body_len) : NULL;
    int r;

    if (!reply->complete)
        r = verdict_say(self->host, verdict, NULL, NULL, "the answer broke off");
    else if (reply->status / 100 == 2)
        r = judge_taken(self, body, verdict);
    else
        r = judge_error(self, reply->status, body, verdict);
    json_decref(body);
    return r;
}

__attribute__((visibility("default"))) const struct provider *provider_entry(void)
{
    static const struct provider provider = {
        .abi_major = PROVIDER_ABI_MAJOR,
        .abi_minor = 1,
        .size = sizeof(struct provider),
        .name = "sinch",
        .open = sinch_open,
        .close = sinch_close,
        .describe = sinch_describe,
        .build = sinch_build,
        .judge = sinch_judge,
        .ask = sinch_ask,
        .ask_judge = sinch_ask_judge,
        .login = sinch_login,
        .login_judge = sinch_login_judge,
        .receipt = sinch_receipt,
    };

    return &provider;
}
