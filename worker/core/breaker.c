#include "worker/core/breaker.h"

#include <limits.h>

#include "worker/core/backoff.h"
#include "worker/core/sat.h"

void breaker_init(struct breaker *b)
{
    *b = (struct breaker){.door = BREAKER_CLOSED, .allowed = UINT_MAX};
}

unsigned breaker_allowed(const struct breaker *b, int64_t now_ms)
{
    if (b->door == BREAKER_OPEN)
        return now_ms < b->open_until_ms ? 0 : 1;
    return b->allowed;
}

void breaker_start(struct breaker *b, int64_t now_ms)
{
    if (b->door == BREAKER_OPEN && now_ms >= b->open_until_ms) {
        b->door = BREAKER_PROBING;
        b->allowed = 1;
    }
}

/* How long the vendor asked for. Jitter only ever adds: its word is not undercut. */
static int64_t wish_ms(enum outcome outcome, int64_t retry_after_ms, double jitter)
{
    if (retry_after_ms < 0 || outcome == OUTCOME_UNREACHED) /* unreached: nobody answered */
        return 0;
    if (retry_after_ms > BREAKER_RETRY_AFTER_CAP_MS)
        retry_after_ms = BREAKER_RETRY_AFTER_CAP_MS;
    return retry_after_ms + (int64_t)(jitter * 0.1 * (double)retry_after_ms);
}

static int64_t pause_ms(const struct breaker *b, enum outcome outcome, int64_t retry_after_ms,
                        double jitter)
{
    int64_t wish = wish_ms(outcome, retry_after_ms, jitter), own;
    unsigned n = b->rounds + 1;

    if (outcome == OUTCOME_HELD)
        own = backoff_ms(5000, 300000, n, jitter);
    else if (outcome == OUTCOME_UNREACHED)
        own = backoff_ms(200, 5000, n, jitter);
    else if (retry_after_ms < 0)
        own = backoff_ms(1000, 30000, n, jitter);
    else
        own = backoff_ms(200, 1000, n, jitter); /* "Retry-After: 0" is no reason to spin */
    return wish > own ? wish : own;
}

static bool shut(struct breaker *b, enum outcome outcome, int64_t retry_after_ms, double jitter,
                 int64_t now_ms)
{
    bool was_shut = b->door != BREAKER_CLOSED;

    /* Answers of calls that started before the door was shut prolong nothing, except that a
     * longer wish of the vendor is heard. */
    if (b->door == BREAKER_OPEN) {
        int64_t until = sat_add(now_ms, wish_ms(outcome, retry_after_ms, jitter));

        if (until > b->open_until_ms)
            b->open_until_ms = until;
        return false;
    }
    b->open_until_ms = sat_add(now_ms, pause_ms(b, outcome, retry_after_ms, jitter));
    b->door = BREAKER_OPEN;
    b->why = outcome;
    b->rounds = b->rounds < 30 ? b->rounds + 1 : 30;
    return !was_shut;
}

static void answered(struct breaker *b)
{
    if (b->door == BREAKER_OPEN)
        return; /* a straggler of the time before */
    if (b->door == BREAKER_PROBING) {
        b->door = BREAKER_CLOSED;
        b->allowed = 2;
        return;
    }
    if (b->allowed == UINT_MAX)
        return;
    b->allowed++; /* one more per answer doubles it each round */
    if (b->allowed > 100000) {
        b->allowed = UINT_MAX;
    }
    b->rounds = b->allowed > 16 ? 0 : b->rounds;
}

bool breaker_note(struct breaker *b, enum outcome outcome, int64_t retry_after_ms, double jitter,
                  int64_t now_ms)
{
    switch (outcome) {
    case OUTCOME_UNREACHED:
    case OUTCOME_THROTTLED:
    case OUTCOME_HELD:
        return shut(b, outcome, retry_after_ms, jitter, now_ms);
    case OUTCOME_ACCEPTED:
    case OUTCOME_REJECTED:
        answered(b);
        return false;
    case OUTCOME_REFUSED:
    case OUTCOME_UNKNOWN:
    case OUTCOME_MAX_:
    default:
        /* Says nothing sure about the vendor: a probe that ended so is tried once more. */
        if (b->door == BREAKER_PROBING) {
            b->door = BREAKER_OPEN;
            b->open_until_ms = sat_add(now_ms, backoff_ms(200, 5000, b->rounds + 1, jitter));
            b->rounds = b->rounds < 30 ? b->rounds + 1 : 30; /* each such probe may be a doubt */
        }
        return false;
    }
}
