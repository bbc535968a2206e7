#include "worker/core/backoff.h"

static int64_t at_least_1(int64_t ms)
{
    return ms < 1 ? 1 : ms;
}

int64_t backoff_full_ms(int64_t base_ms, int64_t cap_ms, uint32_t n)
{
    int64_t base = at_least_1(base_ms), cap = at_least_1(cap_ms);
    uint32_t doublings = n > 1 ? n - 1 : 0;

    /* base << doublings > cap, asked without the overflow; a shift by 63 leaves no cap. */
    if (doublings >= 63 || base > cap >> doublings)
        return cap;
    return base << doublings;
}

int64_t backoff_ms(int64_t base_ms, int64_t cap_ms, uint32_t n, double jitter01)
{
    int64_t full = backoff_full_ms(base_ms, cap_ms, n);
    int64_t drawn = full / 2, fixed = full - drawn;

    if (jitter01 >= 1.0)
        return full;
    if (!(jitter01 > 0.0)) /* written so that NaN comes here too */
        return fixed;
    /* A jitter below 1 is at most 1 - 2^-53, which takes at least one step off the product: it
     * stays below `drawn` even where the conversion to double had rounded that up. */
    return fixed + (int64_t)((double)drawn * jitter01);
}
