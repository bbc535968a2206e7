/* Outside words in log lines and attempt rows: case D15. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/clean.h"
#include "worker/core/utf8.h"

#include <stdbool.h>
#include <string.h>

#define BAD  "\xef\xbf\xbd"
#define DOTS "\xe2\x80\xa6"

static const struct {
    const char *name, *given;
    size_t size;
    unsigned int flags;
    const char *want;
} rows[] = {
    {"plain words stay", "temporarily unavailable", 100, 0, "temporarily unavailable"},
    {"other scripts stay", "не доставлено 😀", 100, 0, "не доставлено 😀"},
    {"nothing", "", 100, 0, ""},
    {"D15 a forged log line", "x\r\nlevel=info ok\t1", 100, 0, "x\\r\\nlevel=info ok\\t1"},
    {"D15 terminal escape", "\x1b[31mred", 100, 0, "\\u{1b}[31mred"},
    {"delete and C1", "\x7f\xc2\x9b", 100, 0, "\\u{7f}\\u{9b}"},
    {"direction override", "a\u202eb", 100, 0, "a" BAD "b"},
    {"line separator, zero width, tag", "\u2028\u200b\U000e0041", 100, 0, BAD BAD BAD},
    {"a backslash is no control", "C:\\n \"q\"", 100, 0, "C:\\n \"q\""},
    {"bytes in no encoding", "a\xff\xc3(", 100, 0, "a" BAD BAD "("},
    {"a lone surrogate", "\xed\xa0\x80", 100, 0, BAD BAD BAD},
    {"cut short in the source", "ok\xe2\x82", 100, 0, "ok" BAD BAD},
    {"fits exactly", "abcdef", 7, 0, "abcdef"},
    {"one too long", "abcdefg", 7, 0, "abc" DOTS},
    {"cut between characters", "жжжжж", 9, 0, "жж" DOTS},
    {"cut between characters, one byte over", "жжжжж", 10, 0, "жжж" DOTS},
    {"an escape is not cut", "abc\ndef", 8, 0, "abc" DOTS},
    {"no room for dots", "abcd", 3, 0, ""},
    {"room for the NUL alone", "abcd", 1, 0, ""},
    {"digits stay when not asked", "code 482913", 100, 0, "code 482913"},
    {"a code", "code 482913.", 100, CLEAN_MASK_DIGITS, "code ******."},
    {"a code in two halves", "482-913 482 913", 100, CLEAN_MASK_DIGITS, "***-*** *** ***"},
    {"a number", "to +998 90 123-45-67 failed", 100, CLEAN_MASK_DIGITS,
     "to +*** ** ***-**-** failed"},
    {"four digits are a code", "4829", 100, CLEAN_MASK_DIGITS, "****"},
    {"three are a status", "HTTP 503 busy", 100, CLEAN_MASK_DIGITS, "HTTP 503 busy"},
    {"two joints end a run", "503 - 482", 100, CLEAN_MASK_DIGITS, "503 - 482"},
    {"letters end a run", "12ab34", 100, CLEAN_MASK_DIGITS, "12ab34"},
    {"digits of other scripts", "٤٨٢٩١٣ ４８２９", 100, CLEAN_MASK_DIGITS, "****** ****"},
    {"a code with unseen characters in it", "482\u200b913", 100, CLEAN_MASK_DIGITS,
     "***" BAD "***"},
    {"a code at the cut shows no digit", "code 482913", 11, CLEAN_MASK_DIGITS, "code **" DOTS},
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char got[100];
        size_t n =
            clean_text(got, rows[i].size, rows[i].given, strlen(rows[i].given), rows[i].flags);

        if (strcmp(got, rows[i].want) != 0 || n != strlen(rows[i].want))
            fail_msg("%s: \"%s\" (%zu bytes)", rows[i].name, got, n);
    }
}

static void test_size_0_writes_nothing(void **state)
{
    char got[] = "keep";

    (void)state;
    assert_int_equal(clean_text(got, 0, "abc", 3, 0), 0);
    assert_string_equal(got, "keep");
}

static void test_nul_is_shown(void **state)
{
    char got[20];

    (void)state;
    assert_int_equal(clean_text(got, sizeof(got), "a\0b", 3, 0), 7);
    assert_string_equal(got, "a\\u{0}b");
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u; /* Numerical Recipes */
    return *state >> 8;
}

/* True when the text is what clean.h promises: UTF-8 without a control. */
static bool is_clean(const char *s, size_t len)
{
    uint32_t code;

    for (size_t at = 0; at < len;) {
        if (utf8_next(s, len, &at, &code) < 0 || code < 0x20 || (code >= 0x7f && code < 0xa0))
            return false;
    }
    return true;
}

/* Whatever comes in: clean, within bounds, and cleaning again changes nothing. */
static void test_random_bytes(void **state)
{
    static const char *const pieces[] = {"4",       "82",     "913", " ",    "-",        "\n",
                                         "\x1b",    "\xff",   "ж",   "😀",    "\xc2\x85", "\u200b",
                                         "\\u{1b}", "\u202e", "a",   "\xe2", "７",       "\xa0"};
    uint32_t seed = 20240607;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        char given[128], once[96], twice[96];
        size_t len = 0, size = 1 + next_random(&seed) % sizeof(once);
        unsigned int flags = round % 2 ? CLEAN_MASK_DIGITS : 0;

        for (uint32_t n = next_random(&seed) % 16; n > 0; n--) {
            const char *p = pieces[next_random(&seed) % (sizeof(pieces) / sizeof(*pieces))];

            memcpy(given + len, p, strlen(p));
            len += strlen(p);
        }
        size_t n = clean_text(once, size, given, len, flags);

        assert_true(n < size);
        assert_int_equal(once[n], '\0');
        assert_true(is_clean(once, n));
        assert_int_equal(clean_text(twice, size, once, n, flags), n);
        assert_string_equal(once, twice);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_size_0_writes_nothing),
        cmocka_unit_test(test_nul_is_shown),
        cmocka_unit_test(test_random_bytes),
    };

    return cmocka_run_group_tests_name("clean", tests, NULL, NULL);
}
