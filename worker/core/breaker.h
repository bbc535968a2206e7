/* breaker.h - whether a provider may be called now, and by how many at once.
 *
 * Pure: the caller tells the time (ms of one monotonic axis). Only outcomes that speak about the
 * vendor count, never a bad number (rule R8). What is proven not taken closes the door:
 * unreached (growing pauses), throttled (as long as the vendor says), held (no money, wrong
 * credentials, wrong certificate: long pauses, an alert). After a pause one probe goes first; then
 * the door opens step by step, doubling with each round of answers as in TCP slow start
 * (RFC 5681), so that a returning vendor does not meet everybody at once. */
#ifndef POSTRIDER_CORE_BREAKER_H
#define POSTRIDER_CORE_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/core/outcome.h"

enum breaker_door {
    BREAKER_CLOSED = 0, /* calls flow */
    BREAKER_OPEN,       /* none until open_until_ms */
    BREAKER_PROBING,    /* one call decides */
};

struct breaker {
    enum breaker_door door;
    enum outcome why; /* while not closed */
    int64_t open_until_ms;
    unsigned rounds;  /* pauses in a row */
    unsigned allowed; /* most calls in the air; UINT32_MAX once fully open */
};

void breaker_init(struct breaker *b);

/* How many calls may be in the air now. */
unsigned breaker_allowed(const struct breaker *b, int64_t now_ms);

/* A call starts: turns an over pause into probing. */
void breaker_start(struct breaker *b, int64_t now_ms);

/* A call ended. retry_after_ms < 0: none named. `jitter` in [0, 1). Returns true when the door
 * was shut by this outcome and was not shut before (log and alert once). */
bool breaker_note(struct breaker *b, enum outcome outcome, int64_t retry_after_ms, double jitter,
                  int64_t now_ms);

/* Longest a vendor's Retry-After is believed. */
#define BREAKER_RETRY_AFTER_CAP_MS (INT64_C(10) * 60 * 1000)

#endif
