/* sinch.h - inside of the Sinch plugin: one instance, and what its files share.
 *
 * sinch.c reads settings, builds and judges; look.c logs in and asks; receipt.c reads callbacks. */
#ifndef POSTRIDER_PROVIDERS_SINCH_SINCH_H
#define POSTRIDER_PROVIDERS_SINCH_SINCH_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/provider.h"

struct sinch {
    const struct provider_host *host;
    char *batches_url; /* …/xms/v1/PLAN_OR_PROJECT/batches */
    char *api_token;   /* NULL: log in with the three below */
    char *token_url, *basic;
    char *from;         /* NULL: the plan's default originator */
    const char *report; /* "per_recipient_final" or "per_recipient" */
    char **secrets;     /* of webhooks, NULL-terminated; NULL: not checked */
    int64_t lookup_delay_ms;
    bool absence_proves; /* "not in the list" is believed */
};

/* "Bearer …" for one request; the caller frees. NULL: no token yet, or out of memory. */
char *sinch_bearer(const struct sinch *s, const struct provider_msg *msg);

int sinch_login(const void *self, int64_t now_ms, struct provider_req *req,
                struct provider_grant *grant);
int sinch_login_judge(const void *self, const struct provider_reply *reply,
                      struct provider_grant *grant);
int sinch_ask(const void *self, const struct provider_question *q, struct provider_req *req);
int sinch_ask_judge(const void *self, const struct provider_question *q,
                    const struct provider_reply *reply, struct provider_answer *answer);
int sinch_receipt(const void *self, const struct provider_callback *cb,
                  struct provider_events *out);

#endif
