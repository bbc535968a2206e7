#include "worker/core/classify.h"

enum outcome classify(const struct evidence *e)
{
    if (e->lost || e->permits < 0)
        return OUTCOME_UNKNOWN;
    if (e->permits == 0)
        return e->untrusted ? OUTCOME_HELD : OUTCOME_UNREACHED;
    if (!e->complete || e->status < 200 || e->status > 599 || !e->judged)
        return OUTCOME_UNKNOWN;
    if ((unsigned)e->word >= OUTCOME_MAX_ || e->word == OUTCOME_UNREACHED)
        return OUTCOME_UNKNOWN; /* a vendor that answered was reached: the plugin is confused */
    if (e->permits > 1 && e->word != OUTCOME_ACCEPTED)
        return OUTCOME_UNKNOWN; /* the answer speaks of one request; another one also left */
    return e->word;
}
