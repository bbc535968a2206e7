/* twilio.h - inside of the Twilio plugin: one instance, and what its files share.
 *
 * twilio.c reads settings, builds and judges; look.c asks; receipt.c reads callbacks. */
#ifndef POSTRIDER_PROVIDERS_TWILIO_TWILIO_H
#define POSTRIDER_PROVIDERS_TWILIO_TWILIO_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/provider.h"

struct twilio {
    const struct provider_host *host;
    char *messages_url; /* …/Accounts/SID/Messages.json */
    char *account_sid;
    char *authorization;         /* the header's value */
    char **auth_tokens;          /* NULL-terminated; the first is used for requests */
    char **shared_keys;          /* secrets of Webhooks Rules; NULL: none */
    char *from;                  /* NULL: none */
    char *messaging_service_sid; /* NULL: none */
    int64_t lookup_delay_ms, worst_answer_ms;
    bool absence_proves; /* "not in the list" is believed */
};

/* Who a message is sent by: its own sender, else the service, else `from`. */
const char *twilio_sender(const struct twilio *t, const struct provider_msg *msg,
                          bool *ret_is_service);

int twilio_ask(const void *self, const struct provider_question *q, struct provider_req *req);
int twilio_ask_judge(const void *self, const struct provider_question *q,
                     const struct provider_reply *reply, struct provider_answer *answer);
int twilio_receipt(const void *self, const struct provider_callback *cb,
                   struct provider_events *out);

#endif
