/* What follows an attempt: a rule a row. Cases D1, D3, D22, D28, U6, L5, L6, L10, L11, T10, J19,
 * C12, C13, C14; R2, R7, R8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/decide.h"

#include <inttypes.h>
#include <string.h>

enum { POLICY_HOLD, POLICY_ASK, POLICY_RESEND, POLICY_ROAM };
enum { VENDOR_PLAIN, VENDOR_DEDUP };

static struct policy policy_of(int which)
{
    return (struct policy){.on_unknown =
                               which == POLICY_ROAM ? ON_UNKNOWN_RESEND : (enum on_unknown)which,
                           .max_attempts = 4,
                           .max_calls = 20,
                           .backoff_base_ms = 1000,
                           .backoff_cap_ms = 30000,
                           .cross_vendor_resend = which == POLICY_ROAM};
}

static struct capability vendor_of(int which)
{
    return (struct capability){
        .dedup = which == VENDOR_DEDUP, .dedup_window_ms = 100000, .call_ms = 2000};
}

/* now is 1,000,000, expiry 300 s later, jitter 1 (the whole wait: 1, 2, 4 s). */
struct row {
    const char *name;
    int policy, vendor;
    enum outcome outcome;
    int64_t retry_after;
    int attempts, calls, doubts;
    int64_t doubt_age, life;
    enum msg_state state;
    int64_t due_in;
    int want_attempts, want_doubts;
    bool pinned, duplicate;
    const char *reason;
};

#define A   OUTCOME_ACCEPTED
#define RJ  OUTCOME_REJECTED
#define T   OUTCOME_THROTTLED
#define H   OUTCOME_HELD
#define UR  OUTCOME_UNREACHED
#define RF  OUTCOME_REFUSED
#define U   OUTCOME_UNKNOWN
#define L   300000
#define KEY "resend under the same key"
#define UP  "attempts used up"

/* clang-format off */
static const struct row rows[] = {
    {"accepted", 0, 0, A, -1, 1, 1, 0, 0, L, MSG_SENT, 0, 1, 0, false, false, NULL},
    {"accepted after expiry is still accepted", 0, 0, A, -1, 1, 1, 0, 0, -5, MSG_SENT, 0, 1, 0, false, false, NULL},
    {"accepted with an older doubt keeps the doubt", 2, 0, A, -1, 2, 2, 1, 5000, L, MSG_SENT, 0, 2, 1, false, false, NULL},
    {"accepted under the same key settles the doubt", 2, 1, A, -1, 2, 2, 1, 5000, L, MSG_SENT, 0, 2, 0, false, false, NULL},
    {"one vendor does not speak for another", 3, 1, A, -1, 2, 2, 1, 5000, L, MSG_SENT, 0, 2, 1, false, false, NULL},
    {"L10 invalid number, once", 0, 0, RJ, -1, 1, 1, 0, 0, L, MSG_FAILED, 0, 1, 0, false, false, "rejected"},
    {"rejected with a doubt: not failed", 2, 0, RJ, -1, 2, 2, 1, 5000, L, MSG_UNKNOWN, 0, 2, 1, false, false, "rejected"},
    {"rejected under the same key speaks for the doubt", 2, 1, RJ, -1, 2, 2, 1, 5000, L, MSG_FAILED, 0, 2, 0, false, false, "rejected"},
    {"rejected after the key window does not", 2, 1, RJ, -1, 2, 2, 1, 98000, L, MSG_UNKNOWN, 0, 2, 1, false, false, "rejected"},
    {"rejected by another vendor does not", 3, 1, RJ, -1, 2, 2, 1, 5000, L, MSG_UNKNOWN, 0, 2, 1, false, false, "rejected"},

    {"R8 throttled gives the attempt back", 0, 0, T, -1, 3, 3, 0, 0, L, MSG_PENDING, 1000, 2, 0, false, false, "throttled"},
    {"C14 Retry-After lengthens the wait", 0, 0, T, 9000, 3, 3, 0, 0, L, MSG_PENDING, 9000, 2, 0, false, false, "throttled"},
    {"C14 never shortens it", 0, 0, T, 10, 3, 3, 0, 0, L, MSG_PENDING, 1000, 2, 0, false, false, "throttled"},
    {"the provider's door waits, the message not longer than its cap", 0, 0, T, 200000, 1, 1, 0, 0, L, MSG_PENDING, 30000, 0, 0, false, false, "throttled"},
    {"C14 Retry-After in 2100 does not kill a message", 0, 0, T, INT64_MAX, 1, 1, 0, 0, 20000, MSG_PENDING, 10000, 0, 0, false, false, "throttled"},
    {"throttled after expiry", 0, 0, T, -1, 1, 1, 0, 0, 0, MSG_EXPIRED, 0, 0, 0, false, false, "throttled"},
    {"throttled after expiry with a doubt", 2, 0, T, -1, 2, 2, 1, 9, 0, MSG_UNKNOWN, 0, 1, 1, false, false, "throttled"},
    {"throttling does not go on for ever", 0, 0, T, -1, 1, 20, 0, 0, L, MSG_FAILED, 0, 1, 0, false, false, "too many calls"},
    {"nor hides a doubt when it ends", 2, 0, T, -1, 2, 20, 1, 9, L, MSG_UNKNOWN, 0, 2, 1, false, false, "too many calls"},
    {"throttled with a doubt stays pinned", 2, 0, T, -1, 2, 2, 1, 9, L, MSG_PENDING, 1000, 1, 1, true, false, "throttled"},
    {"L5 no balance burns no attempt", 0, 0, H, -1, 1, 1, 0, 0, L, MSG_PENDING, 1000, 0, 0, false, false, "provider held"},
    {"L11, T10 an outage burns nothing", 0, 0, UR, -1, 4, 3, 0, 0, L, MSG_PENDING, 1000, 3, 0, false, false, "provider unreached"},
    {"nothing left, so no Retry-After is real", 0, 0, UR, 9000, 1, 0, 0, 0, L, MSG_PENDING, 1000, 0, 0, false, false, "provider unreached"},
    {"an outage ends no message by count", 0, 0, UR, -1, 1, 20, 0, 0, L, MSG_PENDING, 1000, 0, 0, false, false, "provider unreached"},
    {"L6 but by its deadline", 0, 0, UR, -1, 1, 0, 0, 0, 1000, MSG_EXPIRED, 0, 0, 0, false, false, "provider unreached"},
    {"an attempt that was not counted cannot come back", 0, 0, UR, -1, 0, 0, 0, 0, L, MSG_PENDING, 1000, 0, 0, false, false, "provider unreached"},

    {"L10 refused, tried again", 0, 0, RF, -1, 1, 1, 0, 0, L, MSG_PENDING, 1000, 1, 0, false, false, "refused for now"},
    {"the pause doubles", 0, 0, RF, -1, 3, 3, 0, 0, L, MSG_PENDING, 4000, 3, 0, false, false, "refused for now"},
    {"refused, with a wish", 0, 0, RF, 50000, 1, 1, 0, 0, L, MSG_PENDING, 50000, 1, 0, false, false, "refused for now"},
    {"refused, with a wish beyond half of its life", 0, 0, RF, 200000, 1, 1, 0, 0, L, MSG_PENDING, 150000, 1, 0, false, false, "refused for now"},
    {"D28 the last attempt was refused", 0, 0, RF, -1, 4, 4, 0, 0, L, MSG_FAILED, 0, 4, 0, false, false, UP},
    {"the last attempt was refused, an earlier one is in doubt", 2, 0, RF, -1, 4, 4, 1, 9, L, MSG_UNKNOWN, 0, 4, 1, false, false, UP},
    {"refused too often in all", 0, 0, RF, -1, 2, 20, 0, 0, L, MSG_FAILED, 0, 2, 0, false, false, UP},
    {"D22 no pause past expiry", 0, 0, RF, -1, 1, 1, 0, 0, 1000, MSG_EXPIRED, 0, 1, 0, false, false, "refused for now"},
    {"one millisecond of life left after the pause", 0, 0, RF, -1, 1, 1, 0, 0, 1001, MSG_PENDING, 1000, 1, 0, false, false, "refused for now"},

    {"D1 hold: never again", 0, 0, U, -1, 1, 1, 0, 0, L, MSG_UNKNOWN, 0, 1, 1, false, false, "outcome unknown"},
    {"ask: not without an answer", 1, 0, U, -1, 1, 1, 0, 0, L, MSG_UNKNOWN, 0, 1, 1, false, false, "outcome unknown"},
    {"resend: again, and counted", 2, 0, U, -1, 1, 1, 0, 0, L, MSG_PENDING, 1000, 1, 1, true, true, "resend after doubt"},
    {"D3 resend stays with its vendor unless asked otherwise", 3, 0, U, -1, 1, 1, 0, 0, L, MSG_PENDING, 1000, 1, 1, false, true, "resend after doubt"},
    {"roaming doubles even where the vendor remembers", 3, 1, U, -1, 1, 1, 0, 0, L, MSG_PENDING, 1000, 1, 1, false, true, "resend after doubt"},
    {"hold, the vendor remembers the key", 0, 1, U, -1, 1, 1, 0, 0, L, MSG_PENDING, 1000, 1, 1, true, false, KEY},
    {"resend, the vendor remembers the key", 2, 1, U, -1, 1, 1, 0, 0, L, MSG_PENDING, 1000, 1, 1, true, false, KEY},
    {"hold, the last moment of the window", 0, 1, U, -1, 2, 2, 1, 95999, L, MSG_PENDING, 2000, 2, 2, true, false, KEY},
    {"hold, the resend would begin too late", 0, 1, U, -1, 2, 2, 1, 96000, L, MSG_UNKNOWN, 0, 2, 2, false, false, "outcome unknown"},
    {"resend, too late for the window: counted", 2, 1, U, -1, 2, 2, 1, 96000, L, MSG_PENDING, 2000, 2, 2, true, true, "resend after doubt"},
    {"a doubt from the future proves nothing", 0, 1, U, -1, 2, 2, 1, -1, L, MSG_UNKNOWN, 0, 2, 2, false, false, "outcome unknown"},
    {"D28 doubts used up", 2, 0, U, -1, 4, 4, 3, 9, L, MSG_UNKNOWN, 0, 4, 4, false, false, UP},
    {"doubts used up under the same key", 0, 1, U, -1, 4, 4, 3, 9, L, MSG_UNKNOWN, 0, 4, 4, false, false, UP},
    {"C13 calls used up", 2, 0, U, -1, 1, 20, 0, 0, L, MSG_UNKNOWN, 0, 1, 1, false, false, UP},
    {"in doubt at its deadline: unknown, not expired", 2, 0, U, -1, 1, 1, 0, 0, 500, MSG_UNKNOWN, 0, 1, 1, false, false, "resend after doubt"},
    {"an outcome from nowhere is unknown", 0, 0, OUTCOME_MAX_, -1, 1, 1, 0, 0, L, MSG_UNKNOWN, 0, 1, 1, false, false, "outcome unknown"},
};
/* clang-format on */

static struct view view_of(const struct row *r)
{
    return (struct view){.attempts = r->attempts,
                         .calls = r->calls,
                         .doubts = r->doubts,
                         .now_ms = 1000000,
                         .expires_ms = 1000000 + r->life,
                         .doubt_since_ms = 1000000 - r->doubt_age,
                         .started_ms = 999500,
                         .jitter = 1.0};
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct row *r = &rows[i];
        struct policy p = policy_of(r->policy);
        struct capability cap = vendor_of(r->vendor);
        struct view v = view_of(r);
        struct decision d = decide(&p, &cap, &v, r->outcome, r->retry_after);
        int64_t due_in = d.state == MSG_PENDING ? d.due_ms - v.now_ms : 0;
        bool same_reason = r->reason ? d.reason && strcmp(d.reason, r->reason) == 0 : !d.reason;

        if (d.state != r->state || due_in != r->due_in || d.attempts != r->want_attempts ||
            d.doubts != r->want_doubts || d.pinned != r->pinned ||
            d.possible_duplicate != r->duplicate || !same_reason)
            fail_msg("%s: %s in %" PRId64 " attempts %d doubts %d pinned %d duplicate %d: %s",
                     r->name, msg_state_name(d.state), due_in, d.attempts, d.doubts, d.pinned,
                     d.possible_duplicate, d.reason ? d.reason : "no reason");
    }
}

static const struct {
    const char *name;
    int policy, vendor, attempts, doubts;
    int64_t doubt_age, life;
    bool go;
    enum msg_state state;
    int want_attempts;
    const char *reason;
} gates[] = {
    {"a first attempt goes", 0, 0, 1, 0, 0, L, true, 0, 0, NULL},
    {"D22 not after its life", 0, 0, 1, 0, 0, 0, false, MSG_EXPIRED, 0, "expired before the call"},
    {"with a doubt: unknown", 2, 0, 2, 1, 9, 0, false, MSG_UNKNOWN, 1, "expired before the call"},
    {"resend goes", 2, 0, 2, 1, 9, L, true, 0, 0, NULL},
    {"hold after a doubt does not", 0, 0, 2, 1, 9, L, false, MSG_UNKNOWN, 1, "key window over"},
    {"ask does not", 1, 0, 2, 1, 9, L, false, MSG_UNKNOWN, 1, "key window over"},
    {"hold inside the window goes", 0, 1, 2, 1, 97999, L, true, 0, 0, NULL},
    {"R2 not when the call might outlast it", 0, 1, 2, 1, 98000, L, false, MSG_UNKNOWN, 1,
     "key window over"},
    {"U3 a person's retry goes", 0, 0, 1, 1, 9999999, L, true, 0, 0, NULL},
    {"hold without a doubt goes on", 0, 0, 3, 0, 0, L, true, 0, 0, NULL},
};

static void test_gates(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(gates) / sizeof(*gates); i++) {
        struct policy p = policy_of(gates[i].policy);
        struct capability cap = vendor_of(gates[i].vendor);
        struct view v = {.attempts = gates[i].attempts,
                         .doubts = gates[i].doubts,
                         .now_ms = 1000000,
                         .expires_ms = 1000000 + gates[i].life,
                         .doubt_since_ms = 1000000 - gates[i].doubt_age};
        struct decision d = {.state = MSG_SENT};

        if (decide_dispatch(&p, &cap, &v, &d) != gates[i].go)
            fail_msg("%s: went %d", gates[i].name, !gates[i].go);
        if (gates[i].go)
            continue;
        if (d.state != gates[i].state || d.attempts != gates[i].want_attempts ||
            d.doubts != gates[i].doubts || strcmp(d.reason, gates[i].reason) != 0)
            fail_msg("%s: %s attempts %d doubts %d: %s", gates[i].name, msg_state_name(d.state),
                     d.attempts, d.doubts, d.reason);
    }
}

static void test_words(void **state)
{
    enum on_unknown got = ON_UNKNOWN_MAX_;

    (void)state;
    assert_true(on_unknown_parse("hold", &got) && got == ON_UNKNOWN_HOLD);
    assert_true(on_unknown_parse("ask", &got) && got == ON_UNKNOWN_ASK);
    assert_true(on_unknown_parse("resend", &got) && got == ON_UNKNOWN_RESEND);
    assert_false(on_unknown_parse("", &got));
    assert_false(on_unknown_parse("Hold", &got));
    assert_int_equal(got, ON_UNKNOWN_RESEND);
}

/* Ends without a call: nothing left, so no doubt is made and none is forgotten. */
static void test_no_call(void **state)
{
    static const struct {
        const char *name;
        int attempts, doubts;
        enum msg_state unfit;
        int back_attempts;
    } rows[] = {
        {"R8, J75: a first attempt comes back whole", 1, 0, MSG_FAILED, 0},
        {"the third comes back, two stay", 3, 0, MSG_FAILED, 2},
        {"R7: what may have been taken is never failed", 2, 1, MSG_UNKNOWN, 1},
        {"a counter at nought stays there", 0, 0, MSG_FAILED, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct view v = {.attempts = rows[i].attempts, .doubts = rows[i].doubts};
        struct decision back = decide_back(&v), unfit = decide_unfit(&v, "invalid body"),
                        lost = decide_unstorable(&v);

        print_message("%s\n", rows[i].name);
        assert_int_equal(back.state, MSG_PENDING);
        assert_int_equal(back.attempts, rows[i].back_attempts);
        assert_int_equal(back.doubts, rows[i].doubts);
        assert_int_equal(back.pinned, rows[i].doubts > 0);
        assert_int_equal(unfit.state, rows[i].unfit);
        assert_int_equal(unfit.attempts, rows[i].attempts);
        assert_int_equal(unfit.doubts, rows[i].doubts);
        assert_string_equal(unfit.reason, "invalid body");
        assert_int_equal(lost.state, MSG_UNKNOWN); /* D5 */
        assert_int_equal(lost.attempts, rows[i].attempts);
        assert_int_equal(lost.doubts, rows[i].doubts + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_gates),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_no_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
