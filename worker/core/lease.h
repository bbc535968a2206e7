/* lease.h - how long a claim may be acted on, and when another's claim may be taken for dead.
 *
 * Pure. Milliseconds. `boot` is CLOCK_BOOTTIME: it counts through a suspend, so a worker that
 * was stopped or whose host slept sees that its lease is over (rule R4). The database writes its
 * own lease end, later than ours in real time; neither clock is ever compared with the other.
 *
 *     t0        = boot before the claim was sent
 *     our end   = t0 + lease * 0.99           (1 % covers any difference of clock rates)
 *     may start = boot + call + settle <= our end
 */
#ifndef POSTRIDER_CORE_LEASE_H
#define POSTRIDER_CORE_LEASE_H

#include <stdbool.h>
#include <stdint.h>

int64_t lease_end(int64_t t0_boot_ms, int64_t lease_ms);

/* The gate: a call of at most call_ms, and storing its outcome, end inside the lease. */
bool lease_allows(int64_t boot_ms, int64_t call_ms, int64_t settle_ms, int64_t end_boot_ms);

/* The sweeper's distrust of clocks (rule R10). One per sweeper. Zero it (`= {0}`): the first
 * look then counts as a new connection. */
struct sweep_guard {
    bool looked;
    int64_t db_ms, boot_ms; /* at the last look */
    int64_t wait_until_ms;  /* boot: nothing is swept before */
};

/* A new connection, or another database behind it: start over. */
void sweep_guard_reset(struct sweep_guard *g);

struct sweep_look {
    int64_t db_ms;   /* the database's clock */
    int64_t boot_ms; /* ours, in the same moment */
    int64_t lease_ms;
    unsigned leases;       /* all leases there are */
    unsigned over;         /* of them, how many have ended */
    unsigned over_workers; /* workers those belong to */
};

enum sweep_verdict {
    SWEEP_GO = 0,
    SWEEP_WAIT,       /* still distrustful */
    SWEEP_WAIT_FRESH, /* from here on: first look on this connection, waits one lease */
    SWEEP_WAIT_DRIFT, /* the two clocks moved apart by more than 2 s between two looks */
    SWEEP_WAIT_MANY,  /* many leases of several workers ended at once: a clock jumped */
};

enum sweep_verdict sweep_guard_look(struct sweep_guard *g, const struct sweep_look *look);

/* The tolerated step of a clock between two looks, and the share of leases that may end at
 * once before it looks like a jump (with a floor, as two of three is no crowd). */
#define SWEEP_DRIFT_MS   2000
#define SWEEP_MANY_SHARE 0.05
#define SWEEP_MANY_FLOOR 10

#endif
