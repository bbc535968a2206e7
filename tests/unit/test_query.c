/* Queries and form bodies. Expected values are those of Python's
 * urllib.parse.parse_qsl(text, keep_blank_values=True), but for the dropped NUL and broken bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/query.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *text;
    const char *want[9]; /* name, value, name, value, NULL */
} rows[] = {
    {"nothing", "", {NULL}},
    {"separators alone", "&&&", {NULL}},
    {"one", "a=b", {"a", "b"}},
    {"order and repetition stay", "b=1&a=2&b=3", {"b", "1", "a", "2", "b", "3"}},
    {"no equals sign", "a", {"a", ""}},
    {"empty value", "a=&b=", {"a", "", "b", ""}},
    {"empty name", "=x", {"", "x"}},
    {"an equals sign in the value", "a=b=c==", {"a", "b=c=="}},
    {"empty pieces", "&a=1&&b=2&", {"a", "1", "b", "2"}},
    {"plus is a blank", "a+b=c+d%2B", {"a b", "c d+"}},
    {"H1 every character",
     "t=1%2B1%3D2%20%26%2050%25%20off%3F%20a%23b%20%22q%22%20%5C%20%C3%B1%0A",
     {"t", "1+1=2 & 50% off? a#b \"q\" \\ \xc3\xb1\n"}},
    {"lower case hex", "%61=%c3%b1", {"a", "\xc3\xb1"}},
    {"a broken escape stands for itself",
     "a=100%&b=%zz%4&c=%4",
     {"a", "100%", "b", "%zz%4", "c", "%4"}},
    {"an escaped escape is decoded once", "a=%2541", {"a", "%41"}},
    {"a semicolon is no separator", "a=1;b=2", {"a", "1;b=2"}},
    {"NUL in a value", "a=x%00y&b=2", {"b", "2"}},
    {"NUL in a name", "a%00=x&b=2&%00", {"b", "2"}},
    {"no encoding at all", "a=%ff%fe", {"a", "\xff\xfe"}},
};

static void splits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        /* Exactly as long as it is: a byte read too many is seen by the sanitizer. */
        size_t len = strlen(rows[i].text), n = 0;
        char *text = malloc(len ? len : 1);
        struct query q;

        assert_non_null(text);
        memcpy(text, rows[i].text, len);
        assert_int_equal(query_split(text, len, &q), 0);
        for (; rows[i].want[2 * n]; n++)
            if (n >= q.count || strcmp(q.params[n].name, rows[i].want[2 * n]) != 0 ||
                strcmp(q.params[n].value, rows[i].want[2 * n + 1]) != 0)
                fail_msg("%s: parameter %zu of %zu is %s=%s", rows[i].name, n, q.count,
                         n < q.count ? q.params[n].name : "-",
                         n < q.count ? q.params[n].value : "-");
        if (q.count != n)
            fail_msg("%s: %zu parameters", rows[i].name, q.count);
        query_done(&q);
        assert_null(q.params);
        free(text);
    }
}

static void finds_the_first(void **state)
{
    struct query q;

    (void)state;
    assert_int_equal(query_split("a=1&b=2&a=3", 11, &q), 0);
    assert_string_equal(query_find(&q, "a"), "1");
    assert_string_equal(query_find(&q, "b"), "2");
    assert_null(query_find(&q, "c"));
    query_done(&q);
    assert_null(query_find(&q, "a"));
    assert_int_equal(query_split(NULL, 0, &q), 0);
    assert_int_equal(q.count, 0);
}

static void counts_are_bounded(void **state)
{
    char text[2 * (QUERY_PARAMS_MAX + 1)];
    struct query q;

    (void)state;
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = i % 2 ? '&' : 'a';
    assert_int_equal(query_split(text, 2 * QUERY_PARAMS_MAX, &q), 0);
    assert_int_equal(q.count, QUERY_PARAMS_MAX);
    query_done(&q);
    assert_int_equal(query_split(text, sizeof(text), &q), -E2BIG);
    assert_int_equal(q.count, 0);
    assert_null(q.params);
    assert_null(q.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits),
        cmocka_unit_test(finds_the_first),
        cmocka_unit_test(counts_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
