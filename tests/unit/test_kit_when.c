/* Times as vendors write them. Expected seconds are Python's (datetime, email.utils). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "providers/kit/when.h"

#include <string.h>
#include <time.h>

#define MS(s) ((s)*INT64_C(1000))

static void writing(void **state)
{
    char buf[WHEN_SIZE];

    (void)state;
    assert_string_equal(when_rfc3339(MS(1796077800) + 999, buf), "2026-11-30T22:30:00Z");
    assert_string_equal(when_rfc3339(0, buf), "1970-01-01T00:00:00Z");
    assert_string_equal(when_rfc3339(-1, buf), "1970-01-01T00:00:00Z");
    assert_string_equal(when_rfc3339(INT64_MAX, buf), "9999-12-31T23:59:59Z");
    assert_string_equal(when_local(MS(1796077800), 300, buf), "2026-12-01 03:30:00");
    assert_string_equal(when_local(MS(978307199), -60, buf), "2000-12-31 22:59:59");
    assert_string_equal(when_date(MS(1796077800), 0, buf), "2026-11-30");
    assert_string_equal(when_date(MS(1796077800), 420, buf), "2026-12-01");
    assert_string_equal(when_date(MS(1709164800), 0, buf), "2024-02-29");
}

static void every_day_until_2400_as_the_c_library_has_it(void **state)
{
    (void)state;
    for (int64_t day = 0; day < 157054; day++) {
        char buf[WHEN_SIZE], wanted[WHEN_SIZE];
        time_t t = (time_t)(day * 86400 + day % 86400);
        struct tm tm;
        int64_t back = 0;

        assert_non_null(gmtime_r(&t, &tm));
        assert_true(strftime(wanted, sizeof(wanted), "%Y-%m-%dT%H:%M:%SZ", &tm) > 0);
        assert_string_equal(when_rfc3339(MS((int64_t)t), buf), wanted);
        assert_true(when_parse(buf, 77, &back));
        assert_int_equal(back, MS((int64_t)t));
    }
}

static void parsing(void **state)
{
    static const struct {
        const char *text;
        int offset_min;
        int64_t ms;
    } rows[] = {
        {"2026-11-30T22:30:00Z", 300, MS(1796077800)},
        {"2026-11-30t22:30:00z", 0, MS(1796077800)},
        {"2026-11-30T22:30:00.123456Z", 0, MS(1796077800) + 123},
        {"2026-11-30T22:30:00.5Z", 0, MS(1796077800) + 500},
        {"2026-12-01T03:30:00+05:00", 0, MS(1796077800)},
        {"2026-12-01T03:30:00.000+0500", 0, MS(1796077800)},
        {"2026-11-30 17:30:00-05", 0, MS(1796077800)},
        {"2026-11-30 22:30:00 +0000", 300, MS(1796077800)},
        {"2026-11-30 22:30:00", 0, MS(1796077800)},
        {"2026-12-01 03:30:00", 300, MS(1796077800)},
        {"2026-12-01 03:30", 300, MS(1796077800)},
        {"Mon, 30 Nov 2026 22:30:00 +0000", 0, MS(1796077800)},
        {"Mon, 30 Nov 2026 17:30:00 -0500", 300, MS(1796077800)},
        {"30 Nov 2026 22:30:00 GMT", 300, MS(1796077800)},
        {"Thu, 1 Jan 1970 00:00 UT", 300, 0},
        {"2024-02-29T00:00:00Z", 0, MS(1709164800)},
        {"2100-03-01T00:00:00Z", 0, MS(4107542400)},
        {"2016-12-31T23:59:60Z", 0, MS(1483228800)}, /* a leap second that was */
    };
    static const char *const no[] = {
        "",
        "2026-11-30",
        "2026-11-30T",
        "2026-11-30T22",
        "2026-11-30T22:30:00Z ",
        "2026-11-30T22:30:00ZZ",
        "2026-11-30T22:30:00.Z",
        "2026-11-30T22:30:00+5",
        "2026-11-30T22:30:00+05:",
        "2026-11-30T22:30:00+24:00",
        "2026-11-31T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "2025-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z",
        "2026-11-30T24:00:00Z",
        "2026-11-30T22:60:00Z",
        "2026-11-30T22:30:61Z",
        "1969-12-31T23:59:59Z",
        "0000-00-00 00:00:00",
        "Mon, 30 Nvo 2026 22:30:00 +0000",
        "Mon, 30 Nov 26 22:30:00 +0000",
        "1796077800",
        "11/30/2026 22:30:00",
    };
    int64_t ms = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (!when_parse(rows[i].text, rows[i].offset_min, &ms) || ms != rows[i].ms)
            fail_msg("\"%s\" gave %lld", rows[i].text, (long long)ms);
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        if (when_parse(no[i], 0, &ms))
            fail_msg("\"%s\" was read", no[i]);
    assert_false(when_parse(NULL, 0, &ms));
}

static void lifetimes(void **state)
{
    (void)state;
    assert_int_equal(when_validity(299999, 1000, 1, 36000), 299);
    assert_int_equal(when_validity(299999, 60000, 1, 2880), 4);
    assert_int_equal(when_validity(500, 1000, 1, 36000), 1);
    assert_int_equal(when_validity(INT64_C(864000000), 1000, 1, 36000), 36000);
    assert_int_equal(when_validity(299999, 1, 1, INT64_MAX), 299999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writing),
        cmocka_unit_test(every_day_until_2400_as_the_c_library_has_it),
        cmocka_unit_test(parsing),
        cmocka_unit_test(lifetimes),
    };

    return cmocka_run_group_tests_name("kit_when", tests, NULL, NULL);
}
