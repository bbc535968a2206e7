/* aws_sigv4.h - is this request signed as AWS wants it? Shared by the dialects of AWS.
 *
 * A second implementation of AWS Signature Version 4 for headers, from AWS's description ("Create a
 * signed AWS API request"), over HMAC-SHA256 alone: what signs on our side is libcurl. Only what
 * these services need: a POST to "/" without a query. */
#ifndef POSTRIDER_SANDBOX_AWS_SIGV4_H
#define POSTRIDER_SANDBOX_AWS_SIGV4_H

#include <stdint.h>

#include "providers/sandbox/dialect.h"

enum aws_fault {
    AWS_OK = 0,
    AWS_MISSING,  /* no signature, or none that can be read */
    AWS_KEY,      /* an access key we did not give, or another session token */
    AWS_TIME,     /* no x-amz-date, or more than five minutes from ours */
    AWS_MISMATCH, /* another region, service, header or byte than was signed */
    AWS_NO_MEMORY,
};

/* Reads the settings region, access_key_id, secret_access_key and session_token ("": none). */
enum aws_fault aws_sigv4_check(const struct sb_call *c, const char *service);

/* The settings above, for a dialect's table. */
#define AWS_SETTINGS                                                                               \
    {"region", "eu-central-1", "the region in the signature's scope"},                             \
        {"access_key_id", "AKIDSANDBOX", "the access key"},                                        \
        {"secret_access_key", "sandbox-secret", "its secret, which signs requests"},               \
    {                                                                                              \
        "session_token", "", "the token of temporary credentials; empty: permanent ones"           \
    }

#endif
