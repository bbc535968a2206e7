/* The nearest word: distances counted by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/near.h"

#include <string.h>

static const struct {
    const char *name, *word, *known[4], *best;
} rows[] = {
    {"two letters swapped are one change", "in_fligth", {"lease_s", "in_flight"}, "in_flight"},
    {"one too many", "timeouts_ms", {"timeout_ms"}, "timeout_ms"},
    {"one missing", "url", {"ur"}, "ur"},
    {"the nearer wins", "poll_mz", {"roll_mx", "poll_ms"}, "poll_ms"},
    {"the first among equals", "abcde", {"abcdf", "abcdg"}, "abcdf"},
    {"the word itself", "body", {"bodx", "body"}, "body"},
    {"half of it changed is no typing mistake", "abcd", {"abxy"}, NULL},
    {"four changes are too many, however long",
     "abcdefghijklmnopqrst",
     {"abcdefghijklmnopwxyz"},
     NULL},
    {"three in a long word are not",
     "abcdefghijklmnopqrst",
     {"abcdefghijklmnopqxyz"},
     "abcdefghijklmnopqxyz"},
    {"nothing tried", "abc", {0}, NULL},
    {"an empty word", "", {"a"}, NULL},
};

static void nearest_by_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct near near;
        const char *best;

        near_init(&near, rows[i].word);
        for (int k = 0; k < 4 && rows[i].known[k]; k++)
            near_try(&near, rows[i].known[k]);
        best = near_best(&near);
        if (best && rows[i].best ? strcmp(best, rows[i].best) != 0 : best != rows[i].best)
            fail_msg("%s: %s", rows[i].name, best ? best : "none");
    }
}

/* The working rows have 64 places: 63 bytes fit, 64 are near to nothing. */
static void long_words_stay_inside(void **state)
{
    char word[80];
    struct near near;

    (void)state;
    memset(word, 'a', sizeof(word));
    word[63] = '\0';
    near_init(&near, word);
    near_try(&near, word);
    assert_ptr_equal(near_best(&near), word);
    word[63] = 'a';
    word[64] = '\0';
    near_init(&near, word);
    near_try(&near, word);
    near_try(&near, "aaaa");
    assert_null(near_best(&near));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearest_by_table),
        cmocka_unit_test(long_words_stay_inside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
