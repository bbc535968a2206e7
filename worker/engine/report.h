/* report.h - what a worker says about itself: a snapshot, and its forms for people and machines.
 *
 * `struct report` is plain data; the engine fills it, the functions below turn it into Prometheus
 * text, JSON for the page and `status`, and the two health answers. Pure: no clock, no I/O; every
 * time is an age in milliseconds at the moment the snapshot was made, and AGE_NONE where there is
 * none (never happened, not known). Nothing here names a recipient or a message, so nothing can
 * leak one.
 *
 * Ownership: the report owns what the report_add_ functions made and copies every text given to
 * them. Texts are UTF-8; NULL is taken as "". A pointer from report_add_ is good until the next
 * report_add_ of the same sort. */
#ifndef POSTRIDER_ENGINE_REPORT_H
#define POSTRIDER_ENGINE_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AGE_NONE ((int64_t)-1)

/* ---- histogram ---- */

/* Durations in fixed buckets from 1 ms to 60 s, about four a decade: fine enough for a p99 of 25 ms
 * or of 800 ms, small enough to keep one per provider. */
enum { HISTOGRAM_BOUNDS = 27 };
extern const int64_t histogram_bounds_ms[HISTOGRAM_BOUNDS];

struct histogram {
    uint64_t
        bucket[HISTOGRAM_BOUNDS + 1]; /* bucket[i]: <= bounds[i] and > bounds[i-1]; last: more */
    uint64_t count;
    uint64_t sum_us;
};

/* Counts one duration in microseconds; a negative one counts as 0. */
void histogram_add_us(struct histogram *h, int64_t us);
/* The value below which the share q (0..1) of all durations lies, by straight line inside its
 * bucket; beyond the last bound, that bound. -1 when empty. */
double histogram_quantile_ms(const struct histogram *h, double q);

/* ---- the snapshot ---- */

struct report_findings { /* of look-ups */
    uint64_t has_it, refused_it, never_seen, cannot_say;
};

/* What attempts proved (design §2). */
struct report_outcomes {
    uint64_t accepted, rejected, throttled, held, unreached, refused, unknown;
};

struct report_count { /* messages of one kind in one state, from the counters */
    char *kind;
    char *state; /* the stored name: pending, sending, unknown, sent, ... */
    int64_t count;
};

struct report_lane {
    char *name;            /* a kind or a lane */
    int64_t oldest_due_ms; /* age of the oldest message due and not begun; AGE_NONE = none waits */
};

enum report_door { /* may calls start? */
                   REPORT_OPEN = 0,
                   REPORT_PAUSED, /* by itself: throttled or down, opens again after until_ms */
                   REPORT_HELD /* until somebody acts: no money, wrong credentials, held by hand */
};

struct report_receipts {                                  /* since this worker started */
    uint64_t in_transit, delivered, undelivered, expired; /* messages whose receipt became this */
    uint64_t parked, unmatched, given_up;                 /* receipts */
    uint64_t stored, refused, unreadable, unstored;       /* callbacks: 200, 403, 400, 503 */
};

struct report_provider {
    char *name, *plugin;
    enum report_door door;
    char *reason;     /* why it is not open; set with report_set */
    int64_t until_ms; /* opens again in this many ms; AGE_NONE = not by itself */
    int64_t in_air, limit;
    struct report_outcomes outcomes; /* since this worker started */
    struct histogram call;           /* from first byte allowed to judged answer */
    struct report_receipts receipts;
    struct report_findings findings;
    int64_t possible_duplicates; /* resends after a doubt where the vendor does not de-duplicate */
};

struct report_worker { /* every worker the database knows */
    char *name, *host, *version;
    int64_t pid;
    int64_t seen_ago_ms;
    int64_t in_air;
    bool self, draining;
};

struct report {
    /* this worker */
    char *name, *host, *version; /* report_set */
    int64_t pid, up_ms;
    bool draining;
    int64_t in_air, in_air_limit;
    int64_t unsettled;           /* answers known and not yet stored */
    int64_t oldest_unsettled_ms; /* AGE_NONE = none */

    /* its doings since it started */
    uint64_t claimed, settled, given_back; /* messages */
    uint64_t claims, settles;              /* batches (transactions) */
    uint64_t settled_stale;             /* settles that matched no row: the lease was another's */
    uint64_t late_news;                 /* outcomes that came after the sweeper had judged */
    uint64_t swept_unknown, swept_back; /* by the sweeper: into doubt; never begun, put back */
    uint64_t receipt_contradictions; /* messages proven not taken, and a receipt said otherwise */
    uint64_t duplicate_suspects;     /* one vendor id on two messages */
    uint64_t lease_refused;          /* calls not begun: the lease would not outlast them */
    uint64_t reuse_refused;          /* second permits and dirty connections refused (R5) */

    /* its heart */
    int64_t last_claim_ago_ms; /* last claim query that came back, with rows or none */
    int64_t last_settle_ago_ms, last_sweep_ago_ms;
    bool claim_not_wanted; /* no slot free or every provider shut: no claim is due now */

    /* the database */
    bool db_up;
    int64_t db_since_ms; /* in this condition for so long */
    char *db_error;      /* why it is down; report_set */
    uint64_t db_reconnects;
    int64_t clock_skew_ms; /* database clock minus this host's; 0 when not known */
    int schema_version, schema_wanted;
    bool cautious;         /* not the database that was adopted (R12): nothing is sent */
    int64_t counts_ago_ms; /* age of counts, lanes and workers: they come from the database */
    int64_t live_tuples, dead_tuples; /* of the table claims read; -1 = not known */
    int64_t oldest_snapshot_ms;       /* longest held snapshot in the server; AGE_NONE */
    int64_t oldest_snapshot_pid;      /* its backend; 0 = none */

    struct histogram otp; /* enqueue commit to first request, lane otp */

    struct report_count *counts;
    size_t n_counts;
    struct report_lane *lanes;
    size_t n_lanes;
    struct report_provider *providers;
    size_t n_providers;
    struct report_worker *workers;
    size_t n_workers;
};

/* Zeroed, with AGE_NONE where that means "not known". */
void report_init(struct report *r);
void report_done(struct report *r);

/* Empties lists, to fill them anew. */
enum { REPORT_COUNTS = 1, REPORT_LANES = 2, REPORT_PROVIDERS = 4, REPORT_WORKERS = 8 };
void report_clear(struct report *r, unsigned lists);

/* Replaces an owned text: report_set(&r->db_error, "could not connect"). 0 or -ENOMEM. */
int report_set(char **field, const char *text);

/* Adding the same kind and state again adds to its count. 0 or -ENOMEM. */
int report_add_count(struct report *r, const char *kind, const char *state, int64_t count);
int report_add_lane(struct report *r, const char *name, int64_t oldest_due_ms);
/* Zeroed (until_ms, seen_ago_ms: AGE_NONE), to be filled; NULL = out of memory. */
struct report_provider *report_add_provider(struct report *r, const char *name, const char *plugin);
struct report_worker *report_add_worker(struct report *r, const char *name, const char *host,
                                        const char *version);

/* ---- its forms: each returns text to free(), NULL = out of memory ---- */

/* Prometheus text format 0.0.4; REPORT_METRICS_TYPE is its content type. */
#define REPORT_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"
char *report_metrics(const struct report *r);

#define REPORT_JSON_TYPE "application/json; charset=utf-8"
char *report_json(const struct report *r);

/* ---- health ---- */

struct report_limits {
    int64_t claim_age_ms; /* a claim older than this is a dead consumer; say 2 periods + timeout */
    int64_t unsettled_age_ms; /* an answer not stored for this long; 0 = not judged */
};

/* /healthz: 200 while the worker does its work, 503 with the reasons otherwise. It asks for the
 * last successful claim, not for a living process (S6). While draining or when no claim is wanted
 * the age of the claim is not judged; answers that cannot be stored always are. For alarms and
 * balancers: do not restart a worker for it, since in an outage of the database that throws away
 * the answers it holds and makes doubts of them. A loop that stands still is the watchdog's.
 * Returns the status; *ret_body is JSON {"ok", "draining", "reasons"}, NULL = out of memory. */
unsigned report_health(const struct report *r, const struct report_limits *limits, char **ret_body);

/* /readyz: 200 when the database is up with the wanted schema, is the one that was adopted, and the
 * worker does not drain. */
unsigned report_ready(const struct report *r, char **ret_body);

#endif
