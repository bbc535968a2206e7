/* vonage.h - inside of the Vonage plugin: one instance, and what its files share.
 *
 * Vonage sends SMS through two APIs, chosen by the setting "api": the SMS API (sms.c) and the
 * Messages API (messages.c). sms_receipt.c reads the former's callbacks, settings.c reads both's
 * settings; reports.c asks either. */
#ifndef POSTRIDER_PROVIDERS_VONAGE_VONAGE_H
#define POSTRIDER_PROVIDERS_VONAGE_VONAGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "providers/kit/sign.h"
#include "providers/provider.h"

enum vonage_api { VONAGE_SMS = 0, VONAGE_MESSAGES };
enum vonage_auth {
    VONAGE_AUTH_BODY = 0, /* SMS API: key and secret as fields */
    VONAGE_AUTH_BASIC,
    VONAGE_AUTH_JWT, /* Messages API: a token signed here with the application's key */
};

struct vonage {
    const struct provider_host *host;
    enum vonage_api api;
    enum vonage_auth auth;
    char *url, *reports_url;
    char *api_key, *api_secret;
    char *application_id, *private_key;
    char *basic;              /* the header's value; NULL without key and secret */
    char *from;               /* NULL: every message has to bring its own */
    char **signature_secrets; /* NULL: callbacks are not signed */
    bool md5_hash;            /* SMS API's oldest scheme: the secret at the text's end */
    enum sign_hash signature_hash;
    int64_t lookup_delay_ms, lookup_slice_ms;
    bool absence_proves; /* "not in the reports" is believed */
};

/* 0, -EINVAL (refused) or -ENOMEM; vonage_close frees in any case. */
int vonage_read_settings(struct vonage *v, const char *settings_json,
                         struct provider_report *report);
void vonage_close(void *self);

/* The message's sender or the default one, without a leading +; NULL: none, or not usable. */
const char *vonage_sender(const struct vonage *v, const struct provider_msg *msg);
/* What follows the last '#' of a problem's "type"; NULL when there is none. Borrowed. */
const char *vonage_problem(const json_t *body);

int vonage_sms_build(const struct vonage *v, const struct provider_msg *msg,
                     struct provider_req *req);
int vonage_sms_judge(const struct vonage *v, const struct provider_reply *reply, const json_t *body,
                     struct provider_verdict *verdict);
int vonage_sms_receipt(const struct vonage *v, const struct provider_callback *cb,
                       struct provider_events *out);

int vonage_messages_build(const struct vonage *v, const struct provider_msg *msg,
                          struct provider_req *req);
int vonage_messages_judge(const struct vonage *v, const struct provider_reply *reply,
                          const json_t *body, struct provider_verdict *verdict);
int vonage_messages_receipt(const struct vonage *v, const struct provider_callback *cb,
                            struct provider_events *out);
int vonage_login(const void *self, int64_t now_ms, struct provider_req *req,
                 struct provider_grant *grant);

int vonage_ask(const void *self, const struct provider_question *q, struct provider_req *req);
int vonage_ask_judge(const void *self, const struct provider_question *q,
                     const struct provider_reply *reply, struct provider_answer *answer);

#endif
