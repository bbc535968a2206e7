/* What reached the phones: first deliveries, duplicates, replays, bounds, odd keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "providers/sandbox/inbox.h"
#include "providers/sandbox/ledger.h"
#include "providers/sandbox/message.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define UUID_A     "0190b1c2-0000-7000-8000-00000000000a"
#define UUID_UPPER "0190B1C2-0000-7000-8000-00000000000A"

static struct sb_ledger *ledger(size_t max_keys)
{
    struct sb_ledger *l = NULL;

    assert_int_equal(sb_ledger_new(max_keys, &l), 0);
    return l;
}

static struct sb_entry *note(struct sb_ledger *l, const char *key, const char *to, uint64_t hash)
{
    struct sb_entry *e = NULL;

    assert_int_equal(
        sb_ledger_note(
            l,
            &(struct sb_request){
                .key = key, .key_len = strlen(key), .to = to, .lane = "otp", .body_hash = hash},
            &e),
        0);
    return e;
}

static const struct {
    int64_t at_ms, window_ms;
    enum sb_taken want;
    uint64_t deliveries, duplicates, replays;
} steps[] = {
    {1000, 0, SB_TAKEN_FIRST, 1, 0, 0},     /* the first is a delivery, whatever the window */
    {1500, 1000, SB_TAKEN_REPLAY, 1, 0, 1}, /* inside the window: from memory */
    {1999, 1000, SB_TAKEN_REPLAY, 1, 0, 2},
    {2000, 1000, SB_TAKEN_AGAIN, 2, 1, 2},  /* the window is over: the phone gets it twice */
    {2999, 1000, SB_TAKEN_REPLAY, 2, 1, 3}, /* and counts from that delivery on */
    {3000, 0, SB_TAKEN_AGAIN, 3, 2, 3},     /* no de-duplication at all */
    {3000, 0, SB_TAKEN_AGAIN, 4, 3, 3},
    {2900, 1000, SB_TAKEN_REPLAY, 4, 3, 4}, /* a clock that went back opens no gap */
};

static void test_take(void **state)
{
    struct sb_ledger *l = ledger(100);
    const struct sb_totals *t = sb_ledger_totals(l);
    uint64_t vendor_no = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        struct sb_entry *e = note(l, UUID_A, "+998901234567", 1);
        uint64_t before = e->vendor_no;
        enum sb_taken got = sb_ledger_take(l, e, steps[i].at_ms, steps[i].window_ms, ++vendor_no);

        if (got != steps[i].want || t->taken != steps[i].deliveries ||
            t->duplicates != steps[i].duplicates || t->replays != steps[i].replays)
            fail_msg("step %zu: %d, %u deliveries", i, (int)got, e->deliveries);
        assert_true(e->vendor_no == (got == SB_TAKEN_REPLAY ? before : vendor_no));
        assert_int_equal(e->requests, i + 1);
    }
    assert_int_equal(t->keys, 1);
    assert_int_equal(t->dup_keys, 1);
    const struct sb_entry *e = sb_ledger_at(l, 0);
    assert_true(e->first_ms == 1000 && sb_entry_last_ms(e) == 3000);
    sb_ledger_free(l);
}

static void test_not_taken_is_not_delivered(void **state)
{
    struct sb_ledger *l = ledger(100);
    struct sb_entry *e = note(l, "k1", "+1", 1);

    (void)state;
    assert_int_equal(e->deliveries, 0);
    assert_true(sb_entry_last_ms(e) == 0);
    assert_int_equal(sb_ledger_totals(l)->keys, 0);
    assert_int_equal(sb_ledger_count(l), 1);
    sb_ledger_free(l);
}

/* Same key, other bytes; and of those, another person: the worst there is. */
static void test_mismatch(void **state)
{
    struct sb_ledger *l = ledger(100);

    (void)state;
    note(l, UUID_A, "+998901234567", 1);
    note(l, UUID_A, "+998901234567", 1);
    assert_int_equal(sb_ledger_totals(l)->body_mismatch, 0);
    note(l, UUID_A, "+998901234567", 2);
    assert_int_equal(sb_ledger_totals(l)->body_mismatch, 1);
    assert_int_equal(sb_ledger_totals(l)->to_mismatch, 0);
    note(l, UUID_A, "+998901234568", 3);
    assert_int_equal(sb_ledger_totals(l)->body_mismatch, 2);
    assert_int_equal(sb_ledger_totals(l)->to_mismatch, 1);
    sb_ledger_free(l);
}

static const char *const keys[] = {
    UUID_A,
    UUID_UPPER, /* another key: bytes are compared, not meaning */
    "0190b1c2-0000-7000-8000-00000000000",
    "0190b1c2-0000-7000-8000-00000000000g",
    "0190b1c2_0000-7000-8000-00000000000a",
    "0190b1c200007000800000000000000a",
    "k",
    "ключ",
    "a-key-that-is-longer-than-sixteen-bytes-and-not-a-uuid-at-all",
};

static void test_keys(void **state)
{
    struct sb_ledger *l = ledger(100);
    const size_t n = sizeof(keys) / sizeof(keys[0]);
    char text[SB_KEY_MAX + 1];

    (void)state;
    for (size_t i = 0; i < n; i++)
        note(l, keys[i], "+1", 1);
    assert_int_equal(sb_ledger_count(l), n);
    for (size_t i = 0; i < n; i++) {
        const struct sb_entry *e = sb_ledger_find(l, keys[i], strlen(keys[i]));
        assert_ptr_equal(e, sb_ledger_at(l, i));
        assert_int_equal(sb_entry_key(e, text), strlen(keys[i]));
        assert_string_equal(text, keys[i]);
    }
    assert_null(sb_ledger_find(l, "k", 0));
    assert_null(sb_ledger_find(l, "kk", 2));
    sb_ledger_free(l);
}

static const char *const recipients[] = {
    "+998901234567",     "998901234567",         "+0",    "0",          "00998901234567",
    "+9999999999999999", "12345678901234567890", "Alice", "+99890 123", "+",
};

static void test_recipients(void **state)
{
    struct sb_ledger *l = ledger(100);
    char key[32];
    char text[SB_TO_MAX + 1];

    (void)state;
    for (size_t i = 0; i < sizeof(recipients) / sizeof(recipients[0]); i++) {
        snprintf(key, sizeof(key), "k%zu", i);
        sb_entry_to(note(l, key, recipients[i], 1), text);
        assert_string_equal(text, recipients[i]);
    }
    sb_ledger_free(l);
}

static void test_bound(void **state)
{
    struct sb_ledger *l = ledger(3);
    struct sb_entry *e = NULL;
    const struct sb_request fourth = {.key = "d", .key_len = 1, .to = "+1"};

    (void)state;
    note(l, "a", "+1", 1);
    note(l, "b", "+1", 1);
    note(l, "c", "+1", 1);
    assert_int_equal(sb_ledger_note(l, &fourth, &e), -ENOSPC);
    assert_null(e);
    note(l, "a", "+1", 1); /* known keys still go on */
    assert_int_equal(sb_ledger_count(l), 3);
    sb_ledger_clear(l);
    note(l, "d", "+1", 1);
    assert_int_equal(sb_ledger_count(l), 1);
    assert_null(sb_ledger_find(l, "a", 1));
    sb_ledger_free(l);
    assert_int_equal(sb_ledger_new(0, &l), -EINVAL);
}

/* More than a chunk, against what plain arithmetic says. */
static void test_many(void **state)
{
    enum { N = 50000 };
    struct sb_ledger *l = ledger(N);
    char key[64];

    (void)state;
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof(key), "0190b1c2-0000-7000-8000-%012x", (unsigned)i);
        struct sb_entry *e = note(l, key, "+998901234567", 1);
        for (int d = 0; d < i % 3; d++) /* 0, 1 or 2 deliveries */
            sb_ledger_take(l, e, 1000 + i, 0, 1);
    }
    const struct sb_totals *t = sb_ledger_totals(l);
    assert_int_equal(t->keys, 33333);       /* those with i mod 3 of 1 or 2 */
    assert_int_equal(t->duplicates, 16666); /* those of 2 */
    assert_int_equal(t->dup_keys, 16666);
    assert_int_equal(t->taken, 49999);
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof(key), "0190b1c2-0000-7000-8000-%012x", (unsigned)i);
        assert_int_equal(sb_ledger_find(l, key, 36)->deliveries, i % 3);
    }
    sb_ledger_free(l);
}

static void test_ask(void **state)
{
    struct sb_ledger *l = ledger(100);
    bool again = true;

    (void)state;
    sb_ledger_take(l, note(l, "a", "+1", 1), 1, 0, 1);
    note(l, "b", "+1", 1);
    sb_ledger_ask_begin(l);
    assert_int_equal(sb_ledger_ask(l, "a", 1, &again), 1);
    assert_false(again);
    assert_int_equal(sb_ledger_ask(l, "a", 1, &again), 1);
    assert_true(again);
    assert_int_equal(sb_ledger_ask(l, "b", 1, &again), 0);
    assert_int_equal(sb_ledger_ask(l, "never", 5, &again), 0);
    for (int i = 0; i < 70000; i++) /* past the round counter's end */
        sb_ledger_ask_begin(l);
    sb_ledger_ask(l, "a", 1, &again);
    assert_false(again);
    sb_ledger_free(l);
}

static void test_lanes(void **state)
{
    struct sb_ledger *l = ledger(1000);
    char key[16], lane[16];
    struct sb_entry *e = NULL;

    (void)state;
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        snprintf(lane, sizeof(lane), "lane%d", i % 50);
        assert_int_equal(
            sb_ledger_note(
                l,
                &(struct sb_request){.key = key, .key_len = strlen(key), .to = "+1", .lane = lane},
                &e),
            0);
        assert_int_equal(e->lane, i % 50 < SB_LANES ? i % 50 : SB_LANES - 1);
    }
    assert_string_equal(sb_ledger_lane(l, 7), "lane7");
    assert_null(sb_ledger_lane(l, SB_LANES));
    sb_ledger_free(l);
}

static void test_inbox(void **state)
{
    struct sb_inbox *b = NULL;
    char key[16];

    (void)state;
    assert_int_equal(sb_inbox_new(3, &b), 0);
    assert_null(sb_inbox_at(b, 0));
    for (int i = 1; i <= 5; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        sb_inbox_add(b, &(struct sb_text){.to = "+1", .key = key, .lane = "", .text = "Salom"});
    }
    assert_string_equal(sb_inbox_at(b, 0)->key, "k5");
    assert_string_equal(sb_inbox_at(b, 2)->key, "k3");
    assert_string_equal(sb_inbox_at(b, 2)->text, "Salom");
    assert_null(sb_inbox_at(b, 3));
    sb_inbox_free(b);
}

static const struct {
    const char *body, *type;
    int want;
    const char *to, *text, *key;
    double t_ms;
} bodies[] = {
    {"{\"to\":\"+1\",\"text\":\"a\\u0441\",\"key\":\"k\",\"t\":12.5}", "application/json", 0, "+1",
     "aс", "k", 12.5},
    {"{\"to\":\"+1\",\"text\":\"a\",\"t\":\"1700000000000\"}", NULL, 0, "+1", "a", NULL,
     1700000000000.0},
    {"{\"to\":1}", NULL, 0, NULL, NULL, NULL, 0},
    {"[]", NULL, -EINVAL, NULL, NULL, NULL, 0},
    {"{\"to\":\"+1\"", NULL, -EINVAL, NULL, NULL, NULL, 0},
    {"", NULL, -EINVAL, NULL, NULL, NULL, 0},
    {"to=%2B998&text=a+b%21%2&key=k&t=5", "application/x-www-form-urlencoded; charset=utf-8", 0,
     "+998", "a b!%2", "k", 5},
    {"to&&text=", "application/x-www-form-urlencoded", 0, "", "", NULL, 0},
    {"to=%ff", "application/x-www-form-urlencoded", -EINVAL, NULL, NULL, NULL, 0},
};

static void same(const char *got, const char *want)
{
    if (got && want)
        assert_string_equal(got, want);
    else
        assert_true(!got && !want);
}

static void test_bodies(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct sb_message m;
        const char *body = bodies[i].body;

        assert_int_equal(sb_message_parse(body, strlen(body), bodies[i].type, &m), bodies[i].want);
        same(m.to, bodies[i].to);
        same(m.text, bodies[i].text);
        same(m.key, bodies[i].key);
        assert_true(m.t_ms == bodies[i].t_ms);
        sb_message_done(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take),       cmocka_unit_test(test_not_taken_is_not_delivered),
        cmocka_unit_test(test_mismatch),   cmocka_unit_test(test_keys),
        cmocka_unit_test(test_recipients), cmocka_unit_test(test_bound),
        cmocka_unit_test(test_many),       cmocka_unit_test(test_ask),
        cmocka_unit_test(test_lanes),      cmocka_unit_test(test_inbox),
        cmocka_unit_test(test_bodies),
    };

    return cmocka_run_group_tests_name("sandbox_ledger", tests, NULL, NULL);
}
