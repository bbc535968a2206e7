/* knobs.h - what the simulated vendor does wrong, and when.
 *
 * Pure: no clock, no I/O. Every random choice is a function of (seed, request number, which
 * knob), so a run with the same seed and the same order of requests meets the same fates, and
 * turning one knob does not reshuffle the others. One table names every knob; the command
 * line, the control API and the help text are made from it. */
#ifndef POSTRIDER_SANDBOX_KNOBS_H
#define POSTRIDER_SANDBOX_KNOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/core/err.h"

enum sb_mode {                   /* how a request goes unanswered (or not) */
               SB_MODE_HANG = 0, /* silence, then the connection is closed after hang_s */
               SB_MODE_RESET,    /* RST */
               SB_MODE_CLOSE,    /* FIN */
               SB_MODE_STATUS,   /* answered with 503 */
               SB_MODE_REFUSE,   /* no listener; connections that live are reset */
};

#define SB_DIGITS_MAX 16

struct sb_knobs {
    uint64_t seed;
    double latency_p50, latency_p99; /* ms */
    double drop_before, drop_answer; /* probability */
    int drop_mode;                   /* enum sb_mode: hang, reset, close */
    double error_taken, error_not_taken;
    uint64_t error_status;
    uint64_t rate;                      /* requests a second; 0 = no limit */
    uint64_t outage_from, outage_count; /* by request number, from 1; count 0 = none */
    double outage_at, outage_for;       /* seconds since start; for 0 = none */
    int outage_mode;                    /* enum sb_mode */
    double slow_from, slow_for;         /* seconds since start; for 0 = none */
    double slow_factor;                 /* latency times this */
    int dedup;                          /* 0 off, 1 on */
    double dedup_window;                /* seconds */
    double reset_reused, reset_reused_taken;
    double hang_s;
    char reject_last[SB_DIGITS_MAX]; /* numbers ending so are refused; "" = none */
    uint64_t status_all;             /* every request is answered so; 0 = off */
    /* the rest acts under a dialect only */
    int identity;                       /* what names a message in the ledger: enum sb_identity */
    uint64_t token_s;                   /* life of a login's token; 0 = the dialect's */
    uint64_t lookup_delay_ms;           /* a message this young does not show in a look-up */
    double lookup_error;                /* share of look-ups answered 503 */
    int receipts, receipt_sent;         /* 0 off, 1 on; sent: an intermediate receipt as well */
    int receipt_first, receipt_shuffle; /* 0 off, 1 on */
    uint64_t receipt_delay_ms, receipt_late_ms, receipt_copies;
    uint64_t receipt_tries, receipt_retry_ms;
};

enum sb_identity { SB_IDENTITY_KEY = 0, SB_IDENTITY_TEXT };

/* Everything well: the vendor takes and answers at once, and de-duplicates. */
void sb_knobs_init(struct sb_knobs *k);

enum sb_knob_kind { SB_KNOB_INT, SB_KNOB_REAL, SB_KNOB_WORD, SB_KNOB_DIGITS };

struct sb_word {
    const char *text;
    int value;
};

struct sb_knob {
    const char *name; /* as in the API; the option is the same with '-' for '_' */
    enum sb_knob_kind kind;
    size_t offset; /* in struct sb_knobs */
    double min, max;
    const struct sb_word *words; /* SB_KNOB_WORD; ends with a NULL text */
    const char *help;
};

/* The table; *ret_count entries, static. */
const struct sb_knob *sb_knobs_table(size_t *ret_count);

/* The knob of this name ('-' and '_' are the same), or NULL. */
const struct sb_knob *sb_knobs_find(const char *name);

/* Sets one knob from text. -EINVAL with words and no change when the value will not do. */
int sb_knob_set(struct sb_knobs *k, const struct sb_knob *knob, const char *value, struct err *err);

/* The word for an SB_KNOB_WORD's present value; static. */
const char *sb_knob_word(const struct sb_knobs *k, const struct sb_knob *knob);

/* Whether the knobs agree with each other: 0 or -EINVAL with words. */
int sb_knobs_check(const struct sb_knobs *k, struct err *err);

enum sb_reason { /* why a request ended as it did; sb_reason_name gives the text */
                 SB_ACCEPTED = 0,
                 SB_STATUS_ALL,
                 SB_RESET_REUSED,
                 SB_RESET_REUSED_TAKEN,
                 SB_OUTAGE,
                 SB_THROTTLED,
                 SB_DROP_BEFORE,
                 SB_ERROR_NOT_TAKEN,
                 SB_ERROR_TAKEN,
                 SB_DROP_ANSWER,
                 SB_REPLAYED, /* from here on: not a knob's doing */
                 SB_INVALID,
                 SB_REJECTED,
                 SB_FULL,
                 SB_OPTED_OUT, /* only under a dialect, as what follows */
                 SB_LATER,
                 SB_ACCOUNT,
                 SB_REASONS_ /* keep last */
};

const char *sb_reason_name(enum sb_reason reason);

enum sb_act { SB_ACT_ANSWER = 0, SB_ACT_HANG, SB_ACT_RESET, SB_ACT_CLOSE };

/* How a mode (enum sb_mode) ends a request. */
enum sb_act sb_knobs_act(int mode);

struct sb_case {      /* what a decision depends on */
    uint64_t number;  /* of this request, from 1 */
    double elapsed_s; /* since start */
    bool reused;      /* its connection has carried a request before */
    bool over_rate;   /* the last second already held `rate` requests */
};

struct sb_fate {
    enum sb_reason reason;
    bool take; /* the phone gets it */
    enum sb_act act;
    int status;   /* of the answer, where act is SB_ACT_ANSWER */
    bool delayed; /* act after the sampled latency, not at once */
};

/* The fate of one well-formed request. Cannot fail. Order of precedence: status_all, outage,
 * reset_reused, rate, drop_before, error_not_taken, then what is taken. */
struct sb_fate sb_knobs_decide(const struct sb_knobs *k, const struct sb_case *c);

/* The fate of a look-up or login, `count` of them before it: status_all, outage, lookup_error. */
struct sb_fate sb_knobs_decide_other(const struct sb_knobs *k, const struct sb_case *c,
                                     uint64_t count);

/* Uniform in [0,1) for receipt number `count`. */
double sb_knobs_draw_receipt(const struct sb_knobs *k, uint64_t count);

/* Latency in ms of request `number` that arrived `elapsed_s` after start. */
double sb_knobs_latency(const struct sb_knobs *k, uint64_t number, double elapsed_s);

/* Whether the listener is closed at this time (outage by time, mode refuse-connection). */
bool sb_knobs_refuses(const struct sb_knobs *k, double elapsed_s);

#endif
