/* What `postrider check` says follows a doubt, for each policy and each sort of vendor. The
 * expected words are those of the promise (README, "What is promised"), written out by hand; the
 * figures are those a person works out: quiet time = call + visibility. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "worker/cli/doubt.h"

enum { CALL = 2000, DELAY = 60000, HOUR = 3600000, DAY = 24 * HOUR, OTP = 300000 };

static const struct capability nothing = {.call_ms = CALL};
static const struct capability dedup_day = {.dedup = true, .dedup_window_ms = DAY, .call_ms = CALL};
static const struct capability dedup_hour = {
    .dedup = true, .dedup_window_ms = HOUR, .call_ms = CALL};
static const struct capability proves = {
    .call_ms = CALL, .asking = ASKING_BY_KEY, .absence_proves = true, .ask_delay_ms = DELAY};
static const struct capability no_proof = {
    .call_ms = CALL, .asking = ASKING_BY_KEY, .ask_delay_ms = DELAY};
static const struct capability by_id = {.call_ms = CALL, .asking = ASKING_BY_ID};
static const struct capability hour_and_asks = {.dedup = true,
                                                .dedup_window_ms = HOUR,
                                                .call_ms = CALL,
                                                .asking = ASKING_BY_KEY,
                                                .absence_proves = true,
                                                .ask_delay_ms = DELAY};

static const struct {
    const char *name;
    enum on_unknown on_unknown;
    bool cross;
    const struct capability *cap;
    int64_t life_ms;
    const char *words;
    enum doubt_step first;
    bool duplicate;
} rows[] = {
    {"hold, nothing proved", ON_UNKNOWN_HOLD, false, &nothing, DAY,
     "not sent again, but shown as unknown until a receipt, the vendor's log or an operator "
     "settles "
     "it",
     DOUBT_HOLD, false},
    {"resend, nothing proved", ON_UNKNOWN_RESEND, false, &nothing, OTP,
     "sent again while it lives (5 min), in at most 4 attempts: the phone may get it up to 4 "
     "times, "
     "and each possible duplicate is counted",
     DOUBT_RESEND, true},
    {"ask, nothing proved", ON_UNKNOWN_ASK, false, &nothing, DAY,
     "impossible: this vendor can neither be asked nor de-duplicates", DOUBT_HOLD, false},
    {"ask, by id only", ON_UNKNOWN_ASK, false, &by_id, DAY,
     "impossible: this vendor can neither be asked nor de-duplicates", DOUBT_HOLD, false},
    {"hold, by id only", ON_UNKNOWN_HOLD, false, &by_id, DAY,
     "not sent again, but shown as unknown until a receipt, the vendor's log or an operator "
     "settles "
     "it; asked about where the vendor's id is known",
     DOUBT_HOLD, false},
    {"hold, key for the whole life", ON_UNKNOWN_HOLD, false, &dedup_day, DAY,
     "sent again under the same key for 1 d, which covers its life (1 d by default): not doubled",
     DOUBT_RESEND_KEY, false},
    {"resend, key for the whole life", ON_UNKNOWN_RESEND, false, &dedup_day, OTP,
     "sent again under the same key for 1 d, which covers its life (5 min by default): not doubled",
     DOUBT_RESEND_KEY, false},
    {"hold, short window", ON_UNKNOWN_HOLD, false, &dedup_hour, DAY,
     "sent again under the same key for 1 h, then shown as unknown and not sent again",
     DOUBT_RESEND_KEY, false},
    {"resend, short window", ON_UNKNOWN_RESEND, false, &dedup_hour, DAY,
     "sent again under the same key for 1 h, then again though the vendor has forgotten the key: a "
     "duplicate is possible, and counted",
     DOUBT_RESEND_KEY, true},
    {"another vendor wins over every memory", ON_UNKNOWN_RESEND, true, &dedup_day, OTP,
     "sent again while it lives (5 min), in at most 4 attempts: the phone may get it up to 4 "
     "times, "
     "and each possible duplicate is counted; another vendor may be tried (cross_vendor_resend)",
     DOUBT_RESEND, true},
    {"hold does not roam", ON_UNKNOWN_HOLD, true, &nothing, DAY,
     "not sent again, but shown as unknown until a receipt, the vendor's log or an operator "
     "settles "
     "it",
     DOUBT_HOLD, false},
    {"hold, absence proves", ON_UNKNOWN_HOLD, false, &proves, DAY,
     "asked about after 1 min 2 s, and never sent again without proof: two look-ups, 1 min apart, "
     "that have not seen it; unknown where the vendor cannot say",
     DOUBT_ASK, false},
    {"ask, absence proves", ON_UNKNOWN_ASK, false, &proves, DAY,
     "asked about after 1 min 2 s, and never sent again without proof: two look-ups, 1 min apart, "
     "that have not seen it; unknown where the vendor cannot say",
     DOUBT_ASK, false},
    {"hold, absence proves nothing", ON_UNKNOWN_HOLD, false, &no_proof, DAY,
     "asked about after 1 min 2 s, and never sent again, as \"not found\" is no proof at this "
     "vendor; unknown where the vendor cannot say",
     DOUBT_ASK, false},
    {"ask, absence proves nothing", ON_UNKNOWN_ASK, false, &no_proof, DAY,
     "asked about after 1 min 2 s, and sent again when two look-ups have not seen it, which is no "
     "proof at this vendor: a duplicate is possible, and counted; unknown where the vendor cannot "
     "say",
     DOUBT_ASK, true},
    {"resend, absence proves", ON_UNKNOWN_RESEND, false, &proves, DAY,
     "asked about after 1 min 2 s, and sent again as soon as a look-up proves that it was not "
     "taken; sent again, too, when two look-ups bring no answer, or when less than 10 min 20 s of "
     "its life is left: a duplicate is possible, and counted",
     DOUBT_ASK, true},
    /* A code of five minutes does not wait for a look-up of one. */
    {"resend, too short a life to ask", ON_UNKNOWN_RESEND, false, &proves, OTP,
     "sent again while it lives (5 min), in at most 4 attempts: the phone may get it up to 4 "
     "times, "
     "and each possible duplicate is counted; still in doubt after 4 attempts, asked about after "
     "1 min 2 s",
     DOUBT_RESEND, true},
    {"hold, key, then look-up", ON_UNKNOWN_HOLD, false, &hour_and_asks, DAY,
     "sent again under the same key for 1 h, then asked about after 1 min 2 s, and never sent "
     "again "
     "without proof: two look-ups, 1 min apart, that have not seen it; unknown where the vendor "
     "cannot say",
     DOUBT_RESEND_KEY, false},
    {"resend inside the window, attempts used up", ON_UNKNOWN_RESEND, false, &hour_and_asks, OTP,
     "sent again under the same key for 1 h, which covers its life (5 min by default): not "
     "doubled; "
     "still in doubt after 4 attempts, asked about after 1 min 2 s",
     DOUBT_RESEND_KEY, false},
};

static void words_follow_the_rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct policy p = {.on_unknown = rows[i].on_unknown,
                           .max_attempts = 4,
                           .max_calls = 100,
                           .backoff_base_ms = 1000,
                           .backoff_cap_ms = 30000,
                           .cross_vendor_resend = rows[i].cross};
        struct doubt d = doubt_foretell(&p, rows[i].cap, rows[i].life_ms);
        char *words = doubt_words(&d, &p, rows[i].life_ms);

        if (!words || strcmp(words, rows[i].words) != 0 || d.first != rows[i].first ||
            d.duplicate != rows[i].duplicate)
            fail_msg("%s: %s, duplicate %d:\n%s", rows[i].name, doubt_step_name(d.first),
                     d.duplicate, words);
        free(words);
    }
}

/* Whatever the vendor, `hold` never leads to a possible duplicate: not by a cap, not by a life. */
static void hold_never_doubles(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 64; bits++) {
        struct capability cap = {.dedup = bits & 1,
                                 .dedup_window_ms = bits & 2 ? DAY : 60000,
                                 .call_ms = CALL,
                                 .asking = (bits >> 2) % 3,
                                 .absence_proves = bits & 16,
                                 .ask_delay_ms = bits & 32 ? DELAY : 0};
        struct policy p = {.on_unknown = ON_UNKNOWN_HOLD,
                           .max_attempts = 4,
                           .max_calls = 100,
                           .backoff_base_ms = 1000,
                           .backoff_cap_ms = 30000,
                           .cross_vendor_resend = true};

        for (int64_t life = 10; life <= DAY; life *= 7)
            assert_false(doubt_foretell(&p, &cap, life).duplicate);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_follow_the_rules),
        cmocka_unit_test(hold_never_doubles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
