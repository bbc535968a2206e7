/* plivo.h - inside of the Plivo plugin: one instance, and what its files share.
 *
 * plivo.c reads settings, builds, judges and asks; receipt.c reads callbacks. */
#ifndef POSTRIDER_PROVIDERS_PLIVO_PLIVO_H
#define POSTRIDER_PROVIDERS_PLIVO_PLIVO_H

#include <stdbool.h>

#include "providers/provider.h"

enum plivo_signature { PLIVO_V3 = 0, PLIVO_V2, PLIVO_UNSIGNED };

struct plivo {
    const struct provider_host *host;
    char *messages_url;   /* …/v1/Account/AUTH_ID/Message/ */
    char *authorization;  /* the header's value */
    char **tokens;        /* auth tokens, NULL-terminated: the first for requests, all for
                             signatures */
    char *from;           /* NULL: none */
    char *powerpack_uuid; /* NULL: none */
    bool expiry;          /* pass the lifetime on */
    enum plivo_signature signature;
};

int plivo_receipt(const void *self, const struct provider_callback *cb,
                  struct provider_events *out);

#endif
