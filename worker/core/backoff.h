/* backoff.h - how long to wait before try n+1.
 *
 * Doubling with "equal jitter": half of the wait is fixed, half is drawn, so that rows that
 * failed together do not come back together and yet none comes back at once.
 * Source: Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015:
 *     temp = min(cap, base * 2 ** attempt);  sleep = temp / 2 + random_between(0, temp / 2)
 * with attempt counted from 0 there and from 1 here.
 *
 * Pure: the caller draws the jitter, so a test is exact, and keeps the answer within the
 * message's deadline. Milliseconds. */
#ifndef POSTRIDER_CORE_BACKOFF_H
#define POSTRIDER_CORE_BACKOFF_H

#include <stdint.h>

/* The whole wait after failed attempt n (from 1; 0 counts as 1): min(cap, base * 2^(n-1)).
 * A base or cap below 1 counts as 1. Never overflows, never falls as n grows. */
int64_t backoff_full_ms(int64_t base_ms, int64_t cap_ms, uint32_t n);

/* A wait in [full - full / 2, full], so never 0; higher jitter, longer wait. jitter01 in
 * [0, 1]; what lies outside is moved to the nearest end, NaN to 0. Cannot fail. */
int64_t backoff_ms(int64_t base_ms, int64_t cap_ms, uint32_t n, double jitter01);

#endif
