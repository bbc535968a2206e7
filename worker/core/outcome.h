/* outcome.h - the words of the whole program: what an attempt proved, where a message is.
 *
 * Pure. The names are those of the SQL enums; a test compares the two. */
#ifndef POSTRIDER_CORE_OUTCOME_H
#define POSTRIDER_CORE_OUTCOME_H

#include <stdbool.h>

enum outcome {
    OUTCOME_ACCEPTED = 0, /* a vendor took responsibility */
    OUTCOME_REJECTED,     /* the vendor will never take this message */
    OUTCOME_THROTTLED,    /* over a limit; surely not taken */
    OUTCOME_HELD,         /* the account or set-up is unusable; surely not taken */
    OUTCOME_UNREACHED,    /* no byte of the request left */
    OUTCOME_REFUSED,      /* try later; the vendor is known not to have taken it */
    OUTCOME_UNKNOWN,      /* everything unproven */
    OUTCOME_MAX_
};

enum msg_state {
    MSG_PENDING = 0,
    MSG_SENDING,
    MSG_UNKNOWN,
    MSG_SENT,
    MSG_FAILED,
    MSG_EXPIRED,
    MSG_CANCELED,
    MSG_SUPPRESSED,
    MSG_STATE_MAX_
};

/* NULL for a value outside the enum. */
const char *outcome_name(enum outcome outcome);
const char *msg_state_name(enum msg_state state);

/* False when the name is none of ours; *ret is then untouched. */
bool outcome_parse(const char *name, enum outcome *ret);
bool msg_state_parse(const char *name, enum msg_state *ret);

/* True for states nothing needs to pick up any more. unknown is not one of them: a receipt, an
 * answer, a vendor's log or a person settles it. */
bool msg_state_is_final(enum msg_state state);

#endif
