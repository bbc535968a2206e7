/* receipt.h - what a receipt proves about a message that is not known to be sent.
 *
 * A vendor that reports on a message has taken it, whatever we saw of the call. So a receipt is
 * late news of success (rule R7) and stronger than any answer: it also lifts a message whose
 * attempts all look proven not taken. What it says about the handset is applied by rank, in SQL,
 * once the message is `sent`.
 *
 * Pure. */
#ifndef POSTRIDER_CORE_RECEIPT_H
#define POSTRIDER_CORE_RECEIPT_H

#include "worker/core/decide.h"

/* The attempt in the view is the last one in doubt, or the last one made. Nothing changes where the
 * message is sent, where an acceptance is known already, and while the very attempt is in the air:
 * its answer comes, or its lease ends. */
struct late_decision receipt_decide(const struct late_view *view);

/* The reason given where the attempt was on record as not taken: it is counted. */
extern const char receipt_contradicts[];

#endif
