/* Vonage (once Nexmo): SMS API and Messages API. See README.md. */
#include "providers/vonage/vonage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/json.h"
#include "providers/kit/settings.h"

void vonage_close(void *self)
{
    struct vonage *v = self;

    if (!v)
        return;
    free(v->url);
    free(v->reports_url);
    free(v->api_key);
    free(v->api_secret);
    free(v->application_id);
    free(v->private_key);
    free(v->basic);
    free(v->from);
    settings_list_free(v->signature_secrets);
    free(v);
}

static int vonage_open(const struct provider_host *host, const char *settings_json,
                       struct provider_report *report, void **ret_self)
{
    struct vonage *v = calloc(1, sizeof(*v));
    int r;

    if (!v)
        return -ENOMEM;
    v->host = host;
    r = vonage_read_settings(v, settings_json, report);
    if (r < 0) {
        vonage_close(v);
        return r;
    }
    *ret_self = v;
    return 0;
}

static void vonage_describe(const void *self, struct provider_caps *ret)
{
    const struct vonage *v = self;

    if (v->basic) { /* the Reports API knows nothing else */
        ret->ask = PROVIDER_ASK_BY_KEY;
        ret->absence_proves = v->absence_proves;
        ret->ask_delay_ms = v->lookup_delay_ms;
        ret->asks_per_minute = 600;
    }
    ret->several_ids = v->api == VONAGE_SMS;
    ret->receipts = v->signature_secrets ? PROVIDER_RECEIPTS_SIGNED : PROVIDER_RECEIPTS_UNSIGNED;
    ret->number = PROVIDER_NUMBER_DIGITS;
    ret->validity = v->api == VONAGE_SMS ? PROVIDER_VALIDITY_MS : PROVIDER_VALIDITY_S;
    ret->limit = PROVIDER_LIMIT_MESSAGE;
}

const char *vonage_problem(const json_t *body)
{
    const char *type = json_text_at(body, "type");
    const char *hash = type ? strrchr(type, '#') : NULL;

    return hash && hash[1] ? hash + 1 : NULL;
}

static int vonage_build(const void *self, const struct provider_msg *msg, struct provider_req *req)
{
    const struct vonage *v = self;

    return v->api == VONAGE_SMS ? vonage_sms_build(v, msg, req)
                                : vonage_messages_build(v, msg, req);
}

static int vonage_judge(const void *self, const struct provider_reply *reply,
                        struct provider_verdict *verdict)
{
    const struct vonage *v = self;
    json_t *body;
    int r;

    if (!reply->complete) {
        v->host->verdict(verdict, PROVIDER_UNKNOWN);
        return 0;
    }
    body = json_body(reply->body, reply->body_len);
    r = v->api == VONAGE_SMS ? vonage_sms_judge(v, reply, body, verdict)
                             : vonage_messages_judge(v, reply, body, verdict);
    json_decref(body);
    return r;
}

static int vonage_receipt(const void *self, const struct provider_callback *cb,
                          struct provider_events *out)
{
    const struct vonage *v = self;

    return v->api == VONAGE_SMS ? vonage_sms_receipt(v, cb, out)
                                : vonage_messages_receipt(v, cb, out);
}

/* A login is never answered by Vonage: the token is made here. */
static int vonage_login_judge(const void *self, const struct provider_reply *reply,
                              struct provider_grant *grant)
{
    (void)self;
    (void)reply;
    (void)grant;
    return 0;
}

__attribute__((visibility("default"))) const struct provider *provider_entry(void)
{
    static const struct provider provider = {
        .abi_major = PROVIDER_ABI_MAJOR,
        .abi_minor = 1,
        .size = sizeof(struct provider),
        .name = "vonage",
        .open = vonage_open,
        .close = vonage_close,
        .describe = vonage_describe,
        .build = vonage_build,
        .judge = vonage_judge,
        .ask = vonage_ask,
        .ask_judge = vonage_ask_judge,
        .login = vonage_login,
        .login_judge = vonage_login_judge,
        .receipt = vonage_receipt,
    };

    return &provider;
}
