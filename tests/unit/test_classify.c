/* What one attempt proved, by phase: all inputs there are. Cases C6, C8, C12, D3, D8, U4; R6. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/classify.h"

#include <limits.h>

static const struct {
    const char *name;
    struct evidence e;
    enum outcome want;
} rows[] = {
    {"no byte left: not sent, whatever the error was", {.permits = 0}, OUTCOME_UNREACHED},
    {"wrong certificate: the set-up is unusable", {.untrusted = true}, OUTCOME_HELD},
    {"a proxy's answer to CONNECT is not the vendor's",
     {.permits = 0, .complete = true, .status = 502, .judged = true, .word = OUTCOME_REJECTED},
     OUTCOME_UNREACHED},
    {"C4 sent and silence", {.permits = 1}, OUTCOME_UNKNOWN},
    {"C6 status line, then a cut", {.permits = 1, .status = 200}, OUTCOME_UNKNOWN},
    {"C6 a cut answer is not believed, even when judged",
     {.permits = 1, .status = 200, .judged = true, .word = OUTCOME_ACCEPTED},
     OUTCOME_UNKNOWN},
    {"200 with the vendor's id",
     {.permits = 1, .complete = true, .status = 200, .judged = true, .word = OUTCOME_ACCEPTED},
     OUTCOME_ACCEPTED},
    {"200 with the vendor's error body",
     {.permits = 1, .complete = true, .status = 200, .judged = true, .word = OUTCOME_REJECTED},
     OUTCOME_REJECTED},
    {"a duplicate of what it has, told by 409",
     {.permits = 1, .complete = true, .status = 409, .judged = true, .word = OUTCOME_ACCEPTED},
     OUTCOME_ACCEPTED},
    {"a captive portal: no verdict",
     {.permits = 1, .complete = true, .status = 200},
     OUTCOME_UNKNOWN},
    {"C12 502 without the plugin's word",
     {.permits = 1, .complete = true, .status = 502},
     OUTCOME_UNKNOWN},
    {"103 is no answer",
     {.permits = 1, .complete = true, .status = 103, .judged = true, .word = OUTCOME_ACCEPTED},
     OUTCOME_UNKNOWN},
    {"L10 503 declared not taken",
     {.permits = 1, .complete = true, .status = 503, .judged = true, .word = OUTCOME_REFUSED},
     OUTCOME_REFUSED},
    {"a vendor that answered was reached",
     {.permits = 1, .complete = true, .status = 200, .judged = true, .word = OUTCOME_UNREACHED},
     OUTCOME_UNKNOWN},
    {"R5 two requests left: a no speaks of one",
     {.permits = 2, .complete = true, .status = 400, .judged = true, .word = OUTCOME_REJECTED},
     OUTCOME_UNKNOWN},
    {"R5 two requests left: a yes is a yes",
     {.permits = 2, .complete = true, .status = 200, .judged = true, .word = OUTCOME_ACCEPTED},
     OUTCOME_ACCEPTED},
    {"D7 the process died", {.lost = true}, OUTCOME_UNKNOWN},
    {"D8 the process died; what it may have seen is not known",
     {.lost = true, .permits = 1, .complete = true, .status = 200, .judged = true},
     OUTCOME_UNKNOWN},
    {"a confused count of permits", {.permits = -1}, OUTCOME_UNKNOWN},
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (classify(&rows[i].e) != rows[i].want)
            fail_msg("%s: %s", rows[i].name, outcome_name(classify(&rows[i].e)));
    }
}

/* The rule in the other direction: what each outcome needs as proof. */
static void check(const struct evidence *e)
{
    enum outcome got = classify(e);
    bool answered = e->complete && e->status >= 200 && e->status <= 599 && e->judged;
    bool ok = true;

    if (got == OUTCOME_UNREACHED || (got == OUTCOME_HELD && e->permits == 0))
        ok = e->permits == 0 && e->untrusted == (got == OUTCOME_HELD);
    else if (got == OUTCOME_ACCEPTED)
        ok = e->permits >= 1 && answered && e->word == OUTCOME_ACCEPTED;
    else if (got != OUTCOME_UNKNOWN)
        ok = e->permits == 1 && answered && e->word == got;
    else /* nothing provable is thrown away */
        ok = e->lost || e->permits < 0 ||
             (e->permits > 0 &&
              !(answered && (unsigned)e->word < OUTCOME_UNKNOWN && e->word != OUTCOME_UNREACHED &&
                (e->permits == 1 || e->word == OUTCOME_ACCEPTED)));
    if (!ok || (e->lost && got != OUTCOME_UNKNOWN))
        fail_msg("permits %d complete %d status %d judged %d word %d untrusted %d lost %d: %s",
                 e->permits, e->complete, e->status, e->judged, (int)e->word, e->untrusted, e->lost,
                 outcome_name(got));
}

static void test_everything(void **state)
{
    static const int permits[] = {INT_MIN, -1, 0, 1, 2, 3, INT_MAX};
    static const int words[] = {-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, INT_MAX};

    (void)state;
    for (size_t p = 0; p < sizeof(permits) / sizeof(*permits); p++) {
        for (size_t w = 0; w < sizeof(words) / sizeof(*words); w++) {
            for (int status = 0; status <= 999; status++) {
                for (unsigned bits = 0; bits < 16; bits++)
                    check(&(struct evidence){.permits = permits[p],
                                             .word = (enum outcome)words[w],
                                             .status = status,
                                             .complete = bits & 1,
                                             .judged = bits & 2,
                                             .untrusted = bits & 4,
                                             .lost = bits & 8});
            }
        }
    }
    check(&(struct evidence){.permits = 1, .complete = true, .judged = true, .status = INT_MIN});
    check(&(struct evidence){.permits = 1, .complete = true, .judged = true, .status = INT_MAX});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
