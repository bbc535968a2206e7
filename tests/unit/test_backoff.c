/* Waits between tries: cases T11, J85 and the jitter relations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/backoff.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static const struct {
    const char *name;
    int64_t base_ms, cap_ms;
    uint32_t n;
    double jitter;
    int64_t want_ms;
} rows[] = {
    {"first try, least", 1000, 60000, 1, 0.0, 500},
    {"first try, most", 1000, 60000, 1, 1.0, 1000},
    {"first try, middle", 1000, 60000, 1, 0.5, 750},
    {"doubles", 1000, 60000, 2, 1.0, 2000},
    {"doubles again", 1000, 60000, 3, 1.0, 4000},
    {"sixth is below the cap", 1000, 60000, 6, 1.0, 32000},
    {"seventh meets the cap", 1000, 60000, 7, 1.0, 60000},
    {"capped, least", 1000, 60000, 7, 0.0, 30000},
    {"n = 10^6 does not overflow", 1000, 60000, 1000000, 1.0, 60000},
    {"n at its end", 1000, 60000, UINT32_MAX, 0.0, 30000},
    {"n 0 counts as 1", 1000, 60000, 0, 1.0, 1000},
    {"base above the cap", 90000, 60000, 1, 1.0, 60000},
    {"an odd wait keeps its larger half", 1001, 60000, 1, 0.0, 501},
    {"never 0", 1, 60000, 1, 0.0, 1},
    {"no base", 0, 60000, 1, 1.0, 1},
    {"negative base", -5, 60000, 3, 1.0, 4},
    {"no cap", 1000, 0, 5, 1.0, 1},
    {"jitter below", 1000, 60000, 1, -0.5, 500},
    {"jitter above", 1000, 60000, 1, 7.0, 1000},
    {"jitter not a number", 1000, 60000, 1, NAN, 500},
    {"the largest doubling", 1, INT64_MAX, 63, 1.0, INT64_C(1) << 62},
    {"one more is the cap", 1, INT64_MAX, 64, 1.0, INT64_MAX},
    {"huge, nearly all", 1, INT64_MAX, 64, 0x1.fffffffffffffp-1, INT64_MAX - 511},
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        int64_t got = backoff_ms(rows[i].base_ms, rows[i].cap_ms, rows[i].n, rows[i].jitter);

        if (got != rows[i].want_ms)
            fail_msg("%s: %" PRId64 ", want %" PRId64, rows[i].name, got, rows[i].want_ms);
    }
}

static double draw(unsigned short seed[3])
{
    return erand48(seed);
}

/* Over many seeds: in the band, a function of its input, more jitter is never a shorter wait. */
static void test_band(void **state)
{
    unsigned short seed[3] = {7, 11, 13};

    (void)state;
    for (int round = 0; round < 100000; round++) {
        int64_t base = 1 + (int64_t)(draw(seed) * 1e6);
        int64_t cap = 1 + (int64_t)(draw(seed) * (round % 2 ? 1e9 : 9e18));
        uint32_t n = (uint32_t)(draw(seed) * (round % 3 ? 80 : 2e6));
        double low = draw(seed), high = low + (1 - low) * draw(seed);
        int64_t full = backoff_full_ms(base, cap, n);
        int64_t got = backoff_ms(base, cap, n, low);

        assert_true(full >= 1 && full <= cap);
        assert_true(got >= full - full / 2 && got <= full);
        assert_int_equal(got, backoff_ms(base, cap, n, low));
        assert_true(backoff_ms(base, cap, n, high) >= got);
        assert_int_equal(backoff_ms(base, cap, n, 0.0), full - full / 2);
        assert_int_equal(backoff_ms(base, cap, n, 1.0), full);
    }
}

static void test_bands_rise_to_the_cap(void **state)
{
    (void)state;
    for (int64_t base = 1; base < 100000; base = base * 3 + 1) {
        const int64_t cap = 600000;

        for (uint32_t n = 1; n < 100; n++) {
            assert_true(backoff_ms(base, cap, n + 1, 0.0) >= backoff_ms(base, cap, n, 0.0));
            assert_true(backoff_ms(base, cap, n + 1, 1.0) >= backoff_ms(base, cap, n, 1.0));
        }
        assert_int_equal(backoff_full_ms(base, cap, 100), cap);
    }
}

static void test_mean_grows_to_the_cap(void **state)
{
    unsigned short seed[3] = {1, 2, 3};
    double before = 0, mean = 0;

    (void)state;
    for (uint32_t n = 1; n <= 8; n++) {
        double sum = 0;

        for (int i = 0; i < 20000; i++)
            sum += (double)backoff_ms(1000, 60000, n, draw(seed));
        mean = sum / 20000;
        if (n <= 7)
            assert_true(mean > before);
        before = mean;
    }
    /* three quarters of the cap: the middle of [30 s, 60 s] */
    assert_true(mean > 44500 && mean < 45500);
}

/* 100,000 rows that failed at one instant: T11 wants no second with more than 3 times the mean
 * of the band, J85 twice; a uniform draw over 30 s stays within a tenth. */
static void test_no_wave(void **state)
{
    enum { ROWS = 100000, SECONDS = 30 };
    unsigned short seed[3] = {3, 1, 4};
    int bucket[SECONDS] = {0};

    (void)state;
    for (int i = 0; i < ROWS; i++) {
        int64_t s = (backoff_ms(1000, 60000, 9, draw(seed)) - 30000) / 1000;

        assert_true(s >= 0 && s < SECONDS);
        bucket[s]++;
    }
    for (int s = 0; s < SECONDS; s++)
        assert_true(bucket[s] * SECONDS > ROWS / 10 * 9 && bucket[s] * SECONDS < ROWS / 10 * 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_band),
        cmocka_unit_test(test_bands_rise_to_the_cap),
        cmocka_unit_test(test_mean_grows_to_the_cap),
        cmocka_unit_test(test_no_wave),
    };

    return cmocka_run_group_tests_name("backoff", tests, NULL, NULL);
}
