/* The wait a vendor asks for: cases C14, H5 and the Retry-After relations. Epoch values are from
 * `date -u -d '...' +%s`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/retry_after.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ABSENT = -1 };

#define NOW     784111777 /* Sun, 06 Nov 1994 08:49:37 GMT: the date RFC 9110 shows */
#define HOUR_MS 3600000

static const struct {
    const char *name, *value;
    int64_t cap_ms, want_ms;
} rows[] = {
    {"H5 seconds", "7", HOUR_MS, 7000},
    {"C14 zero", "0", HOUR_MS, 0},
    {"leading zeros", "007", HOUR_MS, 7000},
    {"at the cap", "3600", HOUR_MS, HOUR_MS},
    {"above the cap", "3601", HOUR_MS, HOUR_MS},
    {"C14 negative is over", "-5", HOUR_MS, 0},
    {"the largest that fits", "9223372036854775807", HOUR_MS, HOUR_MS},
    {"one more does not", "9223372036854775808", HOUR_MS, ABSENT},
    {"seconds that fit but not in ms", "9223372036854776", INT64_MAX, INT64_MAX},
    {"C14 21 digits", "100000000000000000000", HOUR_MS, ABSENT},
    {"C14 1e21", "1e21", HOUR_MS, ABSENT},
    {"C14 1.5", "1.5", HOUR_MS, ABSENT},
    {"C14 soon", "soon", HOUR_MS, ABSENT},
    {"C14 empty", "", HOUR_MS, ABSENT},
    {"blanks", " \t ", HOUR_MS, ABSENT},
    {"blanks around", " \t7 ", HOUR_MS, 7000},
    {"C14 two headers joined", "7, 9", HOUR_MS, ABSENT},
    {"a plus", "+7", HOUR_MS, ABSENT},
    {"a minus alone", "-", HOUR_MS, ABSENT},
    {"two minus", "--7", HOUR_MS, ABSENT},
    {"a unit", "7s", HOUR_MS, ABSENT},
    {"hexadecimal", "0x10", HOUR_MS, ABSENT},
    {"blank inside", "1 0", HOUR_MS, ABSENT},
    {"full-width digit", "７", HOUR_MS, ABSENT},
    {"date now", "Sun, 06 Nov 1994 08:49:37 GMT", HOUR_MS, 0},
    {"date in 10 s", "Sun, 06 Nov 1994 08:49:47 GMT", HOUR_MS, 10000},
    {"C14 date past", "Sat, 05 Nov 1994 08:49:37 GMT", HOUR_MS, 0},
    {"C14 date 2100", "Fri, 01 Jan 2100 00:00:00 GMT", HOUR_MS, HOUR_MS},
    {"date before 1970", "Thu, 01 Jan 1601 00:00:00 GMT", HOUR_MS, 0},
    {"wrong weekday is forgiven", "Mon, 06 Nov 1994 08:49:47 GMT", HOUR_MS, 10000},
    {"leap second", "Sun, 06 Nov 1994 08:49:60 GMT", HOUR_MS, 23000},
    {"obsolete RFC 850 form", "Sunday, 06-Nov-94 08:49:47 GMT", HOUR_MS, ABSENT},
    {"obsolete asctime form", "Sun Nov  6 08:49:47 1994", HOUR_MS, ABSENT},
    {"another zone", "Sun, 06 Nov 1994 08:49:47 EST", HOUR_MS, ABSENT},
    {"UTC is not GMT here", "Sun, 06 Nov 1994 08:49:47 UTC", HOUR_MS, ABSENT},
    {"nearly GMT", "Sun, 06 Nov 1994 08:49:47 GNT", HOUR_MS, ABSENT},
    {"lower case", "sun, 06 nov 1994 08:49:47 gmt", HOUR_MS, ABSENT},
    {"weekday across two names", "unM, 06 Nov 1994 08:49:47 GMT", HOUR_MS, ABSENT},
    {"no such day", "Thu, 31 Nov 1994 08:49:47 GMT", HOUR_MS, ABSENT},
    {"day 0", "Thu, 00 Nov 1994 08:49:47 GMT", HOUR_MS, ABSENT},
    {"no leap day in 2100", "Mon, 29 Feb 2100 00:00:00 GMT", HOUR_MS, ABSENT},
    {"hour 24", "Sun, 06 Nov 1994 24:00:00 GMT", HOUR_MS, ABSENT},
    {"minute 60", "Sun, 06 Nov 1994 08:60:00 GMT", HOUR_MS, ABSENT},
    {"second 61", "Sun, 06 Nov 1994 08:49:61 GMT", HOUR_MS, ABSENT},
    {"one digit day", "Sun, 6 Nov 1994 08:49:47 GMT", HOUR_MS, ABSENT},
    {"sign in a field", "Sun, 06 Nov 1994 08:49:+7 GMT", HOUR_MS, ABSENT},
    {"cap 0", "7", 0, 0},
    {"a negative cap is 0", "7", -5, 0},
};

static int64_t parse(const char *value, int64_t now_s, int64_t cap_ms)
{
    int64_t ms = ABSENT;
    size_t len = strlen(value);
    char *copy = malloc(len + 1); /* exact, so that a sanitizer sees a read too far */

    assert_non_null(copy);
    memcpy(copy, value, len);
    bool present = retry_after_parse(copy, len, now_s, cap_ms, &ms);

    free(copy);
    assert_int_equal(present, ms != ABSENT);
    return ms;
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        int64_t got = parse(rows[i].value, NOW, rows[i].cap_ms);

        if (got != rows[i].want_ms)
            fail_msg("%s: %" PRId64 " ms, want %" PRId64, rows[i].name, got, rows[i].want_ms);
    }
}

static void test_dates(void **state)
{
    static const struct {
        const char *value;
        int64_t epoch_s;
    } dates[] = {
        {"Thu, 01 Jan 1970 00:00:00 GMT", 0},
        {"Wed, 31 Dec 1969 23:59:59 GMT", -1},
        {"Sun, 06 Nov 1994 08:49:37 GMT", 784111777},
        {"Tue, 29 Feb 2000 12:00:00 GMT", 951825600},
        {"Sun, 29 Feb 2004 00:00:00 GMT", 1078012800},
        {"Tue, 19 Jan 2038 03:14:08 GMT", 2147483648},
        {"Mon, 01 Mar 2100 00:00:00 GMT", 4107542400},
        {"Fri, 31 Dec 9999 23:59:59 GMT", 253402300799},
        {"Mon, 01 Jan 0001 00:00:00 GMT", -62135596800},
        {"Sat, 01 Jan 0000 00:00:00 GMT", -62167219200},
        {"Tue, 29 Feb 0000 00:00:00 GMT", -62162121600},
    };
    int64_t got = 7;

    (void)state;
    for (size_t i = 0; i < sizeof(dates) / sizeof(*dates); i++) {
        assert_int_equal(http_date_parse(dates[i].value, strlen(dates[i].value), &got), 0);
        if (got != dates[i].epoch_s)
            fail_msg("%s: %" PRId64, dates[i].value, got);
    }
    assert_int_equal(http_date_parse("", 0, &got), -EINVAL);
}

/* A day later is 86,400 s later, through 400 years of leap days. */
static void test_days_follow_each_other(void **state)
{
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    int64_t before = 0, got = 0;
    size_t days = 0;

    (void)state;
    for (int year = 1900; year < 2300; year++) {
        for (int month = 0; month < 12; month++) {
            for (int day = 1; day <= 31; day++) {
                char value[64];
                int n = snprintf(value, sizeof(value), "Mon, %02d %s %04d 00:00:00 GMT", day,
                                 months[month], year);

                if (http_date_parse(value, (size_t)n, &got) < 0)
                    continue;
                if (days++ > 0)
                    assert_int_equal(got - before, 86400);
                before = got;
            }
        }
    }
    assert_int_equal(days, 146097); /* the days of any 400 Gregorian years */
}

static void test_a_later_wish_never_gives_an_earlier_time(void **state)
{
    int64_t before = -1;

    (void)state;
    for (int64_t s = 0; s < 5000; s += 7) {
        char value[32];

        (void)snprintf(value, sizeof(value), "%" PRId64, s);
        int64_t got = parse(value, NOW, HOUR_MS);

        assert_true(got >= before && got <= HOUR_MS);
        before = got;
    }
    assert_int_equal(before, HOUR_MS);
}

static void test_absurd_clocks(void **state)
{
    const char *date = "Sun, 06 Nov 1994 08:49:37 GMT";

    (void)state;
    assert_int_equal(parse(date, INT64_MAX, HOUR_MS), 0);
    assert_int_equal(parse(date, INT64_MIN, HOUR_MS), HOUR_MS);
    assert_int_equal(parse("Thu, 01 Jan 1601 00:00:00 GMT", INT64_MAX, HOUR_MS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_dates),
        cmocka_unit_test(test_days_follow_each_other),
        cmocka_unit_test(test_a_later_wish_never_gives_an_earlier_time),
        cmocka_unit_test(test_absurd_clocks),
    };

    return cmocka_run_group_tests_name("retry_after", tests, NULL, NULL);
}
