/* doubt.h - what follows a call whose outcome nobody knows, foretold in words.
 *
 * Nothing is known here about policies: decide() and decide_ask() are asked, with the views that a
 * message would have in its first doubt, when the vendor's key window is over, when its attempts
 * are used up, and after each look-up. So `postrider check` cannot promise what the worker does not
 * do. Pure. */
#ifndef POSTRIDER_CLI_DOUBT_H
#define POSTRIDER_CLI_DOUBT_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/core/decide.h"

enum doubt_step {
    DOUBT_HOLD = 0,   /* shown as unknown; settled from outside only */
    DOUBT_ASK,        /* the vendor is asked */
    DOUBT_RESEND_KEY, /* sent again under the same key, which the vendor knows */
    DOUBT_RESEND,     /* sent again, and the phone may get it twice */
    DOUBT_STEP_MAX_
};

struct doubt {
    enum doubt_step first;
    int64_t window_ms;       /* of DOUBT_RESEND_KEY */
    bool window_ends;        /* before the message's life does, ... */
    enum doubt_step after;   /* ... and then this follows */
    enum doubt_step used_up; /* what follows when attempts are used up: HOLD or ASK */
    int64_t ask_ms;          /* where asked: how long after the call's end */
    int64_t ask_again_ms;    /* between two look-ups that see nothing */
    int misses;              /* look-ups that have not seen it, until ... */
    enum ask_next unseen;    /* ... this: ASK_NOT_TAKEN (proof), ASK_RESEND or ASK_STOP */
    enum ask_next silent;    /* where the vendor cannot say: ASK_RESEND or ASK_STOP */
    int64_t too_late_ms;     /* less life left: sent again without asking; 0: never */
    bool asked_by_id;        /* asked only where the vendor's id is known */
    bool another;            /* another vendor may be tried */
    bool impossible;         /* `ask`, and the vendor can neither be asked nor de-duplicates */
    bool duplicate;          /* somewhere on the way the phone may get it twice */
};

/* `life_ms`: from the first call to the message's expiry. */
struct doubt doubt_foretell(const struct policy *policy, const struct capability *cap,
                            int64_t life_ms);

/* "asked about after 1 min 2 s; never sent again without proof …": what follows "after a timeout".
 * The caller frees; NULL when out of memory. */
char *doubt_words(const struct doubt *doubt, const struct policy *policy, int64_t life_ms);

const char *doubt_step_name(enum doubt_step step); /* "hold", "ask", "resend_key", "resend" */

#endif
