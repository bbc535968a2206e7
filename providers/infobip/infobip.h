/* infobip.h - inside of the Infobip plugin: one instance, and what its files share.
 *
 * infobip.c reads settings, builds and judges; look.c asks and reads receipts. */
#ifndef POSTRIDER_PROVIDERS_INFOBIP_INFOBIP_H
#define POSTRIDER_PROVIDERS_INFOBIP_INFOBIP_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/provider.h"

struct infobip {
    const struct provider_host *host;
    char *url;
    char *authorization; /* the header's value */
    char *from;          /* NULL: every message has to bring its own */
    int64_t dedup_window_ms, lookup_delay_ms;
    bool absence_proves; /* "not in the logs" is believed */
    bool seconds;        /* unit of validityPeriod */
};

/* Ids of one status, and what group it is in (message-status-codes of their documentation). */
enum infobip_group {
    INFOBIP_PENDING = 1,
    INFOBIP_UNDELIVERABLE = 2,
    INFOBIP_DELIVERED = 3,
    INFOBIP_EXPIRED = 4,
    INFOBIP_REJECTED = 5,
};
enum { INFOBIP_TO_OPERATOR = 2, INFOBIP_DUPLICATE = 23 }; /* status ids */

int infobip_ask(const void *self, const struct provider_question *q, struct provider_req *req);
int infobip_ask_judge(const void *self, const struct provider_question *q,
                      const struct provider_reply *reply, struct provider_answer *answer);
int infobip_receipt(const void *self, const struct provider_callback *cb,
                    struct provider_events *out);

#endif
