/* state.h - what one running sandbox consists of. Internal to this folder.
 *
 * sandbox.c owns it; server.c moves bytes, vendor.c decides about messages, api.c and its
 * siblings show and steer. One thread, one libev loop. */
#ifndef POSTRIDER_SANDBOX_STATE_H
#define POSTRIDER_SANDBOX_STATE_H

#include <ev.h>
#include <microhttpd.h>
#include <stdio.h>

#include "providers/sandbox/inbox.h"
#include "providers/sandbox/knobs.h"
#include "providers/sandbox/latency.h"
#include "providers/sandbox/ledger.h"
#include "providers/sandbox/meter.h"
#include "providers/sandbox/wheel.h"

#define SB_STATUS_MAX 600
#define SB_BODY_MAX   (64u * 1024) /* of a vendor request or a knob change */

struct sb_stats {
    uint64_t requests;               /* vendor requests read in full */
    uint64_t by_reason[SB_REASONS_]; /* sums up to requests */
    uint64_t answered[SB_STATUS_MAX];
    uint64_t reset, closed, hung; /* not answered, and how */
    uint64_t incomplete;          /* connections lost in the middle of a request */
    uint64_t bytes;               /* of vendor request bodies */
    uint64_t in_air, max_in_air;  /* read, not yet answered or dropped */
};

struct sb_req;
struct sb_wait;
struct sb_world;

struct sandbox {
    struct ev_loop *loop;
    struct sb_knobs knobs;
    struct sb_stats stats;
    struct sb_ledger *ledger;
    struct sb_inbox *inbox;
    struct sb_meter arrivals, admitted;
    struct sb_hist *delay[SB_LANES]; /* first delivery minus producer's time; NULL until used */
    FILE *log;                       /* --ledger-file, or NULL */
    uint64_t instance;               /* makes vendor ids unique across runs */
    uint64_t vendor_no;              /* of the latest delivery; survives a reset */
    int64_t start_ms;                /* monotonic */
    struct sb_wait *waits;           /* long polls, see wait.c */
    struct sb_world *world;          /* the dialect spoken; NULL: none */

    /* server.c */
    struct MHD_Daemon *daemon;
    struct sb_wheel wheel;      /* answers, to the ms */
    struct sb_wheel slow_wheel; /* silences and long polls */
    ev_io accept_io, daemon_io;
    ev_timer tick, again, housekeeping;
    int listen_fd;
    char host[256];
    uint16_t port;
    bool listening, stopping;
    uint64_t connections, connections_total;
    struct sb_req *idle; /* request records for reuse */
    size_t idle_count;
};

int64_t sb_mono_ms(void);
double sb_mono_exact_ms(void);
int64_t sb_wall_us(void); /* since the epoch */

/* Seconds since start, what timed knobs count in. */
double sb_elapsed_s(const struct sandbox *sb);

#endif
