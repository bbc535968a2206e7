/* What a receipt does to a message that is not known to be sent. Cases U6, D6, R3. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/receipt.h"

struct row {
    const char *name;
    struct late_view v;
    struct late_decision want;
};

#define SEEN(st, db, rec, as, ...)                                                                 \
    {                                                                                              \
        .state = MSG_##st, .doubts = db, .recorded = rec, .recorded_as = OUTCOME_##as,             \
        .attempts = 1, .now_ms = 5000, .expires_ms = 1000, __VA_ARGS__                             \
    }
#define STAYS(st, db, ...)                                                                         \
    {                                                                                              \
        .state = MSG_##st, .doubts = db, __VA_ARGS__                                               \
    }
#define BECOMES(st, db, ...)                                                                       \
    {                                                                                              \
        .change = true, .state = MSG_##st, .doubts = db, __VA_ARGS__                               \
    }

static const struct row rows[] = {
    {"U6 unknown: the vendor has it, also long after its deadline",
     SEEN(UNKNOWN, 1, true, UNKNOWN, .taken = false), BECOMES(SENT, 0, .taken = false)},
    {"of two attempts in doubt one is known now", SEEN(UNKNOWN, 2, true, UNKNOWN, .taken = false),
     BECOMES(SENT, 1, .taken = false)},
    {"a planned resend is stopped", SEEN(PENDING, 1, true, UNKNOWN, .taken = false),
     BECOMES(SENT, 0, .taken = false)},
    {"D6 failed, and a receipt says otherwise", SEEN(FAILED, 0, true, REJECTED, .taken = false),
     BECOMES(SENT, 0, .reason = receipt_contradicts)},
    {"throttled, about to be tried again, and taken after all",
     SEEN(PENDING, 0, true, THROTTLED, .taken = false),
     BECOMES(SENT, 0, .reason = receipt_contradicts)},
    {"a doubt of another attempt stays where this one was refused",
     SEEN(UNKNOWN, 1, true, REFUSED, .taken = false),
     BECOMES(SENT, 1, .reason = receipt_contradicts)},
    {"D6 expired in doubt", SEEN(EXPIRED, 1, true, UNKNOWN, .taken = false),
     BECOMES(SENT, 0, .taken = false)},
    {"canceled in doubt", SEEN(CANCELED, 1, true, UNKNOWN, .taken = false),
     BECOMES(SENT, 0, .taken = false)},
    {"nothing on record", SEEN(UNKNOWN, 1, false, UNKNOWN, .taken = false),
     BECOMES(SENT, 1, .taken = false)},
    {"taken back for an id given twice, and reported",
     SEEN(UNKNOWN, 1, true, ACCEPTED, .taken = false), BECOMES(SENT, 1, .taken = false)},
    {"R3 its own attempt is in the air", SEEN(SENDING, 0, false, UNKNOWN, .newer_attempt = false),
     STAYS(SENDING, 0, .change = false)},
    {"a newer attempt is in the air, the older one in doubt",
     SEEN(SENDING, 1, true, UNKNOWN, .newer_attempt = true),
     BECOMES(SENDING, 0, .taken = true, .reason = "accepted late")},
    {"a newer attempt is in the air, the older one was refused: it may speak of either",
     SEEN(SENDING, 0, true, REFUSED, .newer_attempt = true), STAYS(SENDING, 0, .change = false)},
    {"known already, in the air",
     SEEN(SENDING, 1, true, UNKNOWN, .newer_attempt = true, .taken = true),
     STAYS(SENDING, 1, .taken = true)},
    {"R9 known already", SEEN(SENT, 0, true, ACCEPTED, .taken = false),
     STAYS(SENT, 0, .change = false)},
    {"sent with a doubt left: a receipt cannot say of which attempt it speaks",
     SEEN(SENT, 1, true, UNKNOWN, .taken = false), STAYS(SENT, 1, .change = false)},
};

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct late_decision *w = &rows[i].want, d = receipt_decide(&rows[i].v);

        if (d.change != w->change || d.state != w->state || d.doubts != w->doubts ||
            d.taken != w->taken || d.duplicate != w->duplicate)
            fail_msg("%s: change %d state %d doubts %d taken %d duplicate %d", rows[i].name,
                     d.change, d.state, d.doubts, d.taken, d.duplicate);
        if (w->reason)
            assert_string_equal(d.reason, w->reason);
        else
            assert_null(d.reason);
    }
}

/* Whatever the row: never a doubt more, never a way back, never a second effect. */
static void test_every_view(void **state)
{
    unsigned seen = 0;

    (void)state;
    for (unsigned bits = 0; bits < 64; bits++) {
        for (int s = 0; s < MSG_STATE_MAX_; s++) {
            for (int as = 0; as < OUTCOME_MAX_; as++) {
                struct late_view v = {.state = (enum msg_state)s,
                                      .recorded_as = (enum outcome)as,
                                      .recorded = bits & 1,
                                      .newer_attempt = bits & 2,
                                      .taken = bits & 4,
                                      .rejected = bits & 8,
                                      .doubts = (int)(bits >> 4)};
                struct late_decision d = receipt_decide(&v), again;

                assert_true(d.doubts >= 0 && d.doubts <= v.doubts);
                assert_true(d.state == v.state || (d.change && d.state == MSG_SENT));
                assert_false(d.duplicate);
                assert_true(d.taken == v.taken || (d.change && d.state == MSG_SENDING));
                assert_true(d.change || (d.doubts == v.doubts && d.taken == v.taken));
                v.state = d.state;
                v.doubts = d.doubts;
                v.taken = d.taken;
                again = receipt_decide(&v);
                assert_false(again.change && d.change);
                seen += d.change;
            }
        }
    }
    assert_true(seen > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_every_view),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
