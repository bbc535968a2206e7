/* The door before a provider. Cases C13, C14, C20, C21, J82, L11, T10; R8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/breaker.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

#define A  OUTCOME_ACCEPTED
#define RJ OUTCOME_REJECTED
#define T  OUTCOME_THROTTLED
#define H  OUTCOME_HELD
#define UR OUTCOME_UNREACHED
#define RF OUTCOME_REFUSED
#define U  OUTCOME_UNKNOWN

static const struct {
    const char *name;
    enum outcome outcome;
    int64_t retry_after;
    double jitter;
    int64_t pause; /* from a closed door; 0: it stays closed */
} firsts[] = {
    {"accepted", A, -1, 0.0, 0},
    {"a bad number says nothing about the vendor", RJ, -1, 0.0, 0},
    {"refused for now neither", RF, 60000, 0.0, 0},
    {"unknown neither", U, -1, 0.0, 0},
    {"unreached, least", UR, -1, 0.0, 100},
    {"unreached, most", UR, -1, 1.0, 200},
    {"unreached: nobody answered, so nobody wished", UR, 60000, 1.0, 200},
    {"throttled without a word", T, -1, 0.0, 500},
    {"C14 throttled with one", T, 7000, 0.0, 7000},
    {"C14 jitter only adds", T, 10000, 0.5, 10500},
    {"C14 a week is not believed", T, INT64_C(604800000), 0.0, 600000},
    {"C14 nor the end of time", T, INT64_MAX, 0.5, 630000},
    {"C13 Retry-After 0 does not spin", T, 0, 0.0, 100},
    {"L5 held", H, -1, 0.0, 2500},
    {"held with a longer wish", H, 60000, 0.0, 60000},
    {"held with a shorter wish", H, 10, 0.0, 2500},
};

static void test_firsts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(firsts) / sizeof(*firsts); i++) {
        struct breaker b;
        bool shut;

        breaker_init(&b);
        assert_int_equal(breaker_allowed(&b, 1000), UINT_MAX);
        shut = breaker_note(&b, firsts[i].outcome, firsts[i].retry_after, firsts[i].jitter, 1000);
        if (shut != (firsts[i].pause > 0))
            fail_msg("%s: shut %d", firsts[i].name, shut);
        if (shut && b.open_until_ms - 1000 != firsts[i].pause)
            fail_msg("%s: %" PRId64 " ms", firsts[i].name, b.open_until_ms - 1000);
        if (shut && (breaker_allowed(&b, 1000 + firsts[i].pause - 1) != 0 ||
                     breaker_allowed(&b, 1000 + firsts[i].pause) != 1))
            fail_msg("%s: not shut for that long", firsts[i].name);
    }
}

static void pass_pause(struct breaker *b, int64_t *now)
{
    *now = b->open_until_ms;
    assert_int_equal(breaker_allowed(b, *now), 1);
    breaker_start(b, *now);
    assert_int_equal(breaker_allowed(b, *now), 1); /* the probe in the air is the one */
}

static void test_ramp(void **state)
{
    struct breaker b;
    int64_t now = 0;
    unsigned want = 2;

    (void)state;
    breaker_init(&b);
    breaker_note(&b, UR, -1, 0.0, now);
    pass_pause(&b, &now);
    breaker_note(&b, A, -1, 0.0, now);
    /* T10: each round of answers doubles what may be in the air, until nothing is held back. */
    for (; want <= 65536; want *= 2) {
        assert_int_equal(breaker_allowed(&b, now), want);
        for (unsigned i = 0; i < want; i++)
            breaker_note(&b, i % 3 ? A : RJ, -1, 0.0, now);
    }
    assert_int_equal(breaker_allowed(&b, now), UINT_MAX);
    assert_int_equal(b.rounds, 0);
}

static void test_rounds(void **state)
{
    static const int64_t want[] = {200, 400, 800, 1600, 3200, 5000, 5000};
    struct breaker b;
    int64_t now = 0;

    (void)state;
    breaker_init(&b);
    for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
        /* C20: a vendor that stays away is asked less and less; told of once. */
        assert_int_equal(breaker_note(&b, UR, -1, 1.0, now), i == 0);
        assert_int_equal(b.open_until_ms - now, want[i]);
        assert_int_equal(b.why, UR);
        pass_pause(&b, &now);
    }
    for (int i = 0; i < 100; i++) { /* rounds have an end */
        breaker_note(&b, H, -1, 1.0, now);
        assert_true(b.open_until_ms - now <= 300000);
        pass_pause(&b, &now);
    }
    /* C21: a few answers between two pauses are no recovery. */
    breaker_note(&b, A, -1, 0.0, now);
    breaker_note(&b, A, -1, 0.0, now);
    assert_true(breaker_note(&b, UR, -1, 1.0, now));
    assert_int_equal(b.open_until_ms - now, 5000);
}

static void test_stragglers(void **state)
{
    struct breaker b;

    (void)state;
    breaker_init(&b);
    assert_true(breaker_note(&b, UR, -1, 1.0, 0));
    for (int i = 0; i < 500; i++) { /* all that was in the air fails too */
        assert_false(breaker_note(&b, UR, -1, 1.0, 150));
        assert_false(breaker_note(&b, U, -1, 1.0, 150));
        assert_false(breaker_note(&b, A, -1, 1.0, 150));
    }
    assert_int_equal(b.open_until_ms, 200);
    assert_int_equal(breaker_allowed(&b, 150), 0);
    assert_false(breaker_note(&b, T, 9000, 0.0, 150)); /* a longer wish is heard */
    assert_int_equal(b.open_until_ms, 9150);
    assert_false(breaker_note(&b, T, 10, 0.0, 160)); /* a shorter one is not */
    assert_int_equal(b.open_until_ms, 9150);
}

static void test_unclear_probe(void **state)
{
    struct breaker b;
    int64_t now = 0, last = 0;

    (void)state;
    breaker_init(&b);
    breaker_note(&b, T, 1000, 0.0, now);
    for (int i = 0; i < 12; i++) { /* C16: each such probe may be a doubt, so they get rarer */
        pass_pause(&b, &now);
        assert_false(breaker_note(&b, i % 2 ? RF : U, -1, 1.0, now));
        assert_int_equal(b.door, BREAKER_OPEN);
        assert_true(b.open_until_ms - now >= last || b.open_until_ms - now == 5000);
        last = b.open_until_ms - now;
    }
    assert_int_equal(last, 5000);
}

/* C13: an hour of 429, whatever the vendor wishes, costs few calls. */
static void test_storm(void **state)
{
    static const int64_t wishes[] = {-1, 0, 1, 100, 1000};

    (void)state;
    for (size_t i = 0; i < sizeof(wishes) / sizeof(*wishes); i++) {
        struct breaker b;
        int64_t now = 0;
        unsigned calls = 0;

        breaker_init(&b);
        for (; now < 3600000; calls++) {
            breaker_note(&b, T, wishes[i], 0.0, now);
            pass_pause(&b, &now);
        }
        assert_in_range(calls, 60, 8000);
    }
}

/* Random lives: the door lets through no call while shut, one while probing; a wish is kept; a
 * clock that stands, leaps or goes back opens nothing early. */
static void test_lives(void **state)
{
    static const int64_t wishes[] = {-1, 0, 10, 5000, 700000, INT64_MAX};
    unsigned short seed[3] = {4, 29, 13};

    (void)state;
    for (int life = 0; life < 3000; life++) {
        struct breaker b;
        int64_t now = life % 3 == 0 ? INT64_MAX - 50000 : 0, kept = INT64_MIN;
        unsigned in_air = 0;

        breaker_init(&b);
        for (int i = 0; i < 200; i++) {
            enum outcome o = (enum outcome)(nrand48(seed) % (OUTCOME_MAX_ + 1));
            int64_t wish = wishes[nrand48(seed) % 6], believed;

            now += nrand48(seed) % 10 == 0 ? -nrand48(seed) % 3000 : nrand48(seed) % 200;
            if (now >= kept)
                kept = INT64_MIN; /* waited for; the clock may go back now */
            if (breaker_allowed(&b, now) > in_air && in_air < 50) {
                assert_true(kept == INT64_MIN);
                breaker_start(&b, now);
                in_air++;
                if (b.door == BREAKER_PROBING)
                    assert_int_equal(in_air, 1);
            }
            if (in_air == 0 || nrand48(seed) % 2)
                continue;
            in_air--;
            breaker_note(&b, o, wish, nrand48(seed) % 100 / 100.0, now);
            believed = wish < BREAKER_RETRY_AFTER_CAP_MS ? wish : BREAKER_RETRY_AFTER_CAP_MS;
            if ((o == T || o == H) && wish > 0)
                kept = now > INT64_MAX - believed ? INT64_MAX
                       : kept > now + believed    ? kept
                                                  : now + believed;
            assert_true(b.rounds <= 30);
            assert_true(b.allowed >= 1);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_firsts),        cmocka_unit_test(test_ramp),
        cmocka_unit_test(test_rounds),        cmocka_unit_test(test_stragglers),
        cmocka_unit_test(test_unclear_probe), cmocka_unit_test(test_storm),
        cmocka_unit_test(test_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
