/* Alphabet, units and segments: cases E1 to E14, D11 and the two tables of 3GPP TS 23.038. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/text.h"
#include "worker/core/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BODY_MAX = 4096 };

/* A body written as runs: text repeated so many times, one after the other. */
struct run {
    size_t times;
    const char *text;
};

struct body {
    char text[BODY_MAX];
    size_t len;
};

static struct body spell(const struct run *runs, size_t count)
{
    struct body b = {.len = 0};

    for (size_t i = 0; i < count; i++) {
        for (size_t n = 0; n < runs[i].times; n++) {
            size_t len = strlen(runs[i].text);

            assert_true(b.len + len <= BODY_MAX);
            memcpy(b.text + b.len, runs[i].text, len);
            b.len += len;
        }
    }
    return b;
}

#define FRENCH "Voici votre code de vérification : 482913. Il expire dans 5 minutes. N"
#define UZBEK  "Tasdiqlash kodi: 482913. Uni hech kimga bermang, bu faqat siz uchun mo"

static const struct {
    const char *name;
    struct run runs[4];
    enum text_alphabet alphabet;
    size_t units, segments;
    uint32_t culprit;
    size_t culprit_at;
} rows[] = {
    {"empty", {{0}}, TEXT_GSM7, 0, 0, 0, 0},
    {"E1 an escape pair is not cut", {{153, "]"}}, TEXT_GSM7, 306, 3, 0, 0},
    {"E1 eighty escapes fill one message", {{80, "]"}}, TEXT_GSM7, 160, 1, 0, 0},
    {"E1 eighty-one do not", {{81, "]"}}, TEXT_GSM7, 162, 2, 0, 0},
    {"E2 a brace is one unit in UCS-2", {{68, "{"}, {1, "😀"}}, TEXT_UCS2, 70, 1, 0x1f600, 68},
    {"E2 the euro takes two septets", {{159, "a"}, {1, "€"}}, TEXT_GSM7, 161, 2, 0, 0},
    {"E3 a surrogate pair is not cut",
     {{66, "ж"}, {1, "😀"}, {20, "ж"}},
     TEXT_UCS2,
     88,
     2,
     0x436,
     0},
    {"E3 pairs alone", {{36, "😀"}}, TEXT_UCS2, 72, 2, 0x1f600, 0},
    {"E3 pairs fill only 66 of 67", {{67, "😀"}}, TEXT_UCS2, 134, 3, 0x1f600, 0},
    {"E4 seventy fit", {{70, "ж"}}, TEXT_UCS2, 70, 1, 0x436, 0},
    {"E4 seventy-one are two parts", {{71, "ж"}}, TEXT_UCS2, 71, 2, 0x436, 0},
    {"E4 134 are two parts", {{134, "ж"}}, TEXT_UCS2, 134, 2, 0x436, 0},
    {"E4 135 are three", {{135, "ж"}}, TEXT_UCS2, 135, 3, 0x436, 0},
    {"E6 curly apostrophe",
     {{1, FRENCH}, {1, "’"}, {1, "y répondez pas."}},
     TEXT_UCS2,
     86,
     2,
     0x2019,
     70},
    {"E6 straight apostrophe", {{1, FRENCH "'y répondez pas."}}, TEXT_GSM7, 86, 1, 0, 0},
    {"E8 Uzbek with '", {{1, UZBEK "'ljallangan."}}, TEXT_GSM7, 82, 1, 0, 0},
    {"E8 Uzbek with U+02BB", {{1, UZBEK "ʻljallangan."}}, TEXT_UCS2, 82, 2, 0x2bb, 70},
    {"E8 Uzbek with U+2018", {{1, UZBEK "‘ljallangan."}}, TEXT_UCS2, 82, 2, 0x2018, 70},
    {"E8 Uzbek with a backtick", {{1, UZBEK "`ljallangan."}}, TEXT_UCS2, 82, 2, 0x60, 70},
    {"E11 what a form would encode", {{1, "a b&c+d"}}, TEXT_GSM7, 7, 1, 0, 0},
    {"E14 no-break space", {{1, "a\u00a0b"}}, TEXT_UCS2, 3, 1, 0xa0, 1},
    {"E14 em dash", {{1, "a—b"}}, TEXT_UCS2, 3, 1, 0x2014, 1},
    {"E14 bullet", {{1, "•"}}, TEXT_UCS2, 1, 1, 0x2022, 0},
    {"E14 small c cedilla", {{1, "ç"}}, TEXT_UCS2, 1, 1, 0xe7, 0},
    {"E14 small delta", {{1, "δ"}}, TEXT_UCS2, 1, 1, 0x3b4, 0},
    {"E14 n tilde stays", {{1, "ñ"}}, TEXT_GSM7, 1, 1, 0, 0},
    {"E14 capital C cedilla stays", {{1, "Ç"}}, TEXT_GSM7, 1, 1, 0, 0},
    {"E14 capital delta stays", {{1, "Δ"}}, TEXT_GSM7, 1, 1, 0, 0},
    {"160 fit", {{160, "a"}}, TEXT_GSM7, 160, 1, 0, 0},
    {"161 are two parts", {{161, "a"}}, TEXT_GSM7, 161, 2, 0, 0},
    {"306 are two parts", {{306, "a"}}, TEXT_GSM7, 306, 2, 0, 0},
    {"307 are three", {{307, "a"}}, TEXT_GSM7, 307, 3, 0, 0},
    {"an escape at the border moves on",
     {{152, "a"}, {1, "["}, {152, "a"}},
     TEXT_GSM7,
     306,
     3,
     0,
     0},
    {"an escape before the border does not",
     {{151, "a"}, {1, "["}, {153, "a"}},
     TEXT_GSM7,
     306,
     2,
     0,
     0},
    {"D11 line ends", {{1, "a\r\nb"}}, TEXT_GSM7, 4, 1, 0, 0},
    {"D11 a tab is not in GSM-7", {{1, "a\tb"}}, TEXT_UCS2, 3, 1, 0x9, 1},
    {"D11 right to left", {{1, "שלום"}}, TEXT_UCS2, 4, 1, 0x5e9, 0},
    {"D11 a combining accent counts apart", {{1, "e\u0301"}}, TEXT_UCS2, 2, 1, 0x301, 1},
    {"the last code point below a pair", {{1, "\xef\xbf\xbf"}}, TEXT_UCS2, 1, 1, 0xffff, 0},
    {"the first code point of a pair", {{1, "\xf0\x90\x80\x80"}}, TEXT_UCS2, 2, 1, 0x10000, 0},
    {"the highest code point", {{1, "\xf4\x8f\xbf\xbf"}}, TEXT_UCS2, 2, 1, 0x10ffff, 0},
};

static void test_measure(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct body b = spell(rows[i].runs, 4);
        struct text_measure m = {.units = SIZE_MAX};

        if (text_measure(b.text, b.len, &m) != 0 || m.alphabet != rows[i].alphabet ||
            m.units != rows[i].units || m.segments != rows[i].segments ||
            m.culprit.code != rows[i].culprit || m.culprit.at != rows[i].culprit_at)
            fail_msg("%s: %s, %zu units, %zu segments, culprit U+%04X at %zu", rows[i].name,
                     text_alphabet_name(m.alphabet), m.units, m.segments,
                     (unsigned int)m.culprit.code, m.culprit.at);
    }
}

static void test_characters(void **state)
{
    const char *french = FRENCH "’y répondez pas.";
    const char *uzbek = UZBEK "'ljallangan.";
    struct text_measure m;

    (void)state;
    assert_int_equal(text_measure(french, strlen(french), &m), 0);
    assert_int_equal(m.characters, 86);
    assert_int_equal(text_measure(uzbek, strlen(uzbek), &m), 0);
    assert_int_equal(m.characters, 82);
    assert_int_equal(text_measure("😀ж", 6, &m), 0);
    assert_int_equal(m.characters, 2);
}

/* The tables as the standard prints them, by septet from 0x00; ESC (0x1B) left out. */
static const char default_alphabet[] =
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà";
static const char extension[] = "\f^{}\\[~]|€";

static void test_alphabet_is_the_standards(void **state)
{
    static unsigned char want[0x110000];
    const struct {
        const char *text;
        size_t count;
        unsigned char septets;
    } tables[] = {{default_alphabet, 127, 1}, {extension, 10, 2}};

    (void)state;
    for (size_t t = 0; t < 2; t++) {
        size_t len = strlen(tables[t].text), count = 0;
        uint32_t code = 0;

        for (size_t at = 0; at < len; count++) {
            assert_int_equal(utf8_next(tables[t].text, len, &at, &code), 0);
            want[code] = tables[t].septets;
        }
        assert_int_equal(count, tables[t].count);
    }
    for (uint32_t code = 0; code < 0x110000; code++) {
        if (text_septets(code) != want[code])
            fail_msg("U+%04X takes %u septets, want %u", (unsigned int)code, text_septets(code),
                     want[code]);
    }
}

static void test_broken_text_is_refused(void **state)
{
    static const struct {
        const char *name, *bytes;
        size_t len;
    } broken[] = {
        {"E13 a lead byte without its rest", "\xc3\x28", 2},
        {"D11 NUL", "a\0b", 3},
        {"D11 lone high surrogate", "\xed\xa0\x80", 3},
        {"D11 lone low surrogate", "\xed\xbf\xbf", 3},
        {"cut short", "ok\xe2\x82", 4},
        {"a tail byte alone", "\x80", 1},
        {"overlong slash", "\xc0\xaf", 2},
        {"overlong in three bytes", "\xe0\x9f\xbf", 3},
        {"overlong in four bytes", "\xf0\x8f\xbf\xbf", 4},
        {"above U+10FFFF", "\xf4\x90\x80\x80", 4},
        {"a byte that never occurs", "\xff", 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(broken) / sizeof(*broken); i++) {
        struct text_measure m = {.units = 77};
        /* no byte behind the text, so that a sanitizer sees a read too far */
        char *copy = malloc(broken[i].len);

        assert_non_null(copy);
        memcpy(copy, broken[i].bytes, broken[i].len);
        int r = text_measure(copy, broken[i].len, &m);

        free(copy);
        if (r != -EILSEQ || m.units != 77)
            fail_msg("%s: returned %d", broken[i].name, r);
    }
}

static void test_culprits_in_order(void **state)
{
    const char *text = "o’zbek ж 😀!";
    const struct text_culprit want[] = {{0x2019, 1}, {0x436, 7}, {0x1f600, 9}};
    struct text_culprits it = TEXT_CULPRITS_OF(text, strlen(text));
    struct text_culprit c;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_true(text_culprits_next(&it, &c));
        assert_int_equal(c.code, want[i].code);
        assert_int_equal(c.at, want[i].at);
    }
    assert_false(text_culprits_next(&it, &c));
    assert_false(text_culprits_next(&it, &c));
}

static void assert_parts(const struct run *runs, size_t count, const size_t *want_units,
                         size_t want)
{
    struct body b = spell(runs, count);
    struct text_part part = {0};
    struct text_measure m;
    size_t n = 0, end = 0;

    assert_int_equal(text_measure(b.text, b.len, &m), 0);
    while (text_part_next(b.text, b.len, &m, &part)) {
        assert_true(n < want);
        assert_int_equal(part.offset, end);
        assert_int_equal(part.units, want_units[n++]);
        end = part.offset + part.bytes;
    }
    assert_int_equal(end, b.len);
    assert_int_equal(n, want);
    assert_int_equal(m.segments, want);
}

static void test_parts(void **state)
{
    (void)state;
    /* E3: the first part ends before the emoji */
    assert_parts((struct run[]){{66, "ж"}, {1, "😀"}, {20, "ж"}}, 3, (size_t[]){66, 22}, 2);
    /* E4 */
    assert_parts((struct run[]){{71, "ж"}}, 1, (size_t[]){67, 4}, 2);
    /* E1 */
    assert_parts((struct run[]){{153, "]"}}, 1, (size_t[]){152, 152, 2}, 3);
    assert_parts((struct run[]){{160, "a"}}, 1, (size_t[]){160}, 1);
    assert_parts((struct run[]){{0, ""}}, 1, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measure),
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_alphabet_is_the_standards),
        cmocka_unit_test(test_broken_text_is_refused),
        cmocka_unit_test(test_culprits_in_order),
        cmocka_unit_test(test_parts),
    };

    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
