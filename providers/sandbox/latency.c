#include "providers/sandbox/latency.h"

#include <math.h>

/* Standard normal quantile of 0.99: p99 = exp(mu + Z99 * sigma) of a log-normal. */
#define Z99       2.3263478740408408
#define TWO_PI    6.283185307179586

#define STEPS     32u
#define STEP_BITS 5

double sb_latency_sample(double p50_ms, double p99_ms, double u1, double u2)
{
    double ms = p50_ms;

    if (p50_ms > 0 && p99_ms > p50_ms) {
        double sigma = log(p99_ms / p50_ms) / Z99;
        /* Box and Muller; 1 - u1 is never 0 */
        double normal = sqrt(-2.0 * log(1.0 - u1)) * cos(TWO_PI * u2);
        ms = p50_ms * exp(sigma * normal);
    }
    if (!(ms > 0))
        return 0;
    return ms < SB_LATENCY_MAX_MS ? ms : SB_LATENCY_MAX_MS;
}

/* Values below STEPS have a bucket each; above, the top STEP_BITS + 1 bits choose it. */
static unsigned bucket_of(uint64_t us)
{
    if (us < STEPS)
        return (unsigned)us;
    unsigned shift = 63u - (unsigned)__builtin_clzll(us) - STEP_BITS;
    uint64_t index = (uint64_t)(shift + 1) * STEPS + ((us >> shift) - STEPS);
    return index < SB_HIST_BUCKETS ? (unsigned)index : SB_HIST_BUCKETS - 1;
}

/* The largest value that falls into a bucket. */
static uint64_t bucket_end(unsigned index)
{
    if (index < STEPS)
        return index;
    unsigned shift = index / STEPS - 1;
    return ((uint64_t)(index % STEPS + STEPS + 1) << shift) - 1;
}

void sb_hist_add(struct sb_hist *h, int64_t us)
{
    uint64_t value = us > 0 ? (uint64_t)us : 0;

    h->count++;
    h->bucket[bucket_of(value)]++;
    if (value > h->max_us)
        h->max_us = value;
}

uint64_t sb_hist_quantile(const struct sb_hist *h, double q)
{
    uint64_t want = (uint64_t)ceil(q * (double)h->count);
    uint64_t seen = 0;

    if (h->count == 0)
        return 0;
    for (unsigned i = 0; i < SB_HIST_BUCKETS; i++) {
        seen += h->bucket[i];
        if (seen >= want && seen > 0)
            return bucket_end(i) < h->max_us ? bucket_end(i) : h->max_us;
    }
    return h->max_us;
}
