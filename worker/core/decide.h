/* decide.h - what follows an attempt: the one place where sending again is decided.
 *
 * Pure: no clock, no I/O, no allocation. The caller passes the time and acts on the answer.
 * All times are milliseconds on one axis of the caller's (the worker uses CLOCK_BOOTTIME and
 * translates lifetimes it got from the database as durations, rule R9).
 *
 * A message's state is a fold over its attempts (rule R7): any accepted -> sent; else any doubt ->
 * by policy; failed only when every attempt is proven not taken. The row carries the fold as
 * numbers: `doubts` counts attempts whose outcome nobody knows. */
#ifndef POSTRIDER_CORE_DECIDE_H
#define POSTRIDER_CORE_DECIDE_H

#include <stdint.h>

#include "worker/core/outcome.h"

enum on_unknown {
    ON_UNKNOWN_HOLD = 0, /* at most once: what may have been sent is never sent again */
    ON_UNKNOWN_ASK,      /* ask the vendor first */
    ON_UNKNOWN_RESEND,   /* at least once, same key */
    ON_UNKNOWN_MAX_
};

struct policy {
    enum on_unknown on_unknown;
    int max_attempts; /* attempts that count */
    int max_calls;    /* requests of any outcome: ends endless throttling */
    int64_t backoff_base_ms, backoff_cap_ms;
    bool cross_vendor_resend; /* after a doubt another vendor may be tried; only with resend */
};

enum asking {
    ASKING_NONE = 0,
    ASKING_BY_KEY, /* our key, or a list compared with the message: nothing else is needed */
    ASKING_BY_ID,  /* only where the vendor's id is known all the same */
};

/* What the vendor of this attempt can prove. */
struct capability {
    bool dedup;
    int64_t dedup_window_ms; /* how long it remembers a key */
    int64_t call_ms;         /* longest a call may last: a resend must end inside the window */
    enum asking asking;
    bool absence_proves;   /* "never seen" proves that it was not taken */
    int64_t ask_delay_ms;  /* how long a taken message may stay unseen by a look-up */
    int64_t ask_window_ms; /* how long it stays visible; 0: for ever */
};

struct view {
    int attempts; /* that count, the one judged now included */
    int calls;    /* requests that left, the one judged now included */
    int doubts;   /* attempts in doubt, the one judged now not included */
    int64_t now_ms;
    int64_t expires_ms;
    int64_t doubt_since_ms; /* start of the first attempt in doubt; unused while doubts == 0 */
    int64_t started_ms;     /* start of the attempt judged now */
    bool has_vendor_id;     /* the vendor's id is known, though not what became of it */
    bool asked;             /* the vendor was asked about every doubt, and has not seen it */
    double jitter;          /* in [0, 1), the caller's */
};

struct decision {
    enum msg_state state;
    int64_t due_ms; /* with MSG_PENDING: not before */
    int attempts;   /* what the row's counter becomes */
    int doubts;
    bool pinned;             /* the next attempt must go to the same vendor */
    bool possible_duplicate; /* the next attempt may double the message: count it */
    bool ask;                /* with MSG_UNKNOWN: the vendor is to be asked ... */
    int64_t ask_ms;          /* ... after so long */
    const char *reason;      /* static; a word or two a program can compare; NULL with sent */
};

/* After an attempt that ended in `outcome`; `retry_after_ms` < 0 when the vendor named none. Total:
 * an outcome outside the enum counts as unknown. due_ms lies in [now, expires). A Retry-After only
 * lengthens the wait: to half of the life left at most, and where the provider's own door does
 * the waiting (throttled, held) not beyond backoff_cap_ms. */
struct decision decide(const struct policy *policy, const struct capability *cap,
                       const struct view *view, enum outcome outcome, int64_t retry_after_ms);

/* Before a call: may this claimed message be sent at all? Earlier doubts may forbid it once the
 * vendor's key window is over. Returns true to go ahead; else *ret_decision settles it. */
bool decide_dispatch(const struct policy *policy, const struct capability *cap,
                     const struct view *view, struct decision *ret_decision);

/* Ends that no outcome of a call brings about. None of them made a request. */
/* Never tried (no slot, lease nearly over, drain): the attempt comes back, the row waits (R8). */
struct decision decide_back(const struct view *view);
/* Cannot be sent at all (its data, its plugin): failed, or unknown while a doubt is left (R7). */
struct decision decide_unfit(const struct view *view, const char *reason);
/* The vendor refuses the key as one it has. Where an attempt is in doubt, where libcurl sent twice,
 * or where this is the first call we know of (an earlier life of the database made the other), it
 * has the message. But after calls that were all proven not taken it may only have kept the key of
 * a refusal: that proves nothing (R6). */
bool duplicate_explained(const struct view *view, int permits);
struct decision decide_duplicate(const struct policy *policy, const struct capability *cap,
                                 const struct view *view);
/* What became of it cannot be stored: one more doubt, and nothing follows by itself. */
struct decision decide_unstorable(const struct view *view);

/* What a look-up found. */
enum finding {
    FINDING_CANNOT_SAY = 0, /* proves nothing */
    FINDING_HAS_IT,
    FINDING_REFUSED_IT, /* on record there as refused */
    FINDING_NEVER_SEEN,
    FINDING_MAX_
};

struct ask_view {
    int tries;  /* look-ups of this doubt, this one included */
    int misses; /* earlier ones that said: never seen */
    int attempts, calls;
    int64_t now_ms, expires_ms, doubt_since_ms;
    bool canceled; /* by a person, while in doubt: never sent again */
    double jitter;
};

enum ask_next {
    ASK_AGAIN = 0, /* after again_ms */
    ASK_ACCEPTED,  /* late news: the attempt was taken */
    ASK_REJECTED,  /* late news: it was refused */
    ASK_NOT_TAKEN, /* late news: it was proven not taken */
    ASK_RESEND,    /* not proven, but asked for as the kind wants: another send */
    ASK_STOP,      /* nothing more can be learnt: unknown, until a receipt or a person */
};

struct ask_decision {
    enum ask_next next;
    int64_t again_ms;
    int misses;
    const char *reason; /* NULL: keeps the one it has */
};

/* After a look-up. A "never seen" counts the second time, one visibility delay after the first,
 * because a slow worker or gateway may still have been writing; for `resend`, where late is worse
 * than double, the first time. It proves something only where the vendor says so: else `hold`
 * keeps the label, `ask` and `resend` send again while attempts and life last. A vendor that cannot
 * say is asked ASK_TRIES times, further and further apart. `retry_after_ms` < 0: none named. */
enum { ASK_TRIES = 12 };
struct ask_decision decide_ask(const struct policy *policy, const struct capability *cap,
                               const struct ask_view *view, enum finding finding,
                               int64_t retry_after_ms);

/* The fold itself, over closed attempts in any order. */
enum fold {
    FOLD_NOT_TAKEN = 0, /* every attempt is proven not taken; another may be made */
    FOLD_REJECTED,      /* the same, and the vendor will never take it */
    FOLD_DOUBT,         /* at least one may have been taken */
    FOLD_ACCEPTED,
};
enum fold fold_attempts(const enum outcome *outcomes, unsigned n);

/* Late news: an attempt whose claim is no longer the message's own, or that was already judged
 * unknown, turns out to be `outcome`. */
struct late_view {
    enum msg_state state;     /* of the message now */
    bool newer_attempt;       /* it is sending under a newer claim */
    bool recorded;            /* the late attempt is on record ... */
    enum outcome recorded_as; /* ... as this */
    bool same_vendor_id;      /* the message has a vendor id and it is the one that came */
    bool rejected;            /* another attempt is on record as rejected: none follows it */
    int attempts, doubts;
    bool taken;
    int64_t now_ms, expires_ms;
};
struct late_decision {
    bool change; /* false: nothing is to be written */
    enum msg_state state;
    int doubts;
    bool taken;     /* an acceptance is known while a newer attempt is in the air */
    bool duplicate; /* two attempts were accepted: count and show it */
    const char *reason;
};
struct late_decision decide_late(const struct policy *policy, const struct late_view *view,
                                 enum outcome outcome);

bool on_unknown_parse(const char *name, enum on_unknown *ret);

#endif
