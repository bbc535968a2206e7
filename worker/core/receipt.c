#include "worker/core/receipt.h"

#include <stddef.h>

const char receipt_contradicts[] = "receipt contradicts";

struct late_decision receipt_decide(const struct late_view *view)
{
    bool doubted = view->recorded && view->recorded_as == OUTCOME_UNKNOWN;
    struct late_decision d = {.state = view->state, .doubts = view->doubts, .taken = view->taken};

    if (view->state == MSG_SENT || view->taken ||
        (view->state == MSG_SENDING && (!view->newer_attempt || !doubted)))
        return d;
    d.change = true;
    if (doubted && d.doubts > 0)
        d.doubts--;
    if (view->state == MSG_SENDING) { /* it cannot be called back, but nothing follows it */
        d.taken = true;
        d.reason = "accepted late";
    } else {
        d.state = MSG_SENT;
        d.reason = view->recorded && !doubted && view->recorded_as != OUTCOME_ACCEPTED
                       ? receipt_contradicts
                       : NULL;
    }
    return d;
}
