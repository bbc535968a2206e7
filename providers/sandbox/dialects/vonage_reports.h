/* vonage_reports.h - the Reports API, which both of Vonage's APIs for SMS share. Internal to the
 * dialects vonage and vonage-messages. */
#ifndef POSTRIDER_SANDBOX_DIALECTS_VONAGE_REPORTS_H
#define POSTRIDER_SANDBOX_DIALECTS_VONAGE_REPORTS_H

#include "providers/sandbox/dialect.h"

/* Settings a dialect needs for it. */
#define SB_VONAGE_SETTINGS                                                                         \
    {"api_key", "abcd1234", "the account; user of Basic"},                                         \
        {"api_secret", "sandbox-secret", "its secret"},                                            \
        {"signature_secret", "sandbox-signature", "signs callbacks; empty: they are not signed"},  \
    {                                                                                              \
        "page_size", "1000", "records in an answer of the Reports API"                             \
    }

struct sb_vonage_product {
    const char *name;                           /* "SMS", "MESSAGES" */
    const char *(*status)(enum sb_state state); /* its word for a state */
};

/* GET /v2/reports/records */
int sb_vonage_reports(struct sb_call *c, struct sb_reply *reply,
                      const struct sb_vonage_product *product);

/* An RFC 7807 body; `code` follows the '#'. */
int sb_vonage_problem(struct sb_reply *reply, int status, const char *api, const char *code,
                      const char *title, const char *detail);

/* 7 to 15 digits, no plus; a number of up to 15 digits or a name of up to 11. NULL: false. */
bool sb_vonage_is_number(const char *text);
bool sb_vonage_is_sender(const char *text);

#endif
