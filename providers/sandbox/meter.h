/* meter.h - how many events the last second held, and the most any second held.
 *
 * Pure: the caller tells the time (monotonic ms). The second slides by whole milliseconds,
 * so a burst across the border of two clock seconds is seen for what it is. */
#ifndef POSTRIDER_SANDBOX_METER_H
#define POSTRIDER_SANDBOX_METER_H

#include <stdint.h>

#define SB_METER_MS 1000

struct sb_meter {
    int64_t now_ms;
    uint64_t sum;  /* events in the SB_METER_MS that end now */
    uint64_t peak; /* largest sum ever */
    uint32_t slot[SB_METER_MS];
};

/* Events in the last second. Time that goes backwards is taken as standing still. */
uint64_t sb_meter_rate(struct sb_meter *m, int64_t now_ms);

void sb_meter_add(struct sb_meter *m, int64_t now_ms);

#endif
