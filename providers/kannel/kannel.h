/* kannel.h - inside of the kannel plugin: one instance, judging answers, reading receipts. */
#ifndef POSTRIDER_PROVIDERS_KANNEL_KANNEL_H
#define POSTRIDER_PROVIDERS_KANNEL_KANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/provider.h"

struct kannel {
    const struct provider_host *host;
    char *url; /* of sendsms, root and path */
    char *username, *password;
    char *from, *smsc, *account; /* NULL: not set */
    bool get, plus;
    int64_t dlr_mask, max_parts;
};

/* As provider.judge and provider.receipt. */
int kannel_judge(const struct kannel *self, const struct provider_reply *reply,
                 struct provider_verdict *verdict);
int kannel_receipt(const struct kannel *self, const struct provider_callback *cb,
                   struct provider_events *out);

#endif
