/* Simulated answer times and what measures real ones: sampling, histogram, meter, wheel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "providers/sandbox/latency.h"
#include "providers/sandbox/meter.h"
#include "providers/sandbox/wheel.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 200001 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* p50 150 ms and p99 800 ms: the mean of that log-normal is 194 ms. */
static void test_lognormal(void **state)
{
    double *ms = calloc(SAMPLES, sizeof(*ms));
    unsigned short seed[3] = {2, 7, 1};
    double sum = 0;

    (void)state;
    assert_non_null(ms);
    for (int i = 0; i < SAMPLES; i++) {
        ms[i] = sb_latency_sample(150, 800, erand48(seed), erand48(seed));
        sum += ms[i];
    }
    qsort(ms, SAMPLES, sizeof(*ms), by_value);
    assert_true(ms[SAMPLES / 2] > 148 && ms[SAMPLES / 2] < 152);
    assert_true(ms[SAMPLES / 100 * 99] > 780 && ms[SAMPLES / 100 * 99] < 820);
    assert_true(sum / SAMPLES > 192 && sum / SAMPLES < 196);
    free(ms);
}

static void test_sample_edges(void **state)
{
    (void)state;
    assert_true(sb_latency_sample(0, 0, 0.5, 0.5) == 0);
    assert_true(sb_latency_sample(0, 100, 0.5, 0.5) == 0);
    assert_true(sb_latency_sample(20, 0, 0.9, 0.1) == 20);
    assert_true(sb_latency_sample(20, 20, 0.9, 0.1) == 20);
    assert_true(sb_latency_sample(-5, 0, 0.9, 0.1) == 0);
    assert_true(sb_latency_sample(20, 100, 0, 0.7) == 20); /* no deviation: the median */
    assert_true(sb_latency_sample(1e5, 6e5, 1 - 1e-16, 0) == SB_LATENCY_MAX_MS);
}

static void test_histogram(void **state)
{
    struct sb_hist *h = calloc(1, sizeof(*h));

    (void)state;
    assert_non_null(h);
    assert_int_equal(sb_hist_quantile(h, 0.5), 0);
    for (int64_t us = 1; us <= 100000; us++)
        sb_hist_add(h, us);
    assert_int_equal(h->count, 100000);
    assert_in_range(sb_hist_quantile(h, 0.50), 50000, 50000 * 33 / 32);
    assert_in_range(sb_hist_quantile(h, 0.99), 99000, 100000);
    assert_int_equal(sb_hist_quantile(h, 1), 100000);
    assert_int_equal(sb_hist_quantile(h, 0.0001), 10); /* small values are exact */
    memset(h, 0, sizeof(*h));
    sb_hist_add(h, -3);
    assert_int_equal(sb_hist_quantile(h, 1), 0);
    sb_hist_add(h, INT64_MAX);
    assert_true(sb_hist_quantile(h, 1) > UINT64_C(1) << 39);
    assert_true(h->max_us == INT64_MAX);
    free(h);
}

/* Never below the value it stands for, and at most 1/32 above, over all octaves. */
static void test_histogram_error(void **state)
{
    struct sb_hist *h = calloc(1, sizeof(*h));

    (void)state;
    assert_non_null(h);
    for (uint64_t us = 1; us < UINT64_C(1) << 38; us = us * 9 / 8 + 1) {
        memset(h, 0, sizeof(*h));
        sb_hist_add(h, (int64_t)us);
        sb_hist_add(h, INT64_C(1) << 38); /* so that the largest does not bound the answer */
        uint64_t got = sb_hist_quantile(h, 0.5);
        assert_true(got >= us && got <= us + us / 32);
    }
    free(h);
}

/* 10 events at the end of one second and 10 at the start of the next are 20 in one second,
 * which counting by clock seconds would not see. */
static void test_meter(void **state)
{
    struct sb_meter *m = calloc(1, sizeof(*m));

    (void)state;
    assert_non_null(m);
    for (int i = 0; i < 10; i++)
        sb_meter_add(m, 5990);
    for (int i = 0; i < 10; i++)
        sb_meter_add(m, 6010);
    assert_int_equal(sb_meter_rate(m, 6010), 20);
    assert_int_equal(sb_meter_rate(m, 6989), 20);
    assert_int_equal(sb_meter_rate(m, 6990), 10);
    assert_int_equal(sb_meter_rate(m, 7010), 0);
    assert_int_equal(m->peak, 20);
    sb_meter_add(m, 900000);
    assert_int_equal(sb_meter_rate(m, 900000), 1);
    sb_meter_add(m, 899000); /* time that goes backwards stands still */
    assert_int_equal(sb_meter_rate(m, 900000), 2);
    free(m);
}

struct probe {
    struct sb_timer timer; /* first, so that a timer is its probe */
    int fired;
};

static void fire(struct sb_timer *t, void *arg)
{
    int *count = arg;

    ((struct probe *)(void *)t)->fired++;
    ++*count;
}

static void test_wheel(void **state)
{
    struct sb_wheel *w = calloc(1, sizeof(*w));
    struct probe p[5];
    int fired = 0;

    (void)state;
    assert_non_null(w);
    memset(p, 0, sizeof(p));
    sb_wheel_init(w, 1000);
    sb_wheel_add(w, &p[0].timer, 1005);
    sb_wheel_add(w, &p[1].timer, 1005);
    sb_wheel_add(w, &p[2].timer, 1005 + SB_WHEEL_SLOTS); /* same slot, a round later */
    sb_wheel_add(w, &p[3].timer, 900);                   /* past: as soon as time moves */
    sb_wheel_add(w, &p[4].timer, 1005);
    sb_wheel_del(w, &p[4].timer);
    sb_wheel_del(w, &p[4].timer);
    assert_int_equal(w->armed, 4);
    sb_wheel_expire(w, 1000, fire, &fired);
    assert_int_equal(fired, 0);
    sb_wheel_expire(w, 1004, fire, &fired);
    assert_int_equal(p[3].fired, 1);
    assert_int_equal(fired, 1);
    sb_wheel_expire(w, 1005, fire, &fired);
    assert_int_equal(fired, 3);
    sb_wheel_expire(w, 1004 + SB_WHEEL_SLOTS, fire, &fired);
    assert_int_equal(fired, 3);
    sb_wheel_expire(w, 1005 + SB_WHEEL_SLOTS, fire, &fired);
    assert_int_equal(p[2].fired, 1);
    assert_int_equal(w->armed, 0);
    free(w);
}

/* A jump over many rounds fires everything that is due, once. */
static void test_wheel_jump(void **state)
{
    struct sb_wheel *w = calloc(1, sizeof(*w));
    struct probe *p = calloc(1000, sizeof(*p));
    int fired = 0;

    (void)state;
    assert_true(w && p);
    sb_wheel_init(w, 0);
    for (int i = 0; i < 1000; i++)
        sb_wheel_add(w, &p[i].timer, 1 + (int64_t)i * 100);
    sb_wheel_expire(w, 50000, fire, &fired);
    assert_int_equal(fired, 500);
    sb_wheel_expire(w, INT64_MAX - 1, fire, &fired);
    assert_int_equal(fired, 1000);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(p[i].fired, 1);
    free(p);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lognormal),  cmocka_unit_test(test_sample_edges),
        cmocka_unit_test(test_histogram),  cmocka_unit_test(test_histogram_error),
        cmocka_unit_test(test_meter),      cmocka_unit_test(test_wheel),
        cmocka_unit_test(test_wheel_jump),
    };

    return cmocka_run_group_tests_name("sandbox_latency", tests, NULL, NULL);
}
