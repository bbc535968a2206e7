/* Relations between two answers of decide(): no oracle, only what a change of the question may
 * change. Policy order, capability order, time shift, scale, 429 neutrality, Retry-After, jitter.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/decide.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { QUESTIONS = 200000 };

static unsigned short seed[3] = {7, 3, 2};

static long draw(long below)
{
    return nrand48(seed) % below;
}

struct question {
    struct policy p;
    struct capability cap;
    struct view v;
    enum outcome o;
    int64_t ra;
};

static struct question ask(void)
{
    struct question q = {
        .p = {.on_unknown = (enum on_unknown)draw(3),
              .max_attempts = 1 + (int)draw(5),
              .max_calls = 5 + (int)draw(10),
              .backoff_base_ms = 1 + draw(3000),
              .backoff_cap_ms = 3000 + draw(100000),
              .cross_vendor_resend = draw(4) == 0},
        .cap = {.dedup = draw(2), .dedup_window_ms = draw(200000), .call_ms = 2000},
        .o = (enum outcome)draw(OUTCOME_MAX_),
        .ra = draw(2) ? -1 : draw(400000)};

    q.v = (struct view){.attempts = 1 + (int)draw(5),
                        .calls = (int)draw(15),
                        .doubts = (int)draw(3),
                        .now_ms = 1000000,
                        .expires_ms = 1000000 + draw(400000) - 1000,
                        .doubt_since_ms = 1000000 - draw(200000),
                        .started_ms = 999000,
                        .jitter = draw(1000) / 1000.0};
    return q;
}

static struct decision answer(const struct question *q)
{
    return decide(&q->p, &q->cap, &q->v, q->o, q->ra);
}

static bool same(struct decision a, struct decision b)
{
    return a.state == b.state && a.due_ms == b.due_ms && a.attempts == b.attempts &&
           a.doubts == b.doubts && a.pinned == b.pinned &&
           a.possible_duplicate == b.possible_duplicate && a.reason == b.reason;
}

static void test_function(void **state)
{
    (void)state;
    for (int i = 0; i < QUESTIONS; i++) {
        struct question q = ask();

        assert_true(same(answer(&q), answer(&q)));
    }
}

static void test_time_shift(void **state)
{
    (void)state;
    for (int i = 0; i < QUESTIONS; i++) {
        struct question q = ask(), r = q;
        int64_t by = draw(2) ? -draw(INT32_MAX) : draw(INT32_MAX);
        struct decision d = answer(&q), e;

        r.v.now_ms += by;
        r.v.expires_ms += by;
        r.v.doubt_since_ms += by;
        r.v.started_ms += by;
        e = answer(&r);
        if (d.state == MSG_PENDING)
            d.due_ms += by;
        assert_true(same(d, e));
    }
}

/* What hold sends again, ask does; what ask sends again, resend does. And the gate alike. */
static void test_policy_order(void **state)
{
    (void)state;
    for (int i = 0; i < QUESTIONS; i++) {
        struct question q = ask();
        bool sends = false, goes = false;

        q.p.cross_vendor_resend = false;
        for (int policy = 0; policy < ON_UNKNOWN_MAX_; policy++) {
            struct decision d;
            bool go;

            q.p.on_unknown = (enum on_unknown)policy;
            go = decide_dispatch(&q.p, &q.cap, &q.v, &d);
            if (goes && !go)
                fail_msg("question %d: the gate of a bolder policy is shut", i);
            goes = go;
            d = answer(&q);
            if (sends && d.state != MSG_PENDING)
                fail_msg("question %d: a bolder policy sends less", i);
            sends = d.state == MSG_PENDING;
        }
    }
}

static int definite(enum msg_state state)
{
    return state == MSG_UNKNOWN ? 0 : 1;
}

static void test_capability_order(void **state)
{
    (void)state;
    for (int i = 0; i < QUESTIONS; i++) {
        struct question q = ask();
        struct decision plain, dedup, wider;

        q.cap.dedup = false;
        plain = answer(&q);
        q.cap.dedup = true;
        dedup = answer(&q);
        q.cap.dedup_window_ms += draw(100000);
        wider = answer(&q);
        assert_true(dedup.possible_duplicate <= plain.possible_duplicate);
        assert_true(wider.possible_duplicate <= dedup.possible_duplicate);
        assert_true(definite(dedup.state) >= definite(plain.state));
        assert_true(definite(wider.state) >= definite(dedup.state));
        assert_true(dedup.doubts <= plain.doubts && wider.doubts <= dedup.doubts);
    }
}

static void test_fewer_attempts(void **state)
{
    (void)state;
    for (int i = 0; i < QUESTIONS; i++) {
        struct question q = ask(), r = q;

        r.p.max_attempts /= 2;
        r.p.max_calls /= 2;
        if (answer(&r).state == MSG_PENDING)
            assert_int_equal(answer(&q).state, MSG_PENDING);
    }
}

static void test_retry_after(void **state)
{
    (void)state;
    for (int i = 0; i < QUESTIONS; i++) {
        struct question q = ask(), r = q;
        struct decision d, e;

        q.ra = draw(100000);
        r.ra = q.ra + draw(1000000);
        d = answer(&q);
        e = answer(&r);
        assert_int_equal(d.state, e.state); /* a wish kills nobody */
        assert_true(e.due_ms >= d.due_ms);
        q.ra = -1;
        r.ra = -1 - draw(1000000);
        assert_true(same(answer(&q), answer(&r)));
    }
}

/* k answers 429 before an answer change only the time and the calls. */
static void test_429(void **state)
{
    (void)state;
    for (int i = 0; i < QUESTIONS; i++) {
        struct question q = ask(), r = q;
        struct decision want, got;

        r.p.max_calls = q.p.max_calls = 1000;
        r.v.expires_ms = q.v.expires_ms = INT64_MAX / 2;
        r.cap.dedup_window_ms = q.cap.dedup_window_ms = INT64_MAX / 2;
        want = answer(&q);
        for (long k = draw(5); k > 0; k--) {
            struct decision d;

            r.o = OUTCOME_THROTTLED;
            d = answer(&r);
            assert_int_equal(d.state, MSG_PENDING);
            assert_int_equal(d.attempts, r.v.attempts - 1);
            assert_int_equal(d.doubts, r.v.doubts);
            r.v.attempts = d.attempts + 1; /* claimed again */
            r.v.calls++;
            r.v.now_ms = d.due_ms;
        }
        r.o = q.o;
        got = answer(&r);
        if (got.state != want.state || got.attempts != want.attempts || got.doubts != want.doubts ||
            got.pinned != want.pinned || got.possible_duplicate != want.possible_duplicate)
            fail_msg("question %d: %s after throttling, %s without", i, msg_state_name(got.state),
                     msg_state_name(want.state));
    }
}

/* Better knowledge of the same attempt: accepted leads to sent; proven not taken leaves no more
 * doubts than not knowing, and under hold allows nothing that a clean history does not. */
static void test_information(void **state)
{
    (void)state;
    for (int i = 0; i < QUESTIONS; i++) {
        struct question q = ask(), r = q;
        struct decision doubt, known;

        q.o = OUTCOME_UNKNOWN;
        doubt = answer(&q);
        r.o = OUTCOME_ACCEPTED;
        assert_int_equal(answer(&r).state, MSG_SENT);
        r.o = (enum outcome)(1 + draw(OUTCOME_UNKNOWN - 1));
        known = answer(&r);
        assert_true(known.doubts < doubt.doubts);
        assert_false(known.possible_duplicate);
        r.v.doubts = 0;
        if (known.state == MSG_PENDING)
            assert_int_equal(answer(&r).state, MSG_PENDING);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_function),
        cmocka_unit_test(test_time_shift),
        cmocka_unit_test(test_policy_order),
        cmocka_unit_test(test_capability_order),
        cmocka_unit_test(test_fewer_attempts),
        cmocka_unit_test(test_retry_after),
        cmocka_unit_test(test_429),
        cmocka_unit_test(test_information),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
