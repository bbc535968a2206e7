/* Leases and the sweeper's distrust of clocks. Cases B21, C26, J17, R4, R10. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/lease.h"

#include <inttypes.h>
#include <stdlib.h>

static const struct {
    const char *name;
    int64_t t0, lease, want;
} ends[] = {
    {"a minute less one per cent", 1000, 60000, 60400},
    {"nothing", 1000, 0, 1000},
    {"an odd lease rounds down", 0, 101, 99},
    {"one millisecond is none", 0, 1, 0},
    {"ninety-nine", 0, 99, 98},
    {"a year does not overflow on the way", 0, INT64_C(31536000000), INT64_C(31220640000)},
    {"the longest lease", 0, INT64_MAX, INT64_C(9131138316486228048)},
    {"past the end of time", INT64_MAX - 10, 60000, INT64_MAX},
    {"a negative lease is over", 1000, -60000, -58400},
    {"before the beginning of time", INT64_MIN + 10, -60000, INT64_MIN},
};

static void test_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        int64_t got = lease_end(ends[i].t0, ends[i].lease);

        if (got != ends[i].want)
            fail_msg("%s: %" PRId64, ends[i].name, got);
    }
}

static const struct {
    const char *name;
    int64_t boot, call, settle, end;
    bool want;
} gates[] = {
    {"just fits", 0, 2000, 5000, 7000, true},
    {"one too late", 1, 2000, 5000, 7000, false},
    {"at the end with nothing to do", 7000, 0, 0, 7000, true},
    {"over", 7001, 0, 0, 7000, false},
    {"C26 woken from a suspend: boot time counted on", 3600000, 2000, 5000, 60000, false},
    {"before the clock's zero", -10000, 2000, 5000, -3000, true},
    {"a call without end", 0, INT64_MAX, 5000, INT64_MAX, true}, /* the sum stops at the end */
    {"a call without end, later", 1, INT64_MAX, 5000, INT64_MAX, false},
    {"a negative allowance opens nothing", 0, 20000, -15000, 7000, false},
    {"a negative call opens nothing", 0, -15000, 20000, 7000, false},
    {"the ends of time, open", INT64_MIN, 2000, 5000, INT64_MAX, true},
    {"the ends of time, shut", INT64_MAX, 2000, 5000, INT64_MIN, false},
};

static void test_gate(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(gates) / sizeof(*gates); i++) {
        if (lease_allows(gates[i].boot, gates[i].call, gates[i].settle, gates[i].end) !=
            gates[i].want)
            fail_msg("%s: %d", gates[i].name, !gates[i].want);
    }
}

/* What the gate promises: a call that was let through has ended and is stored when the database
 * may call the lease over, even where its clock runs 1 % faster. */
static void test_promise(void **state)
{
    (void)state;
    for (int64_t now = 0; now < 70000; now += 7) {
        int64_t end = lease_end(0, 60000);

        if (lease_allows(now, 2000, 5000, end))
            assert_true((now + 7000) * 100 <= 60000 * 99);
        else
            assert_true((now + 7000) * 100 > 60000 * 99 - 100);
    }
}

/* ---- the sweeper ---- */

struct step {
    int64_t boot, db; /* seconds */
    unsigned leases, over, workers;
    enum sweep_verdict want;
};
struct story {
    const char *name;
    struct step steps[10];
};

/* A lease is 60 s throughout; a row of zeros ends a story. */
static const struct story stories[] = {
    {"a fresh sweeper waits one lease",
     {{100, 5000, 3, 3, 1, SWEEP_WAIT_FRESH},
      {105, 5005, 3, 3, 1, SWEEP_WAIT},
      {159, 5059, 3, 3, 1, SWEEP_WAIT},
      {160, 5060, 3, 3, 1, SWEEP_GO},
      {165, 5065, 3, 1, 1, SWEEP_GO}}},
    {"the database's clock jumps forward",
     {{100, 5000, 9, 0, 0, SWEEP_WAIT_FRESH},
      {160, 5060, 9, 0, 0, SWEEP_GO},
      {165, 5068, 9, 9, 2, SWEEP_WAIT_DRIFT},
      {170, 5073, 9, 9, 2, SWEEP_WAIT},
      {225, 5128, 9, 9, 2, SWEEP_GO}}},
    {"or back",
     {{100, 5000, 9, 0, 0, SWEEP_WAIT_FRESH},
      {160, 5060, 9, 0, 0, SWEEP_GO},
      {165, 5000, 9, 1, 1, SWEEP_WAIT_DRIFT},
      {224, 5059, 9, 1, 1, SWEEP_WAIT},
      {225, 5060, 9, 1, 1, SWEEP_GO}}},
    {"two seconds apart are borne",
     {{100, 5000, 9, 0, 0, SWEEP_WAIT_FRESH},
      {160, 5062, 9, 1, 1, SWEEP_GO},
      {165, 5065, 9, 1, 1, SWEEP_GO}}},
    {"a jump while waiting starts the wait again",
     {{100, 5000, 9, 0, 0, SWEEP_WAIT_FRESH},
      {150, 6000, 9, 9, 2, SWEEP_WAIT_DRIFT},
      {160, 6010, 9, 9, 2, SWEEP_WAIT},
      {209, 6059, 9, 9, 2, SWEEP_WAIT},
      {210, 6060, 9, 9, 2, SWEEP_GO}}},
    {"many leases of several workers at once",
     {{100, 5000, 50, 0, 0, SWEEP_WAIT_FRESH},
      {160, 5060, 50, 0, 0, SWEEP_GO},
      {221, 5121, 50, 20, 2, SWEEP_WAIT_MANY},
      {226, 5126, 50, 20, 2, SWEEP_WAIT},
      {281, 5181, 50, 20, 2, SWEEP_GO}, /* once: after the wait they are dead */
      {286, 5186, 50, 12, 2, SWEEP_GO}}},
    {"J17 one of two workers was killed: no delay",
     {{100, 5000, 50, 0, 0, SWEEP_WAIT_FRESH},
      {160, 5060, 50, 0, 0, SWEEP_GO},
      {300, 5200, 50, 25, 1, SWEEP_GO}}},
    {"two of three are no crowd",
     {{100, 5000, 3, 0, 0, SWEEP_WAIT_FRESH},
      {160, 5060, 3, 0, 0, SWEEP_GO},
      {300, 5200, 3, 2, 2, SWEEP_GO}}},
    {"ten of three hundred are no crowd, sixteen are",
     {{100, 5000, 300, 0, 0, SWEEP_WAIT_FRESH},
      {160, 5060, 300, 0, 0, SWEEP_GO},
      {300, 5200, 300, 15, 2, SWEEP_GO},
      {305, 5205, 300, 16, 2, SWEEP_WAIT_MANY}}},
    {"C26 the sweeper's host slept: both clocks went on",
     {{100, 5000, 9, 0, 0, SWEEP_WAIT_FRESH},
      {160, 5060, 9, 0, 0, SWEEP_GO},
      {9999, 14899, 9, 2, 1, SWEEP_GO}}},
};

static struct sweep_look look_of(const struct step *s)
{
    return (struct sweep_look){.boot_ms = s->boot * 1000,
                               .db_ms = s->db * 1000,
                               .lease_ms = 60000,
                               .leases = s->leases,
                               .over = s->over,
                               .over_workers = s->workers};
}

static void test_stories(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(stories) / sizeof(*stories); i++) {
        struct sweep_guard g = {0};

        for (size_t j = 0; stories[i].steps[j].boot; j++) {
            struct sweep_look look = look_of(&stories[i].steps[j]);
            enum sweep_verdict got = sweep_guard_look(&g, &look);

            if (got != stories[i].steps[j].want)
                fail_msg("%s, step %zu: %d", stories[i].name, j, (int)got);
        }
    }
}

static void test_reset(void **state)
{
    struct sweep_guard g = {0};
    struct sweep_look look = {.boot_ms = 1000, .db_ms = 5000, .lease_ms = 100};

    (void)state;
    assert_int_equal(sweep_guard_look(&g, &look), SWEEP_WAIT_FRESH);
    look.boot_ms += 100;
    look.db_ms += 100;
    assert_int_equal(sweep_guard_look(&g, &look), SWEEP_GO);
    sweep_guard_reset(&g);
    look.db_ms += 999999; /* another database: its clock says nothing about a jump */
    assert_int_equal(sweep_guard_look(&g, &look), SWEEP_WAIT_FRESH);
}

/* Nothing is swept in the first lease after a look at which the clocks disagreed, whatever
 * times are shown: the rule itself, over random looks with extreme values among them. */
static void test_never_early(void **state)
{
    static const int64_t odd[] = {INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX};
    unsigned short seed[3] = {7, 26, 10};

    (void)state;
    for (int run = 0; run < 2000; run++) {
        struct sweep_guard g = {0};
        int64_t boot = nrand48(seed) % 100000, db = nrand48(seed), trusted = INT64_MAX;

        for (int i = 0; i < 40; i++) {
            int64_t step = nrand48(seed) % 30000;
            bool jump = nrand48(seed) % 8 == 0;
            struct sweep_look look = {.lease_ms = 60000, .leases = 100};

            boot += step;
            db += step + (jump ? (nrand48(seed) % 2 ? 2001 : -2001) : nrand48(seed) % 5);
            look.boot_ms = boot;
            look.db_ms = run % 10 == 0 && jump ? odd[nrand48(seed) % 7] : db;
            if (i == 0 || jump)
                trusted = boot + 60000;
            if (sweep_guard_look(&g, &look) == SWEEP_GO && boot < trusted)
                fail_msg("swept %" PRId64 " ms too early", trusted - boot);
            g.db_ms = db; /* an odd value does not make the next step a jump of this model */
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_end),     cmocka_unit_test(test_gate),
        cmocka_unit_test(test_promise), cmocka_unit_test(test_stories),
        cmocka_unit_test(test_reset),   cmocka_unit_test(test_never_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
