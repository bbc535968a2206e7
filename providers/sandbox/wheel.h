/* wheel.h - thousands of timers for the price of one.
 *
 * Pure: the caller tells the time (monotonic ms). A timer is embedded in its owner; adding
 * and taking away cost the same however many are armed. A timer further ahead than the wheel
 * is long stays in its slot for more rounds. */
#ifndef POSTRIDER_SANDBOX_WHEEL_H
#define POSTRIDER_SANDBOX_WHEEL_H

#include <stddef.h>
#include <stdint.h>

#define SB_WHEEL_SLOTS 8192

struct sb_timer {
    struct sb_timer *next;
    struct sb_timer **link; /* what points at this timer; NULL while not armed */
    int64_t due_ms;
};

struct sb_wheel {
    int64_t now_ms;
    size_t armed;
    struct sb_timer *slot[SB_WHEEL_SLOTS];
};

void sb_wheel_init(struct sb_wheel *w, int64_t now_ms);

/* Arms `t` (zeroed or disarmed). A time already past fires in the next expiry that moves on. */
void sb_wheel_add(struct sb_wheel *w, struct sb_timer *t, int64_t due_ms);

/* Disarms; harmless when not armed. */
void sb_wheel_del(struct sb_wheel *w, struct sb_timer *t);

/* Disarms every timer due at `now_ms` and hands it to `fire`, which may add and delete
 * timers other than the ones being fired. */
void sb_wheel_expire(struct sb_wheel *w, int64_t now_ms, void (*fire)(struct sb_timer *, void *),
                     void *arg);

#endif
