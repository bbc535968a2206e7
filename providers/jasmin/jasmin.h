/* jasmin.h - inside of the jasmin plugin: one instance, judging answers, reading receipts. */
#ifndef POSTRIDER_PROVIDERS_JASMIN_JASMIN_H
#define POSTRIDER_PROVIDERS_JASMIN_JASMIN_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/provider.h"

struct jasmin {
    const struct provider_host *host;
    char *url; /* of /send */
    char *username, *password;
    char *from, *tags; /* NULL: not set */
    int64_t dlr_level, max_parts;
    bool no_route_holds;
};

/* As provider.judge and provider.receipt. */
int jasmin_judge(const struct jasmin *self, const struct provider_reply *reply,
                 struct provider_verdict *verdict);
int jasmin_receipt(const struct jasmin *self, const struct provider_callback *cb,
                   struct provider_events *out);

#endif
