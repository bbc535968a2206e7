/* sat.h - sums and differences of times that stop at the ends of int64_t instead of wrapping.
 *
 * Pure. A time from a broken clock or a hand-made row then only means "very far away". */
#ifndef POSTRIDER_CORE_SAT_H
#define POSTRIDER_CORE_SAT_H

#include <stdint.h>

static inline int64_t sat_add(int64_t a, int64_t b)
{
    int64_t sum;

    if (__builtin_add_overflow(a, b, &sum))
        return a < 0 ? INT64_MIN : INT64_MAX;
    return sum;
}

static inline int64_t sat_sub(int64_t a, int64_t b)
{
    int64_t difference;

    if (__builtin_sub_overflow(a, b, &difference))
        return a < 0 ? INT64_MIN : INT64_MAX;
    return difference;
}

#endif
