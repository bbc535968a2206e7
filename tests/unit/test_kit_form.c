/* Percent-encoding (RFC 3986, 2.1 and 2.3) of providers/kit/form.h; case H1: no text may arrive as
 * another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "providers/kit/form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void every_byte_is_itself_or_an_escape(void **state)
{
    static const char unreserved[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";

    (void)state;
    for (unsigned c = 0; c < 256; c++) {
        struct form f = {0};
        char byte = (char)c, wanted[8] = {0};

        if (c != 0 && strchr(unreserved, byte))
            wanted[0] = byte;
        else
            (void)snprintf(wanted, sizeof(wanted), "%%%02X", c);
        form_escape(&f, &byte, 1);
        assert_int_equal(f.error, 0);
        assert_string_equal(f.text, wanted);
        assert_int_equal(f.len, strlen(wanted));
        form_done(&f);
    }
}

static void a_text_of_every_trap(void **state)
{
    struct form f = {0};

    (void)state;
    form_add(&f, "Body", "1+1=2 & 50% off? a#b \"q\" \\ ñ\n");
    assert_string_equal(
        f.text, "Body=1%2B1%3D2%20%26%2050%25%20off%3F%20a%23b%20%22q%22%20%5C%20%C3%B1%0A");
    form_done(&f);
}

static void members_are_joined(void **state)
{
    struct form f = {0};

    (void)state;
    form_raw(&f, "https://api.vendor.example/send?");
    form_add(&f, "a b", "1");
    form_add(&f, "none", NULL);
    form_add_i64(&f, "n", INT64_MIN);
    form_add_n(&f, "cut", "abcdef", 3);
    form_add(&f, "empty", "");
    assert_string_equal(f.text, "https://api.vendor.example/send?a%20b=1&n=-9223372036854775808"
                                "&cut=abc&empty=");
    form_done(&f);
    assert_null(f.text);

    form_printf(&f, "%s/%d?", "x", 7);
    form_add(&f, "k", "v");
    form_raw(&f, "&");
    form_add(&f, "l", "w");
    assert_string_equal(f.text, "x/7?k=v&l=w");
    form_done(&f);
}

static void it_grows(void **state)
{
    struct form f = {0};
    char *text = malloc(100001);

    (void)state;
    assert_non_null(text);
    memset(text, '&', 100000);
    text[100000] = '\0';
    form_add(&f, "t", text);
    assert_int_equal(f.error, 0);
    assert_int_equal(f.len, 300002);
    assert_int_equal(strlen(f.text), 300002);
    assert_string_equal(f.text + 299999, "%26");
    form_done(&f);
    free(text);
}

static void decoding(void **state)
{
    static const struct {
        const char *text;
        int plus;
        const char *wanted; /* NULL: refused */
    } rows[] = {
        {"a+b%20c", 1, "a b c"},
        {"a+b%2Bc", 0, "a+b+c"},
        {"%c3%B1", 1, "ñ"},
        {"", 1, ""},
        {"100%", 1, NULL},
        {"%4", 1, NULL},
        {"%zz", 1, NULL},
        {"%4g", 1, NULL},
        {"a nul %00 inside", 1, NULL},
        {"%25", 1, "%"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *text = strdup(rows[i].text);
        long n;

        assert_non_null(text);
        n = form_decode(text, rows[i].plus);
        if (rows[i].wanted) {
            assert_int_equal(n, strlen(rows[i].wanted));
            assert_string_equal(text, rows[i].wanted);
        } else if (n != -1) {
            fail_msg("\"%s\" was not refused", rows[i].text);
        }
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_is_itself_or_an_escape),
        cmocka_unit_test(a_text_of_every_trap),
        cmocka_unit_test(members_are_joined),
        cmocka_unit_test(it_grows),
        cmocka_unit_test(decoding),
    };

    return cmocka_run_group_tests_name("kit_form", tests, NULL, NULL);
}
