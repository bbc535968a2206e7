/* The words of outcomes and states: one spelling, both ways; what is final. Cases U1, D21. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/outcome.h"

#include <string.h>

static const struct {
    enum outcome value;
    const char *name;
} outcomes[] = {
    {OUTCOME_ACCEPTED, "accepted"},   {OUTCOME_REJECTED, "rejected"},
    {OUTCOME_THROTTLED, "throttled"}, {OUTCOME_HELD, "held"},
    {OUTCOME_UNREACHED, "unreached"}, {OUTCOME_REFUSED, "refused"},
    {OUTCOME_UNKNOWN, "unknown"},
};

static const struct {
    enum msg_state value;
    const char *name;
    bool final;
} states[] = {
    {MSG_PENDING, "pending", false},  {MSG_SENDING, "sending", false},
    {MSG_UNKNOWN, "unknown", false},  {MSG_SENT, "sent", true},
    {MSG_FAILED, "failed", true},     {MSG_EXPIRED, "expired", true},
    {MSG_CANCELED, "canceled", true}, {MSG_SUPPRESSED, "suppressed", true},
};

static const char *const strangers[] = {"", "Accepted", "sent ", " sent", "accepted\n", "sen", "x"};

static void test_outcomes(void **state)
{
    enum outcome got = OUTCOME_MAX_;

    (void)state;
    assert_int_equal(sizeof(outcomes) / sizeof(*outcomes), OUTCOME_MAX_);
    for (size_t i = 0; i < OUTCOME_MAX_; i++) {
        assert_int_equal(outcomes[i].value, i);
        assert_string_equal(outcome_name(outcomes[i].value), outcomes[i].name);
        assert_true(outcome_parse(outcomes[i].name, &got));
        assert_int_equal(got, outcomes[i].value);
    }
    assert_null(outcome_name(OUTCOME_MAX_));
    assert_null(outcome_name((enum outcome) - 1));
    assert_null(outcome_name((enum outcome)INT32_MAX));
}

static void test_states(void **state)
{
    enum msg_state got = MSG_STATE_MAX_;

    (void)state;
    assert_int_equal(sizeof(states) / sizeof(*states), MSG_STATE_MAX_);
    for (size_t i = 0; i < MSG_STATE_MAX_; i++) {
        assert_int_equal(states[i].value, i);
        assert_string_equal(msg_state_name(states[i].value), states[i].name);
        assert_true(msg_state_parse(states[i].name, &got));
        assert_int_equal(got, states[i].value);
        if (msg_state_is_final(states[i].value) != states[i].final)
            fail_msg("%s: final is %d", states[i].name, !states[i].final);
    }
    assert_null(msg_state_name(MSG_STATE_MAX_));
    assert_null(msg_state_name((enum msg_state) - 1));
    assert_false(msg_state_is_final(MSG_STATE_MAX_));
    assert_false(msg_state_is_final((enum msg_state)77));
}

static void test_strangers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(strangers) / sizeof(*strangers); i++) {
        enum outcome outcome = OUTCOME_HELD;
        enum msg_state msg_state = MSG_FAILED;

        assert_false(outcome_parse(strangers[i], &outcome));
        assert_false(msg_state_parse(strangers[i], &msg_state));
        assert_int_equal(outcome, OUTCOME_HELD); /* untouched */
        assert_int_equal(msg_state, MSG_FAILED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outcomes),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
