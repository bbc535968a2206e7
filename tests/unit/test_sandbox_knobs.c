/* The simulated vendor's decisions: every knob alone, their order, shares, repeatable runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "providers/sandbox/knobs.h"
#include "providers/sandbox/mix.h"

#include <errno.h>
#include <string.h>

#define SETTINGS 3

struct setting {
    const char *name, *value;
};

static struct sb_knobs knobs_of(const struct setting *s)
{
    struct err err = ERR_INIT;
    struct sb_knobs k;

    sb_knobs_init(&k);
    for (size_t i = 0; i < SETTINGS && s[i].name; i++) {
        const struct sb_knob *knob = sb_knobs_find(s[i].name);

        assert_non_null(knob);
        assert_int_equal(sb_knob_set(&k, knob, s[i].value, &err), 0);
    }
    assert_int_equal(sb_knobs_check(&k, &err), 0);
    return k;
}

static const struct {
    const char *name;
    struct setting set[SETTINGS];
    struct sb_case at;
    enum sb_reason reason;
    bool take;
    enum sb_act act;
    int status; /* where act is answer */
} rows[] = {
    {"all well: taken, 202", {{0}}, {1, 0, false, false}, SB_ACCEPTED, true, SB_ACT_ANSWER, 202},
    {"hold tests: 401 to everything, nothing taken",
     {{"status_all", "401"}},
     {1, 0, false, false},
     SB_STATUS_ALL,
     false,
     SB_ACT_ANSWER,
     401},
    {"lost before taking: silence",
     {{"drop_before", "1"}},
     {1, 0, false, false},
     SB_DROP_BEFORE,
     false,
     SB_ACT_HANG,
     0},
    {"lost before taking: reset",
     {{"drop_before", "1"}, {"drop_mode", "reset"}},
     {1, 0, false, false},
     SB_DROP_BEFORE,
     false,
     SB_ACT_RESET,
     0},
    {"taken, answer lost: closed",
     {{"drop_answer", "1"}, {"drop_mode", "close"}},
     {1, 0, false, false},
     SB_DROP_ANSWER,
     true,
     SB_ACT_CLOSE,
     0},
    {"taken, answered 503",
     {{"error_taken", "1"}},
     {1, 0, false, false},
     SB_ERROR_TAKEN,
     true,
     SB_ACT_ANSWER,
     503},
    {"not taken, answered 500",
     {{"error_not_taken", "1"}, {"error_status", "500"}},
     {1, 0, false, false},
     SB_ERROR_NOT_TAKEN,
     false,
     SB_ACT_ANSWER,
     500},
    {"over the rate: 429, not taken",
     {{"rate", "10"}},
     {1, 0, false, true},
     SB_THROTTLED,
     false,
     SB_ACT_ANSWER,
     429},
    {"used connection: reset, not taken",
     {{"reset_reused", "1"}},
     {2, 0, true, false},
     SB_RESET_REUSED,
     false,
     SB_ACT_RESET,
     0},
    {"used connection: reset, taken",
     {{"reset_reused_taken", "1"}},
     {2, 0, true, false},
     SB_RESET_REUSED_TAKEN,
     true,
     SB_ACT_RESET,
     0},
    {"fresh connection is not reset",
     {{"reset_reused", "1"}},
     {1, 0, false, false},
     SB_ACCEPTED,
     true,
     SB_ACT_ANSWER,
     202},
    {"request before the outage",
     {{"outage_from", "30001"}, {"outage_count", "300"}},
     {30000, 0, false, false},
     SB_ACCEPTED,
     true,
     SB_ACT_ANSWER,
     202},
    {"first of the outage",
     {{"outage_from", "30001"}, {"outage_count", "300"}},
     {30001, 0, false, false},
     SB_OUTAGE,
     false,
     SB_ACT_HANG,
     0},
    {"last of the outage",
     {{"outage_from", "30001"}, {"outage_count", "300"}},
     {30300, 0, false, false},
     SB_OUTAGE,
     false,
     SB_ACT_HANG,
     0},
    {"request after the outage",
     {{"outage_from", "30001"}, {"outage_count", "300"}},
     {30301, 0, false, false},
     SB_ACCEPTED,
     true,
     SB_ACT_ANSWER,
     202},
    {"outage by time begins",
     {{"outage_at", "5"}, {"outage_for", "2.5"}, {"outage_mode", "503"}},
     {9, 5.0, false, false},
     SB_OUTAGE,
     false,
     SB_ACT_ANSWER,
     503},
    {"outage by time is over",
     {{"outage_at", "5"}, {"outage_for", "2.5"}, {"outage_mode", "503"}},
     {9, 7.5, false, false},
     SB_ACCEPTED,
     true,
     SB_ACT_ANSWER,
     202},
    {"no listener: live connections are reset",
     {{"outage_at", "0"}, {"outage_for", "1"}, {"outage_mode", "refuse-connection"}},
     {9, 0.5, false, false},
     SB_OUTAGE,
     false,
     SB_ACT_RESET,
     0},
    {"an outage comes before the rate",
     {{"outage_from", "1"}, {"outage_count", "1"}, {"outage_mode", "reset"}},
     {1, 0, true, true},
     SB_OUTAGE,
     false,
     SB_ACT_RESET,
     0},
    {"what is not taken is not taken and lost as well",
     {{"drop_before", "1"}, {"drop_answer", "1"}, {"error_taken", "1"}},
     {1, 0, false, false},
     SB_DROP_BEFORE,
     false,
     SB_ACT_HANG,
     0},
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sb_knobs k = knobs_of(rows[i].set);
        struct sb_fate f = sb_knobs_decide(&k, &rows[i].at);

        if (f.reason != rows[i].reason || f.take != rows[i].take || f.act != rows[i].act ||
            (f.act == SB_ACT_ANSWER && f.status != rows[i].status))
            fail_msg("%s: got %s, take %d, act %d, status %d", rows[i].name,
                     sb_reason_name(f.reason), f.take, (int)f.act, f.status);
    }
}

static const struct {
    const char *name, *value;
    int want;
} settings[] = {
    {"drop_before", "0.0025", 0},
    {"drop-before", "0.0025", 0},
    {"drop_before", "1.1", -EINVAL},
    {"drop_before", "-0.1", -EINVAL},
    {"drop_before", "", -EINVAL},
    {"drop_before", "0.5x", -EINVAL},
    {"drop_before", "nan", -EINVAL},
    {"rate", "2.5", -EINVAL},
    {"rate", "100", 0},
    {"drop_mode", "refuse-connection", -EINVAL},
    {"outage_mode", "lose", 0},
    {"dedup", "off", 0},
    {"dedup", "no", -EINVAL},
    {"reject_last", "0000", 0},
    {"reject_last", "00a0", -EINVAL},
    {"reject_last", "12345678901234567", -EINVAL},
    {"error_status", "200", -EINVAL},
    {"seed", "9007199254740992", -EINVAL},
};

static void test_settings(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        struct err err = ERR_INIT;
        struct sb_knobs k, before;

        sb_knobs_init(&k);
        before = k;
        int rc = sb_knob_set(&k, sb_knobs_find(settings[i].name), settings[i].value, &err);
        if (rc != settings[i].want)
            fail_msg("%s=%s: %d", settings[i].name, settings[i].value, rc);
        if (rc < 0) {
            assert_memory_equal(&k, &before, sizeof(k));
            assert_non_null(err.message);
        }
        err_done(&err);
    }
    assert_null(sb_knobs_find("drop"));
    assert_null(sb_knobs_find("drop_before_"));
}

static void test_check(void **state)
{
    struct sb_knobs k;

    (void)state;
    sb_knobs_init(&k);
    k.latency_p50 = 150;
    k.latency_p99 = 100;
    assert_int_equal(sb_knobs_check(&k, NULL), -EINVAL);
    k.latency_p99 = 800;
    assert_int_equal(sb_knobs_check(&k, NULL), 0);
    k.outage_count = 3;
    assert_int_equal(sb_knobs_check(&k, NULL), -EINVAL);
    k.outage_from = 1;
    assert_int_equal(sb_knobs_check(&k, NULL), 0);
    k.status_all = 100;
    assert_int_equal(sb_knobs_check(&k, NULL), -EINVAL);
}

enum { DRAWS = 100000 };

static unsigned count_reason(const struct sb_knobs *k, enum sb_reason reason)
{
    unsigned n = 0;

    for (uint64_t i = 1; i <= DRAWS; i++)
        n += sb_knobs_decide(k, &(struct sb_case){.number = i}).reason == reason;
    return n;
}

/* The published laboratory's shares over its 100,000 jobs: 250 expected, sigma 15.8, so five
 * sigma are 79. */
static void test_shares(void **state)
{
    struct sb_knobs k;

    (void)state;
    sb_knobs_init(&k);
    k.drop_before = 0.0025;
    k.drop_answer = 0.0025;
    assert_in_range(count_reason(&k, SB_DROP_BEFORE), 171, 329);
    assert_in_range(count_reason(&k, SB_DROP_ANSWER), 171, 329);
    k.drop_before = 0.5; /* sigma 158 */
    assert_in_range(count_reason(&k, SB_DROP_BEFORE), 49210, 50790);
}

/* The same seed repeats a run; another does not; one knob does not reshuffle another. */
static void test_seed(void **state)
{
    struct sb_knobs a, b;
    unsigned differ = 0;

    (void)state;
    sb_knobs_init(&a);
    a.drop_answer = 0.1;
    b = a;
    b.error_not_taken = 0.1;
    for (uint64_t i = 1; i <= 10000; i++) {
        const struct sb_case c = {.number = i};
        enum sb_reason with = sb_knobs_decide(&b, &c).reason;
        if (with != SB_ERROR_NOT_TAKEN)
            assert_int_equal(with, sb_knobs_decide(&a, &c).reason);
    }
    b = a;
    b.seed = 2;
    for (uint64_t i = 1; i <= 10000; i++) {
        const struct sb_case c = {.number = i};
        differ += sb_knobs_decide(&a, &c).reason != sb_knobs_decide(&b, &c).reason;
    }
    assert_in_range(differ, 1500, 2100); /* 2 * 0.1 * 0.9 of 10,000 */
}

static void test_latency(void **state)
{
    const struct setting slow[SETTINGS] = {
        {"latency_p50", "20"}, {"slow_from_s", "10"}, {"slow_for_s", "5"}};
    struct sb_knobs k = knobs_of(slow);

    (void)state;
    k.slow_factor = 3;
    assert_true(sb_knobs_latency(&k, 1, 9.9) == 20);
    assert_true(sb_knobs_latency(&k, 1, 10.0) == 60);
    assert_true(sb_knobs_latency(&k, 1, 15.0) == 20);
    k.latency_p99 = 100;
    assert_true(sb_knobs_latency(&k, 7, 0) == sb_knobs_latency(&k, 7, 0));
    assert_true(sb_knobs_latency(&k, 7, 0) != sb_knobs_latency(&k, 8, 0));
}

static void test_refuses(void **state)
{
    struct sb_knobs k;

    (void)state;
    sb_knobs_init(&k);
    k.outage_at = 1;
    k.outage_for = 1;
    assert_false(sb_knobs_refuses(&k, 1.5));
    k.outage_mode = SB_MODE_REFUSE;
    assert_false(sb_knobs_refuses(&k, 0.9));
    assert_true(sb_knobs_refuses(&k, 1.5));
    assert_false(sb_knobs_refuses(&k, 2.0));
}

/* The published first output of splitmix64 from state 0. */
static void test_mix(void **state)
{
    (void)state;
    assert_true(sb_mix(0) == UINT64_C(0xe220a8397b1dcdaf));
    assert_true(sb_hash("abc", 3) == sb_hash("abc", 3));
    assert_true(sb_hash("abc", 3) != sb_hash("abc\0", 4));
    assert_true(sb_hash("12345678a", 9) != sb_hash("12345678b", 9));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),    cmocka_unit_test(test_settings),
        cmocka_unit_test(test_check),   cmocka_unit_test(test_shares),
        cmocka_unit_test(test_seed),    cmocka_unit_test(test_latency),
        cmocka_unit_test(test_refuses), cmocka_unit_test(test_mix),
    };

    return cmocka_run_group_tests_name("sandbox_knobs", tests, NULL, NULL);
}
