/* telnyx.h - inside of the Telnyx plugin: one instance, and what its files share.
 *
 * telnyx.c reads settings, builds, judges and asks; receipt.c reads callbacks. */
#ifndef POSTRIDER_PROVIDERS_TELNYX_TELNYX_H
#define POSTRIDER_PROVIDERS_TELNYX_TELNYX_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/provider.h"

enum { TELNYX_KEY_LEN = 32 };

struct telnyx {
    const struct provider_host *host;
    char *messages_url;              /* …/v2/messages */
    char *authorization;             /* the header's value */
    char *from;                      /* NULL: none */
    char *profile;                   /* messaging_profile_id, NULL: none */
    bool dedup;                      /* setting idempotency is "declared" */
    uint8_t (*keys)[TELNYX_KEY_LEN]; /* public keys of signatures; NULL: not checked */
    size_t keys_n;
};

int telnyx_receipt(const void *self, const struct provider_callback *cb,
                   struct provider_events *out);

#endif
