/* decide() over every combination of what matters, against rules written a second time from the
 * outcome table, in another shape and in 128-bit arithmetic; then, over extreme times, what must
 * hold of any answer. R2, R7, R8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/backoff.h"
#include "worker/core/decide.h"

#include <inttypes.h>

__extension__ typedef __int128 wide;

struct question {
    struct policy p;
    struct capability cap;
    struct view v;
    enum outcome o;
    int64_t ra;
};

struct expected {
    enum msg_state state;
    int64_t due;
    int attempts, doubts;
    bool pinned, duplicate;
};

/* Would a request begun at t surely be recognised by the vendor as one it has? */
static bool recognised(const struct question *q, wide t)
{
    wide first = q->v.doubts > 0 ? q->v.doubt_since_ms : q->v.started_ms;

    return q->cap.dedup && !(q->p.cross_vendor_resend && q->p.on_unknown == ON_UNKNOWN_RESEND) &&
           t >= first && t + q->cap.call_ms < first + q->cap.dedup_window_ms;
}

static wide pause(const struct question *q, int n, wide wish)
{
    wide own =
        backoff_ms(q->p.backoff_base_ms, q->p.backoff_cap_ms, n > 0 ? (uint32_t)n : 1, q->v.jitter);
    wide half = ((wide)q->v.expires_ms - q->v.now_ms) / 2;

    if (wish > half)
        wish = half;
    return wish > own ? wish : own;
}

static struct expected oracle(const struct question *q)
{
    bool free = q->o == OUTCOME_THROTTLED || q->o == OUTCOME_HELD || q->o == OUTCOME_UNREACHED;
    bool doubt = (unsigned)q->o >= OUTCOME_UNKNOWN;
    bool same = recognised(q, q->v.now_ms);
    wide wish = doubt || q->o == OUTCOME_UNREACHED ? -1 : q->ra, due;
    struct expected x = {.attempts = q->v.attempts, .doubts = q->v.doubts + doubt};
    bool spent;

    if (q->o == OUTCOME_ACCEPTED || q->o == OUTCOME_REJECTED) { /* an end; whose doubts end too? */
        if (q->v.doubts > 0 && same)
            x.doubts = 0;
        x.state = q->o == OUTCOME_ACCEPTED ? MSG_SENT : x.doubts ? MSG_UNKNOWN : MSG_FAILED;
        return x;
    }
    if (free && wish > q->p.backoff_cap_ms)
        wish = q->p.backoff_cap_ms;
    due = q->v.now_ms + pause(q, free ? 1 : q->v.attempts, wish);
    spent = q->o != OUTCOME_UNREACHED && q->v.calls >= q->p.max_calls;
    spent = spent || (!free && q->v.attempts >= q->p.max_attempts);
    if (!spent && free)
        x.attempts -= x.attempts > 0;
    if (x.doubts > 0)
        x.state = MSG_UNKNOWN;
    else
        x.state = spent ? MSG_FAILED : MSG_EXPIRED;
    if (!spent && due < q->v.expires_ms)
        x.state = MSG_PENDING;
    if (doubt && x.state == MSG_PENDING && !(same && recognised(q, due))) {
        x.duplicate = q->p.on_unknown == ON_UNKNOWN_RESEND;
        x.state = x.duplicate ? MSG_PENDING : MSG_UNKNOWN;
    }
    if (x.state == MSG_PENDING) {
        x.due = (int64_t)due;
        x.pinned =
            x.doubts > 0 && !(q->p.cross_vendor_resend && q->p.on_unknown == ON_UNKNOWN_RESEND);
    }
    return x;
}

static void fail_with(const char *what, const struct question *q, const struct decision *d)
{
    fail_msg("%s: outcome %d policy %d cross %d dedup %d window %" PRId64 " attempts %d calls %d "
             "doubts %d now %" PRId64 " expires %" PRId64 " since %" PRId64 " ra %" PRId64
             " -> %s due %" PRId64 " attempts %d doubts %d pinned %d duplicate %d",
             what, (int)q->o, (int)q->p.on_unknown, q->p.cross_vendor_resend, q->cap.dedup,
             q->cap.dedup_window_ms, q->v.attempts, q->v.calls, q->v.doubts, q->v.now_ms,
             q->v.expires_ms, q->v.doubt_since_ms, q->ra, msg_state_name(d->state), d->due_ms,
             d->attempts, d->doubts, d->pinned, d->possible_duplicate);
}

static void compare(const struct question *q)
{
    struct decision d = decide(&q->p, &q->cap, &q->v, q->o, q->ra);
    struct expected x = oracle(q);

    if (d.state != x.state || (x.state == MSG_PENDING && d.due_ms != x.due) ||
        d.attempts != x.attempts || d.doubts != x.doubts || d.possible_duplicate != x.duplicate ||
        (d.state == MSG_PENDING && d.pinned != x.pinned))
        fail_with("not as the rules say", q, &d);
}

#define EACH(i, array) for (size_t i = 0; i < sizeof(array) / sizeof(*(array)); i++)

static const int counts[] = {0, 1, 2, 3, 4, 5}, doubts[] = {0, 1, 3}, calls[] = {0, 1, 19, 20};
static const int64_t ages[] = {-1, 0, 500, 95999, 96000, 97999, 98000};
static const int64_t lives[] = {-1, 0, 1, 1000, 1001, 60000, 300000};
static const int64_t wishes[] = {-1, 0, 700, 40000, 200000, INT64_MAX};
static const double jitters[] = {0.0, 0.999};

static void with_counts(struct question *q)
{
    EACH(a, counts) EACH(b, doubts) EACH(c, calls) EACH(j, jitters)
    {
        q->v.attempts = counts[a];
        q->v.doubts = doubts[b];
        q->v.calls = calls[c];
        q->v.jitter = jitters[j];
        compare(q);
    }
}

static void test_everything(void **state)
{
    struct question q = {
        .p = {.max_attempts = 4, .max_calls = 20, .backoff_base_ms = 1000, .backoff_cap_ms = 30000},
        .cap = {.dedup_window_ms = 100000, .call_ms = 2000},
        .v = {.now_ms = 1000000, .started_ms = 999500}};

    (void)state;
    for (unsigned o = 0; o <= OUTCOME_MAX_; o++) {
        for (unsigned kind = 0; kind < 12; kind++) {
            EACH(a, ages) EACH(l, lives) EACH(w, wishes)
            {
                q.o = (enum outcome)o;
                q.p.on_unknown = (enum on_unknown)(kind % 3);
                q.p.cross_vendor_resend = kind / 3 % 2;
                q.cap.dedup = kind / 6;
                q.v.doubt_since_ms = q.v.now_ms - ages[a];
                q.v.expires_ms = q.v.now_ms + lives[l];
                q.ra = wishes[w];
                with_counts(&q);
            }
        }
    }
}

/* What must hold of every answer, whatever was asked (reliability: invariants on every output). */
static void check(const struct question *q)
{
    struct decision d = decide(&q->p, &q->cap, &q->v, q->o, q->ra), gate;
    bool doubt = (unsigned)q->o >= OUTCOME_UNKNOWN;

    if (d.state == MSG_SENT && q->o != OUTCOME_ACCEPTED)
        fail_with("sent without an acceptance", q, &d);
    if (q->o == OUTCOME_ACCEPTED && d.state != MSG_SENT)
        fail_with("an acceptance got lost", q, &d);
    if ((d.state == MSG_FAILED || d.state == MSG_EXPIRED) && (d.doubts > 0 || doubt))
        fail_with("given up for good with a doubt left", q, &d);
    if (d.state == MSG_PENDING && (d.due_ms < q->v.now_ms || d.due_ms >= q->v.expires_ms))
        fail_with("due outside of its life", q, &d);
    if (d.state == MSG_PENDING && d.doubts > 0 && !d.pinned && !q->p.cross_vendor_resend)
        fail_with("not pinned", q, &d);
    if (doubt && d.state == MSG_PENDING && q->p.on_unknown != ON_UNKNOWN_RESEND && !q->cap.dedup)
        fail_with("hold sends again", q, &d);
    if (d.state == MSG_SENDING || d.state == MSG_CANCELED || d.state == MSG_SUPPRESSED)
        fail_with("not its to say", q, &d);
    if (d.state != MSG_SENT && !d.reason)
        fail_with("no reason", q, &d);
    if (!decide_dispatch(&q->p, &q->cap, &q->v, &gate) &&
        (gate.state == MSG_PENDING || gate.state == MSG_SENT))
        fail_with("the gate settles", q, &gate);
}

static void test_extremes(void **state)
{
    static const int64_t times[] = {INT64_MIN, INT64_MIN + 1, -1,       0,
                                    1000,      INT64_MAX - 1, INT64_MAX};
    static const int ints[] = {INT32_MIN, -1, 0, 1, 4, INT32_MAX};
    struct question q = {0};

    (void)state;
    EACH(a, times) EACH(b, times) EACH(c, times) EACH(d, times) EACH(e, ints)
    {
        for (unsigned o = 0; o <= OUTCOME_MAX_; o++) {
            unsigned mix = (unsigned)(a + 2 * b + 3 * c + 5 * d + 7 * e + o);

            q.o = (enum outcome)o;
            q.v.now_ms = times[a];
            q.v.expires_ms = times[b];
            q.v.doubt_since_ms = q.v.started_ms = times[c];
            q.ra = q.cap.dedup_window_ms = times[d];
            q.cap.call_ms = times[(a + d) % 7];
            q.p.backoff_base_ms = times[(b + d) % 7];
            q.p.backoff_cap_ms = times[(c + d) % 7];
            q.v.attempts = q.v.doubts = ints[e];
            q.v.calls = ints[mix % 6];
            q.p.max_attempts = q.p.max_calls = ints[mix % 5];
            q.p.on_unknown = (enum on_unknown)(mix % 4);
            q.p.cross_vendor_resend = mix % 2;
            q.cap.dedup = mix % 3;
            q.v.jitter = (mix % 10) / 10.0;
            check(&q);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything),
        cmocka_unit_test(test_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
