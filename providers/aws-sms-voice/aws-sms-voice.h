/* aws-sms-voice.h - shared by this folder's files. Internal. */
#ifndef POSTRIDER_AWS_SMS_VOICE_H
#define POSTRIDER_AWS_SMS_VOICE_H

#include <stdbool.h>
#include <stddef.h>

#include "providers/provider.h"

struct eum_self {
    const struct provider_host *host;
    char *url, *region, *access_key, *secret_key, *session;
    char *from, *configuration_set, *max_price;
    size_t type;
    bool hold_country;
    char **certs;  /* PEM; NULL: notifications are not verified */
    char **topics; /* ARNs notifications may come from; NULL: any */
};

/* Whether a PEM text holds an RSA certificate or public key. */
bool eum_cert_ok(const char *pem);

/* Reads what Amazon SNS brings: events, inbound messages, subscription requests. */
int eum_receipt(const struct eum_self *self, const struct provider_callback *cb,
                struct provider_events *out);

#endif
