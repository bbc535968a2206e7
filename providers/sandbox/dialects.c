#include <string.h>

#include "providers/sandbox/dialect.h"

/* One line each, in order. A name is the file's in dialects/, '-' written as '_' (but http is in
 * generic_http.c: object files of one archive may not share a name). */
#define DIALECTS(X)                                                                                \
    X(africastalking)                                                                              \
    X(aws_sms_voice)                                                                               \
    X(aws_sns)                                                                                     \
    X(bird)                                                                                        \
    X(eskiz)                                                                                       \
    X(esms)                                                                                        \
    X(http)                                                                                        \
    X(infobip)                                                                                     \
    X(jasmin)                                                                                      \
    X(kannel)                                                                                      \
    X(messagebird)                                                                                 \
    X(playmobile)                                                                                  \
    X(plivo)                                                                                       \
    X(sinch)                                                                                       \
    X(speedsms)                                                                                    \
    X(telnyx)                                                                                      \
    X(twilio)                                                                                      \
    X(vonage)                                                                                      \
    X(vonage_messages)

#define DECLARE(name) extern const struct sb_dialect sb_dialect_##name;
#define ADDRESS(name) &sb_dialect_##name,

DIALECTS(DECLARE)

static const struct sb_dialect *const table[] = {DIALECTS(ADDRESS)};

const struct sb_dialect *sb_dialect_at(size_t i)
{
    return i < sizeof(table) / sizeof(table[0]) ? table[i] : NULL;
}

const struct sb_dialect *sb_dialect_find(const char *name)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i]->read && strcmp(table[i]->name, name) == 0)
            return table[i];
    return NULL;
}
