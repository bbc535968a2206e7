/* What follows a doubt at a vendor that can be asked, and what follows a look-up. The expected
 * values are those of the promise (ARCHITECTURE.md, R6 and R7), written out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/decide.h"

enum { NOW = 1000000, LIFE = 600000, DELAY = 5000, CALL = 2000 };

static struct policy policy_of(enum on_unknown on_unknown)
{
    return (struct policy){.on_unknown = on_unknown,
                           .max_attempts = 4,
                           .max_calls = 100,
                           .backoff_base_ms = 1000,
                           .backoff_cap_ms = 30000};
}

static const struct capability askable = {
    .call_ms = CALL, .asking = ASKING_BY_KEY, .ask_delay_ms = DELAY};

static struct view view_of_first(void)
{
    return (struct view){.attempts = 1,
                         .calls = 1,
                         .now_ms = NOW,
                         .expires_ms = NOW + LIFE,
                         .started_ms = NOW - CALL,
                         .jitter = 0.5};
}

/* ---- after the doubt ---- */

static void a_doubt_is_asked_about_first(void **state)
{
    (void)state;
    for (int i = 0; i < ON_UNKNOWN_MAX_; i++) {
        struct policy p = policy_of((enum on_unknown)i);
        struct view v = view_of_first();
        struct decision d = decide(&p, &askable, &v, OUTCOME_UNKNOWN, -1);

        assert_int_equal(d.state, MSG_UNKNOWN);
        assert_int_equal(d.doubts, 1);
        assert_true(d.ask);
        assert_int_equal(d.ask_ms, CALL + DELAY); /* the vendor may still read, then index */
        assert_false(d.possible_duplicate);
        assert_string_equal(d.reason, "asking the vendor");
    }
}

static void who_cannot_be_asked_is_not(void **state)
{
    struct policy p = policy_of(ON_UNKNOWN_HOLD);
    struct capability by_id = askable, none = {.call_ms = CALL};
    struct view v = view_of_first();

    (void)state;
    by_id.asking = ASKING_BY_ID;
    assert_false(decide(&p, &none, &v, OUTCOME_UNKNOWN, -1).ask);
    assert_false(decide(&p, &by_id, &v, OUTCOME_UNKNOWN, -1).ask);
    v.has_vendor_id = true;
    assert_true(decide(&p, &by_id, &v, OUTCOME_UNKNOWN, -1).ask);
}

/* Late is worse than double there: no look-up that eats half of what is left. */
static void a_code_about_to_expire_is_sent_again(void **state)
{
    struct policy p = policy_of(ON_UNKNOWN_RESEND);
    struct view v = view_of_first();
    struct decision d;

    (void)state;
    v.expires_ms = NOW + 10 * (CALL + DELAY);
    d = decide(&p, &askable, &v, OUTCOME_UNKNOWN, -1);
    assert_int_equal(d.state, MSG_PENDING);
    assert_true(d.possible_duplicate);
    v.expires_ms += 10;
    assert_int_equal(decide(&p, &askable, &v, OUTCOME_UNKNOWN, -1).state, MSG_UNKNOWN);
    p.cross_vendor_resend = true; /* another vendor may have it: this one's word is not enough */
    assert_int_equal(decide(&p, &askable, &v, OUTCOME_UNKNOWN, -1).state, MSG_PENDING);
}

static void the_same_key_comes_before_a_question(void **state)
{
    struct policy p = policy_of(ON_UNKNOWN_HOLD);
    struct capability both = askable;
    struct view v = view_of_first();
    struct decision d;

    (void)state;
    both.dedup = true;
    both.dedup_window_ms = 3600000;
    d = decide(&p, &both, &v, OUTCOME_UNKNOWN, -1);
    assert_int_equal(d.state, MSG_PENDING);
    assert_false(d.ask);
    v.attempts = 4; /* used up: then at least ask */
    d = decide(&p, &both, &v, OUTCOME_UNKNOWN, -1);
    assert_int_equal(d.state, MSG_UNKNOWN);
    assert_true(d.ask);
}

/* A later rejection does not speak for an earlier doubt: the doubt stays to be asked about. */
static void a_doubt_left_behind_is_asked_about(void **state)
{
    struct policy p = policy_of(ON_UNKNOWN_ASK);
    struct view v = view_of_first();
    struct decision d;

    (void)state;
    v.doubts = 1;
    v.doubt_since_ms = NOW - 60000;
    d = decide(&p, &askable, &v, OUTCOME_REJECTED, -1);
    assert_int_equal(d.state, MSG_UNKNOWN);
    assert_true(d.ask);
    assert_int_equal(decide(&p, &askable, &v, OUTCOME_ACCEPTED, -1).state, MSG_SENT);
    assert_false(decide(&p, &askable, &v, OUTCOME_ACCEPTED, -1).ask);
}

static void what_was_asked_may_be_sent(void **state)
{
    struct policy p = policy_of(ON_UNKNOWN_ASK);
    struct view v = view_of_first();
    struct decision d = {.state = MSG_STATE_MAX_};

    (void)state;
    v.attempts = 2;
    v.doubts = 1;
    v.doubt_since_ms = NOW - 60000;
    assert_false(decide_dispatch(&p, &askable, &v, &d));
    assert_int_equal(d.state, MSG_UNKNOWN);
    assert_true(d.ask);
    v.asked = true;
    assert_true(decide_dispatch(&p, &askable, &v, &d));
}

/* ---- after a look-up ---- */

static struct ask_view asked(int tries, int misses)
{
    return (struct ask_view){.tries = tries,
                             .misses = misses,
                             .attempts = 1,
                             .calls = 1,
                             .now_ms = NOW,
                             .expires_ms = NOW + LIFE,
                             .doubt_since_ms = NOW - 20000,
                             .jitter = 0.5};
}

struct row {
    enum on_unknown policy;
    bool proves;
    int tries, misses;
    enum finding finding;
    enum ask_next next;
    int misses_after;
};

static void table(void **state)
{
    static const struct row rows[] = {
        {ON_UNKNOWN_HOLD, false, 1, 0, FINDING_HAS_IT, ASK_ACCEPTED, 0},
        {ON_UNKNOWN_ASK, false, 12, 1, FINDING_HAS_IT, ASK_ACCEPTED, 1},
        {ON_UNKNOWN_RESEND, true, 1, 0, FINDING_REFUSED_IT, ASK_REJECTED, 0},
        /* once is not enough: a gateway may still hold it */
        {ON_UNKNOWN_HOLD, true, 1, 0, FINDING_NEVER_SEEN, ASK_AGAIN, 1},
        {ON_UNKNOWN_ASK, false, 1, 0, FINDING_NEVER_SEEN, ASK_AGAIN, 1},
        {ON_UNKNOWN_RESEND, false, 1, 0, FINDING_NEVER_SEEN, ASK_RESEND, 1},
        {ON_UNKNOWN_ASK, false, 2, 1, FINDING_NEVER_SEEN, ASK_RESEND, 2},
        /* at most once: a label, never another send ... */
        {ON_UNKNOWN_HOLD, false, 2, 1, FINDING_NEVER_SEEN, ASK_AGAIN, 2},
        {ON_UNKNOWN_HOLD, false, ASK_TRIES, 5, FINDING_NEVER_SEEN, ASK_STOP, 6},
        /* ... unless the vendor's "never seen" is a proof (U6) */
        {ON_UNKNOWN_HOLD, true, 2, 1, FINDING_NEVER_SEEN, ASK_NOT_TAKEN, 2},
        {ON_UNKNOWN_ASK, true, 2, 1, FINDING_NEVER_SEEN, ASK_NOT_TAKEN, 2},
        {ON_UNKNOWN_HOLD, false, 3, 0, FINDING_CANNOT_SAY, ASK_AGAIN, 0},
        {ON_UNKNOWN_ASK, false, 3, 1, FINDING_CANNOT_SAY, ASK_AGAIN, 1},
        {ON_UNKNOWN_ASK, false, ASK_TRIES, 1, FINDING_CANNOT_SAY, ASK_STOP, 1},
        {ON_UNKNOWN_RESEND, false, 1, 0, FINDING_CANNOT_SAY, ASK_AGAIN, 0},
        {ON_UNKNOWN_RESEND, false, 2, 0, FINDING_CANNOT_SAY, ASK_RESEND, 0},
        {ON_UNKNOWN_HOLD, false, 1, 0, FINDING_MAX_, ASK_AGAIN, 0}, /* no word of ours */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct row *r = &rows[i];
        struct policy p = policy_of(r->policy);
        struct capability cap = askable;
        struct ask_view v = asked(r->tries, r->misses);
        struct ask_decision d;

        cap.absence_proves = r->proves;
        d = decide_ask(&p, &cap, &v, r->finding, -1);
        if (d.next != r->next || d.misses != r->misses_after)
            fail_msg("row %zu: next %d misses %d", i, (int)d.next, d.misses);
    }
}

static void limits_of_another_send(void **state)
{
    struct policy p = policy_of(ON_UNKNOWN_ASK);
    struct ask_view v = asked(2, 1);

    (void)state;
    v.canceled = true;
    assert_int_equal(decide_ask(&p, &askable, &v, FINDING_NEVER_SEEN, -1).next, ASK_AGAIN);
    v = asked(2, 1);
    v.attempts = 4;
    assert_int_equal(decide_ask(&p, &askable, &v, FINDING_NEVER_SEEN, -1).next, ASK_AGAIN);
    v = asked(2, 1);
    v.calls = 100;
    assert_int_equal(decide_ask(&p, &askable, &v, FINDING_NEVER_SEEN, -1).next, ASK_AGAIN);
    v = asked(2, 1);
    v.expires_ms = NOW;
    assert_int_equal(decide_ask(&p, &askable, &v, FINDING_NEVER_SEEN, -1).next, ASK_AGAIN);
}

/* Never sooner than the vendor's index, ever later, heeding Retry-After, inside its window. */
static void pauses(void **state)
{
    struct policy p = policy_of(ON_UNKNOWN_HOLD);
    struct capability cap = askable;
    int64_t last = 0;

    (void)state;
    for (int tries = 1; tries < ASK_TRIES; tries++) {
        struct ask_view v = asked(tries, 0);
        struct ask_decision low, high, told;

        v.jitter = 0;
        low = decide_ask(&p, &cap, &v, FINDING_CANNOT_SAY, -1);
        v.jitter = 0.999;
        high = decide_ask(&p, &cap, &v, FINDING_CANNOT_SAY, -1);
        assert_true(low.again_ms >= DELAY);
        assert_true(high.again_ms >= low.again_ms);
        assert_true(high.again_ms <= 15 * 60 * 1000);
        assert_true(high.again_ms >= last);
        last = high.again_ms;
        told = decide_ask(&p, &cap, &v, FINDING_CANNOT_SAY, 800000);
        assert_int_equal(told.again_ms, 800000 > high.again_ms ? 800000 : high.again_ms);
    }
    cap.ask_window_ms = 20000 + DELAY; /* the next look-up would come too late */
    struct ask_view v = asked(1, 0);
    assert_int_equal(decide_ask(&p, &cap, &v, FINDING_CANNOT_SAY, -1).next, ASK_STOP);
}

/* A vendor may keep the key of a request it refused: its "duplicate" is then no acceptance. */
static void a_duplicate_needs_an_attempt_that_explains_it(void **state)
{
    struct policy p = policy_of(ON_UNKNOWN_RESEND);
    struct capability none = {.dedup = true, .dedup_window_ms = 3600000, .call_ms = CALL};
    struct view v = view_of_first();
    struct decision d;

    (void)state;
    assert_true(duplicate_explained(&v, 1)); /* the first call we know of */
    v.calls = 2;
    assert_false(duplicate_explained(&v, 1)); /* the other one was proven not taken */
    assert_true(duplicate_explained(&v, 2));  /* sent twice just now */
    v.doubts = 1;
    assert_true(duplicate_explained(&v, 1));
    v.doubts = 0;
    d = decide_duplicate(&p, &none, &v);
    assert_int_equal(d.state,
                     MSG_UNKNOWN); /* never sent again by itself: it would be explained then */
    assert_int_equal(d.doubts, 1);
    assert_false(d.ask);
    assert_true(decide_duplicate(&p, &askable, &v).ask);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_doubt_is_asked_about_first),
        cmocka_unit_test(who_cannot_be_asked_is_not),
        cmocka_unit_test(a_code_about_to_expire_is_sent_again),
        cmocka_unit_test(the_same_key_comes_before_a_question),
        cmocka_unit_test(a_doubt_left_behind_is_asked_about),
        cmocka_unit_test(what_was_asked_may_be_sent),
        cmocka_unit_test(a_duplicate_needs_an_attempt_that_explains_it),
        cmocka_unit_test(table),
        cmocka_unit_test(limits_of_another_send),
        cmocka_unit_test(pauses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
