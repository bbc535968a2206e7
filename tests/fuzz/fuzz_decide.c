/* Any bytes as a message's whole life: a trace of outcomes, waits and late news through decide,
 * decide_dispatch, decide_late, the breaker and the lease gate, with times from anywhere. No answer
 * may break what holds of every answer. */
#include "worker/core/breaker.h"
#include "worker/core/decide.h"
#include "worker/core/lease.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(truth) ((truth) ? (void)0 : abort())

struct bytes {
    const uint8_t *p;
    size_t left;
};

static void take(struct bytes *b, void *ret, size_t n)
{
    memset(ret, 0, n);
    if (n > b->left)
        n = b->left;
    memcpy(ret, b->p, n);
    b->p += n;
    b->left -= n;
}

static int64_t number(struct bytes *b)
{
    uint8_t shift;
    int64_t value;

    take(b, &shift, 1);
    take(b, &value, sizeof(value));
    return value >> (shift & 63); /* small and large ones alike */
}

static bool flag(struct bytes *b)
{
    uint8_t byte;

    take(b, &byte, 1);
    return byte & 1;
}

static void check_decision(const struct policy *p, const struct capability *cap,
                           const struct view *v, enum outcome o, int64_t ra)
{
    struct decision d = decide(p, cap, v, o, ra);
    bool doubt = (unsigned)o >= OUTCOME_UNKNOWN;

    MUST((d.state == MSG_SENT) == (o == OUTCOME_ACCEPTED));
    MUST(d.state == MSG_SENT || d.state == MSG_PENDING || d.state == MSG_UNKNOWN ||
         d.state == MSG_FAILED || d.state == MSG_EXPIRED);
    MUST(d.state != MSG_PENDING || (d.due_ms >= v->now_ms && d.due_ms < v->expires_ms));
    MUST((d.state != MSG_FAILED && d.state != MSG_EXPIRED) || (d.doubts <= 0 && !doubt));
    MUST(d.state == MSG_SENT || d.reason);
    MUST(!doubt || d.doubts > 0);
    if (doubt && d.state == MSG_PENDING && p->on_unknown != ON_UNKNOWN_RESEND)
        MUST(cap->dedup && d.pinned && !d.possible_duplicate);
}

static void check_late(struct bytes *b, const struct policy *p, enum outcome o)
{
    struct late_view v = {.state = (enum msg_state)(number(b) & 7), .recorded = flag(b)};
    struct late_decision d;

    v.recorded_as = (enum outcome)(number(b) & 7);
    v.newer_attempt = v.state == MSG_SENDING;
    v.same_vendor_id = flag(b);
    v.rejected = flag(b);
    v.taken = flag(b);
    v.attempts = (int)number(b);
    v.doubts = (int)number(b);
    v.now_ms = number(b);
    v.expires_ms = number(b);
    d = decide_late(p, &v, o);
    MUST(d.change || (d.state == v.state && d.doubts == v.doubts && d.taken == v.taken));
    MUST(v.state != MSG_SENT || d.state == MSG_SENT);
    MUST(v.state != MSG_SENDING || d.state == MSG_SENDING);
    MUST(d.state == v.state || d.state != MSG_SENT || o == OUTCOME_ACCEPTED);
    MUST(!d.change || (v.recorded && v.recorded_as == OUTCOME_UNKNOWN && o != OUTCOME_UNKNOWN));
    MUST(!d.change || d.doubts >= 0);
    v.recorded_as = o; /* once written, it is no news any more */
    v.state = d.state;
    v.doubts = d.doubts;
    v.taken = d.taken;
    MUST(!d.change || !decide_late(p, &v, o).change);
}

static void check_breaker(struct bytes *b)
{
    struct breaker door;
    int64_t now = number(b);

    breaker_init(&door);
    while (b->left > 0) {
        int64_t wish = number(b);
        enum outcome o = (enum outcome)(number(b) & 7);

        breaker_start(&door, now);
        breaker_note(&door, o, wish, (double)(number(b) & 1023) / 1024.0, now);
        MUST(door.rounds <= 30 && door.allowed >= 1);
        if (o == OUTCOME_UNREACHED || o == OUTCOME_THROTTLED || o == OUTCOME_HELD)
            MUST(door.door == BREAKER_OPEN);
        MUST(door.door != BREAKER_OPEN || now >= door.open_until_ms ||
             breaker_allowed(&door, now) == 0);
        now = number(b);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes b = {data, size};
    struct policy p = {.on_unknown = (enum on_unknown)(number(&b) & 3),
                       .cross_vendor_resend = flag(&b)};
    struct capability cap = {.dedup = flag(&b)};
    struct view v = {.jitter = (double)(number(&b) & 1023) / 1024.0};
    struct decision d;
    int64_t ra = number(&b), call = number(&b), settle = number(&b);
    enum outcome o = (enum outcome)(number(&b) & 7);

    p.max_attempts = (int)number(&b);
    p.max_calls = (int)number(&b);
    p.backoff_base_ms = number(&b);
    p.backoff_cap_ms = number(&b);
    cap.dedup_window_ms = number(&b);
    cap.call_ms = number(&b);
    v.attempts = (int)number(&b);
    v.calls = (int)number(&b);
    v.doubts = (int)number(&b);
    v.now_ms = number(&b);
    v.expires_ms = number(&b);
    v.doubt_since_ms = number(&b);
    v.started_ms = number(&b);
    check_decision(&p, &cap, &v, o, ra);
    if (!decide_dispatch(&p, &cap, &v, &d))
        MUST(d.state == MSG_UNKNOWN || d.state == MSG_EXPIRED);
    if (lease_allows(v.now_ms, call, settle, lease_end(v.started_ms, ra)))
        MUST(call >= 0 && settle >= 0 && v.now_ms <= lease_end(v.started_ms, ra));
    check_late(&b, &p, o);
    check_breaker(&b);
    return 0;
}
