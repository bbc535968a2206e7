/* One spelling for one number: cases N1, D12. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/phone.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define NBSP "\u00a0"

static const struct {
    const char *name, *given, *want;
} good[] = {
    {"N1 with spaces", "+998 00 000 00 01", "+998000000001"},
    {"N1 with hyphens", "998-00-000-00-01", "+998000000001"},
    {"N1 with brackets", "(998) 000000001", "+998000000001"},
    {"N1 bare, blank and no-break space", "998000000001 " NBSP, "+998000000001"},
    {"already right", "+447700900001", "+447700900001"},
    {"00 is a plus", "00447700900001", "+447700900001"},
    {"00 with separators in it", "0-0 44 7700 900001", "+447700900001"},
    {"all separators", "+44 (77)-00.900/001", "+447700900001"},
    {"line end of a file", "+447700900001\r\n", "+447700900001"},
    {"narrow no-break and ideographic space", "+44\u202f7700\u3000900001", "+447700900001"},
    {"direction marks of an address book", "\u202a+447700900001\u202c", "+447700900001"},
    {"byte order mark", "\ufeff+447700900001", "+447700900001"},
    {"no-break hyphen, en dash, minus", "+44\u20117700\u2013900\u2212001", "+447700900001"},
    {"shortest with a plus", "+2901234", "+2901234"},
    {"shortest with 00", "002901234", "+2901234"},
    {"shortest bare", "29012345", "+29012345"},
    {"longest", "+123456789012345", "+123456789012345"},
    {"longest bare", "123456789012345", "+123456789012345"},
    {"longest with 00", "00123456789012345", "+123456789012345"},
};

static const struct {
    const char *name, *given;
    enum phone_fault fault;
} bad[] = {
    {"nothing", "", PHONE_EMPTY},
    {"blanks", "  " NBSP, PHONE_EMPTY},
    {"a plus alone", "+", PHONE_EMPTY},
    {"D12 letters", "+44 7700 CALLME", PHONE_CHARACTER},
    {"D12 64 digits", "1234567890123456789012345678901234567890123456789012345678901234",
     PHONE_LONG},
    {"D12 full-width digits", "+９９８９０１２３４５６７", PHONE_FOREIGN},
    {"D12 full-width plus", "＋998901234567", PHONE_FOREIGN},
    {"D12 one full-width digit at the end", "+99890123456７", PHONE_FOREIGN},
    {"Arabic digits", "+٩٩٨٩٠١٢٣٤٥٦٧", PHONE_FOREIGN},
    {"two plus signs", "++998901234567", PHONE_PLUS},
    {"two plus signs apart", "+998+901234567", PHONE_PLUS},
    {"a plus at the end", "998901234567+", PHONE_PLUS},
    {"a plus behind 00", "00+998901234567", PHONE_PLUS},
    {"national form", "0901234567", PHONE_ZERO},
    {"plus and zero", "+0901234567", PHONE_ZERO},
    {"plus and 00", "+00998901234567", PHONE_ZERO},
    {"three zeros", "000998901234567", PHONE_ZERO},
    {"seven bare digits", "9012345", PHONE_SHORT},
    {"six digits with a plus", "+123456", PHONE_SHORT},
    {"six digits with 00", "00123456", PHONE_SHORT},
    {"only 00", "00", PHONE_SHORT},
    {"sixteen digits", "+1234567890123456", PHONE_LONG},
    {"sixteen bare digits", "1234567890123456", PHONE_LONG},
    {"sixteen digits with 00", "001234567890123456", PHONE_LONG},
    {"an extension", "+447700900001x12", PHONE_CHARACTER},
    {"two numbers", "+447700900001,+447700900002", PHONE_CHARACTER},
    {"a tel: link", "tel:+447700900001", PHONE_CHARACTER},
    {"header injection", "+447700900001\r\nX-Evil: 1", PHONE_CHARACTER},
    {"broken UTF-8", "+44770\xc3\x28", PHONE_NOT_UTF8},
};

static void test_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        struct phone p = {{0}};
        enum phone_fault f = phone_normalize(good[i].given, strlen(good[i].given), &p);

        if (f != PHONE_OK || strcmp(p.e164, good[i].want) != 0)
            fail_msg("%s: \"%s\", %s", good[i].name, p.e164, phone_fault_text(f));
    }
}

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct phone p = {"untouched"};
        enum phone_fault f = phone_normalize(bad[i].given, strlen(bad[i].given), &p);

        if (f != bad[i].fault || strcmp(p.e164, "untouched") != 0)
            fail_msg("%s: fault %d (%s)", bad[i].name, (int)f, phone_fault_text(f));
    }
}

static void test_nul_ends_nothing(void **state)
{
    struct phone p;

    (void)state;
    /* a reader that stops at NUL would accept the first number */
    assert_int_equal(phone_normalize("+447700900001\0"
                                     "5",
                                     15, &p),
                     PHONE_CHARACTER);
}

static void test_normalizing_again_changes_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        struct phone once, twice;

        assert_int_equal(phone_normalize(good[i].given, strlen(good[i].given), &once), PHONE_OK);
        assert_int_equal(phone_normalize(once.e164, strlen(once.e164), &twice), PHONE_OK);
        assert_string_equal(once.e164, twice.e164);
    }
}

/* Every ASCII character put into a number: either it is taken off, or the number is refused. */
static void test_each_ascii_character(void **state)
{
    (void)state;
    for (int c = 1; c < 128; c++) {
        char given[] = "+44770?0900001";
        struct phone p;
        bool separator = strchr("\t\n\v\f\r ()-./", c) != NULL;
        bool digit = c >= '0' && c <= '9';

        *strchr(given, '?') = (char)c;
        enum phone_fault f = phone_normalize(given, strlen(given), &p);

        if (separator || digit) {
            assert_int_equal(f, PHONE_OK);
            assert_int_equal(strlen(p.e164), digit ? 14 : 13);
        } else {
            assert_int_equal(f, c == '+' ? PHONE_PLUS : PHONE_CHARACTER);
        }
    }
}

static void test_each_fault_has_its_words(void **state)
{
    (void)state;
    for (int a = 0; a < PHONE_FAULT_MAX_; a++) {
        assert_non_null(phone_fault_text((enum phone_fault)a));
        for (int b = 0; b < a; b++)
            assert_string_not_equal(phone_fault_text((enum phone_fault)a),
                                    phone_fault_text((enum phone_fault)b));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_nul_ends_nothing),
        cmocka_unit_test(test_normalizing_again_changes_nothing),
        cmocka_unit_test(test_each_ascii_character),
        cmocka_unit_test(test_each_fault_has_its_words),
    };

    return cmocka_run_group_tests_name("phone", tests, NULL, NULL);
}
