/* latency.h - how long a simulated answer takes, and how long real ones took.
 *
 * Pure: no clock, no I/O. Sampling follows a log-normal distribution, the usual shape of
 * answer times, given by its median and its 99th percentile. The histogram is log-scaled: 32
 * steps an octave, so a percentile read from it is at most 1/32 (3.2 %) above the truth, at
 * a fixed size whatever it has seen. */
#ifndef POSTRIDER_SANDBOX_LATENCY_H
#define POSTRIDER_SANDBOX_LATENCY_H

#include <stdint.h>

/* One sample in ms. `u1` and `u2` are uniform in [0,1). A p99_ms not above p50_ms means the
 * constant p50_ms. Never negative, at most SB_LATENCY_MAX_MS. */
double sb_latency_sample(double p50_ms, double p99_ms, double u1, double u2);

#define SB_LATENCY_MAX_MS 600000.0

#define SB_HIST_BUCKETS   1280 /* 32 steps for each of 40 octaves: 1 us to 12 days */

struct sb_hist {
    uint64_t count;
    uint64_t max_us;
    uint64_t bucket[SB_HIST_BUCKETS];
};

/* Counts one value; a negative one (clocks apart) counts as 0. */
void sb_hist_add(struct sb_hist *h, int64_t us);

/* The value below or at which `q` (0 to 1) of all values lie, rounded up to its bucket's end
 * but never above the largest seen; 0 while empty. Microseconds. */
uint64_t sb_hist_quantile(const struct sb_hist *h, double q);

#endif
