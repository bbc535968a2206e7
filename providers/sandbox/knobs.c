#include "providers/sandbox/knobs.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "providers/sandbox/latency.h"
#include "providers/sandbox/mix.h"

#define LONG_TIME 1e9 /* seconds */

static const struct sb_word drop_words[] = {
    {"hang", SB_MODE_HANG}, {"reset", SB_MODE_RESET}, {"close", SB_MODE_CLOSE}, {NULL, 0}};
static const struct sb_word outage_words[] = {{"hang", SB_MODE_HANG},
                                              {"503", SB_MODE_STATUS},
                                              {"reset", SB_MODE_RESET},
                                              {"close", SB_MODE_CLOSE},
                                              {"refuse-connection", SB_MODE_REFUSE},
                                              {"lose", SB_MODE_HANG},
                                              {NULL, 0}};
static const struct sb_word dedup_words[] = {{"off", 0}, {"on", 1}, {NULL, 0}};
static const struct sb_word identity_words[] = {
    {"key", SB_IDENTITY_KEY}, {"text", SB_IDENTITY_TEXT}, {NULL, 0}};
static const struct sb_word order_words[] = {{"sent", 0}, {"shuffled", 1}, {NULL, 0}};

#define AT(field) offsetof(struct sb_knobs, field)
#define INT(name, field, min, max, help)                                                           \
    {                                                                                              \
        name, SB_KNOB_INT, AT(field), min, max, NULL, help                                         \
    }
#define REAL(name, field, min, max, help)                                                          \
    {                                                                                              \
        name, SB_KNOB_REAL, AT(field), min, max, NULL, help                                        \
    }
#define WORD(name, field, words, help)                                                             \
    {                                                                                              \
        name, SB_KNOB_WORD, AT(field), 0, 0, words, help                                           \
    }

static const struct sb_knob table[] = {
    INT("seed", seed, 0, 9e15, "N  seed of every random choice (1)"),
    REAL("latency_p50", latency_p50, 0, SB_LATENCY_MAX_MS, "MS  median time to answer (0)"),
    REAL("latency_p99", latency_p99, 0, SB_LATENCY_MAX_MS,
         "MS  99th percentile, log-normal; 0 = all take the median (0)"),
    REAL("drop_before", drop_before, 0, 1, "P  share not taken and never answered (0)"),
    REAL("drop_answer", drop_answer, 0, 1, "P  share taken, answer lost (0)"),
    WORD("drop_mode", drop_mode, drop_words, "hang|reset|close  how an answer is lost (hang)"),
    REAL("error_taken", error_taken, 0, 1, "P  share taken but answered as an error (0)"),
    REAL("error_not_taken", error_not_taken, 0, 1, "P  share not taken, answered as an error (0)"),
    INT("error_status", error_status, 400, 599, "N  status of those errors (503)"),
    INT("rate", rate, 0, 1e9, "N  requests a second above which 429 answers; 0 = none (0)"),
    INT("outage_from", outage_from, 0, 9e15, "N  outage from this request number"),
    INT("outage_count", outage_count, 0, 9e15, "N  and for so many requests (0)"),
    REAL("outage_at", outage_at, 0, LONG_TIME, "S  outage from this second after start"),
    REAL("outage_for", outage_for, 0, LONG_TIME, "S  and for so long (0)"),
    WORD("outage_mode", outage_mode, outage_words,
         "hang|lose|503|reset|close|refuse-connection  (hang)"),
    REAL("slow_from_s", slow_from, 0, LONG_TIME, "S  slow phase from this second after start"),
    REAL("slow_for_s", slow_for, 0, LONG_TIME, "S  and for so long (0)"),
    REAL("slow_factor", slow_factor, 0, 1e6, "F  latency times this in the slow phase (10)"),
    WORD("dedup", dedup, dedup_words, "on|off  a known key is not delivered again (on)"),
    REAL("dedup_window", dedup_window, 0, LONG_TIME, "S  how long a key is known (86400)"),
    REAL("reset_reused", reset_reused, 0, 1,
         "P  share of requests on a used connection that is read, then reset, not taken (0)"),
    REAL("reset_reused_taken", reset_reused_taken, 0, 1, "P  the same, but taken (0)"),
    REAL("hang_s", hang_s, 0, 86400, "S  a silent connection is closed after this (30)"),
    {"reject_last", SB_KNOB_DIGITS, AT(reject_last), 0, 0, NULL,
     "NNNN  numbers that end so are answered 400, not taken"},
    INT("status_all", status_all, 0, 599, "N  answer this to everything, take nothing; 0 = off"),
    WORD("identity", identity, identity_words,
         "key|text  what names a message in the ledger under a dialect: the vendor's key or\n"
         "        reference where it has one, or always NUMBER:HASH (key)"),
    INT("token_s", token_s, 0, LONG_TIME, "S  life of a login's token; 0 = the vendor's (0)"),
    INT("lookup_delay_ms", lookup_delay_ms, 0, LONG_TIME,
        "MS  so long a message does not show in look-ups (0)"),
    REAL("lookup_error", lookup_error, 0, 1, "P  share of look-ups answered 503 (0)"),
    WORD("receipts", receipts, dedup_words, "on|off  (on)"),
    INT("receipt_delay_ms", receipt_delay_ms, 0, LONG_TIME,
        "MS  from taking a message to its receipt (50)"),
    INT("receipt_late_ms", receipt_late_ms, 0, LONG_TIME, "MS  the same for 9906 (3000)"),
    INT("receipt_copies", receipt_copies, 1, 100, "N  how often each receipt is sent (1)"),
    WORD("receipt_order", receipt_shuffle, order_words,
         "sent|shuffled  shuffled: each after a random time up to twice the delay (sent)"),
    WORD("receipt_sent", receipt_sent, dedup_words,
         "on|off  a receipt \"sent to the network\" before the final one (off)"),
    WORD("receipt_first", receipt_first, dedup_words,
         "on|off  a message's answer waits until its receipts were answered (off)"),
    INT("receipt_tries", receipt_tries, 1, 1000,
        "N  calls until a receipt is answered well, where the vendor's habit is unknown (5)"),
    INT("receipt_retry_ms", receipt_retry_ms, 0, LONG_TIME,
        "MS  before the second call; each further one waits as much longer (200)"),
};

void sb_knobs_init(struct sb_knobs *k)
{
    *k = (struct sb_knobs){.seed = 1,
                           .error_status = 503,
                           .slow_factor = 10,
                           .dedup = 1,
                           .dedup_window = 86400,
                           .hang_s = 30,
                           .receipts = 1,
                           .receipt_delay_ms = 50,
                           .receipt_late_ms = 3000,
                           .receipt_copies = 1,
                           .receipt_tries = 5,
                           .receipt_retry_ms = 200};
}

const struct sb_knob *sb_knobs_table(size_t *ret_count)
{
    *ret_count = sizeof(table) / sizeof(table[0]);
    return table;
}

static bool same_name(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (*a != *b && !(*a == '_' && *b == '-'))
            return false;
    return *a == *b;
}

const struct sb_knob *sb_knobs_find(const char *name)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (same_name(table[i].name, name))
            return &table[i];
    return NULL;
}

static int set_number(void *field, const struct sb_knob *knob, const char *value, struct err *err)
{
    char *end = NULL;
    errno = 0;
    double x = strtod(value, &end);

    if (errno != 0 || end == value || *end != '\0' || !isfinite(x))
        return err_set(err, -EINVAL, "%s: \"%s\" is not a number", knob->name, value);
    if (x < knob->min || x > knob->max)
        return err_set(err, -EINVAL, "%s is %s, must be %g to %g", knob->name, value, knob->min,
                       knob->max);
    if (knob->kind == SB_KNOB_REAL) {
        *(double *)field = x;
        return 0;
    }
    if (x != floor(x))
        return err_set(err, -EINVAL, "%s is %s, must be a whole number", knob->name, value);
    *(uint64_t *)field = (uint64_t)x;
    return 0;
}

static int set_word(int *field, const struct sb_knob *knob, const char *value, struct err *err)
{
    for (const struct sb_word *w = knob->words; w->text; w++) {
        if (strcmp(w->text, value) == 0) {
            *field = w->value;
            return 0;
        }
    }
    return err_set(err, -EINVAL, "%s: unknown value \"%s\"", knob->name, value);
}

static int set_digits(char *field, const struct sb_knob *knob, const char *value, struct err *err)
{
    size_t len = strlen(value);

    if (len >= SB_DIGITS_MAX || strspn(value, "0123456789") != len)
        return err_set(err, -EINVAL, "%s: \"%s\" is not up to %d digits", knob->name, value,
                       SB_DIGITS_MAX - 1);
    memcpy(field, value, len + 1);
    return 0;
}

int sb_knob_set(struct sb_knobs *k, const struct sb_knob *knob, const char *value, struct err *err)
{
    void *field = (char *)k + knob->offset;

    switch (knob->kind) {
    case SB_KNOB_WORD:
        return set_word(field, knob, value, err);
    case SB_KNOB_DIGITS:
        return set_digits(field, knob, value, err);
    case SB_KNOB_INT:
    case SB_KNOB_REAL:
        break;
    }
    return set_number(field, knob, value, err);
}

const char *sb_knob_word(const struct sb_knobs *k, const struct sb_knob *knob)
{
    const int *field = (const int *)(const void *)((const char *)k + knob->offset);

    for (const struct sb_word *w = knob->words; w->text; w++)
        if (w->value == *field)
            return w->text;
    return "?";
}

int sb_knobs_check(const struct sb_knobs *k, struct err *err)
{
    if (k->latency_p99 > 0 && k->latency_p99 < k->latency_p50)
        return err_set(err, -EINVAL, "latency_p99 is %g, must be 0 or at least latency_p50 (%g)",
                       k->latency_p99, k->latency_p50);
    if (k->latency_p99 > 0 && k->latency_p50 <= 0)
        return err_set(err, -EINVAL, "latency_p99 needs a latency_p50 above 0");
    if (k->outage_count > 0 && k->outage_from == 0)
        return err_set(err, -EINVAL, "outage_count needs outage_from, counted from 1");
    if (k->status_all > 0 && k->status_all < 200)
        return err_set(err, -EINVAL, "status_all is %d, must be 0 or 200 to 599",
                       (int)k->status_all);
    return 0;
}

const char *sb_reason_name(enum sb_reason reason)
{
    static const char *const names[] = {
        [SB_ACCEPTED] = "accepted",
        [SB_STATUS_ALL] = "status_all",
        [SB_RESET_REUSED] = "reset_reused",
        [SB_RESET_REUSED_TAKEN] = "reset_reused_taken",
        [SB_OUTAGE] = "outage",
        [SB_THROTTLED] = "throttled",
        [SB_DROP_BEFORE] = "drop_before",
        [SB_ERROR_NOT_TAKEN] = "error_not_taken",
        [SB_ERROR_TAKEN] = "error_taken",
        [SB_DROP_ANSWER] = "drop_answer",
        [SB_REPLAYED] = "replayed",
        [SB_INVALID] = "invalid",
        [SB_REJECTED] = "rejected",
        [SB_FULL] = "full",
        [SB_OPTED_OUT] = "opted_out",
        [SB_LATER] = "later",
        [SB_ACCOUNT] = "account",
    };
    return (unsigned)reason < SB_REASONS_ ? names[reason] : "?";
}

/* Uniform in [0,1) from the top 53 bits; `what` keeps the knobs' draws apart. */
static double draw(const struct sb_knobs *k, uint64_t number, unsigned what)
{
    uint64_t bits = sb_mix(sb_mix(k->seed ^ ((uint64_t)what << 56)) ^ number);

    return (double)(bits >> 11) * 0x1p-53;
}

/* The first two as they always were: a seed's latencies stay what they are. */
enum { DRAW_LATENCY_1 = SB_FULL + 1, DRAW_LATENCY_2, DRAW_LOOKUP, DRAW_RECEIPT };

static bool happens(const struct sb_knobs *k, uint64_t number, enum sb_reason what, double p)
{
    return p > 0 && draw(k, number, (unsigned)what) < p;
}

static bool within(double x, double from, double length)
{
    return length > 0 && x >= from && x < from + length;
}

static bool in_outage(const struct sb_knobs *k, const struct sb_case *c)
{
    if (k->outage_count > 0 && c->number >= k->outage_from &&
        c->number - k->outage_from < k->outage_count)
        return true;
    return within(c->elapsed_s, k->outage_at, k->outage_for);
}

enum sb_act sb_knobs_act(int mode)
{
    switch (mode) {
    case SB_MODE_STATUS:
        return SB_ACT_ANSWER;
    case SB_MODE_RESET:
    case SB_MODE_REFUSE:
        return SB_ACT_RESET;
    case SB_MODE_CLOSE:
        return SB_ACT_CLOSE;
    default:
        return SB_ACT_HANG;
    }
}

static struct sb_fate decide_taken(const struct sb_knobs *k, uint64_t number)
{
    if (happens(k, number, SB_ERROR_TAKEN, k->error_taken))
        return (struct sb_fate){SB_ERROR_TAKEN, true, SB_ACT_ANSWER, (int)k->error_status, true};
    if (happens(k, number, SB_DROP_ANSWER, k->drop_answer))
        return (struct sb_fate){SB_DROP_ANSWER, true, sb_knobs_act(k->drop_mode), 0, true};
    return (struct sb_fate){SB_ACCEPTED, true, SB_ACT_ANSWER, 202, true};
}

struct sb_fate sb_knobs_decide(const struct sb_knobs *k, const struct sb_case *c)
{
    uint64_t n = c->number;

    if (k->status_all > 0)
        return (struct sb_fate){SB_STATUS_ALL, false, SB_ACT_ANSWER, (int)k->status_all, false};
    if (in_outage(k, c))
        return (struct sb_fate){SB_OUTAGE, false, sb_knobs_act(k->outage_mode), 503, false};
    if (c->reused && happens(k, n, SB_RESET_REUSED, k->reset_reused))
        return (struct sb_fate){SB_RESET_REUSED, false, SB_ACT_RESET, 0, false};
    if (c->reused && happens(k, n, SB_RESET_REUSED_TAKEN, k->reset_reused_taken))
        return (struct sb_fate){SB_RESET_REUSED_TAKEN, true, SB_ACT_RESET, 0, false};
    if (c->over_rate)
        return (struct sb_fate){SB_THROTTLED, false, SB_ACT_ANSWER, 429, false};
    if (happens(k, n, SB_DROP_BEFORE, k->drop_before))
        return (struct sb_fate){SB_DROP_BEFORE, false, sb_knobs_act(k->drop_mode), 0, false};
    if (happens(k, n, SB_ERROR_NOT_TAKEN, k->error_not_taken))
        return (struct sb_fate){SB_ERROR_NOT_TAKEN, false, SB_ACT_ANSWER, (int)k->error_status,
                                true};
    return decide_taken(k, n);
}

struct sb_fate sb_knobs_decide_other(const struct sb_knobs *k, const struct sb_case *c,
                                     uint64_t count)
{
    if (k->status_all > 0)
        return (struct sb_fate){SB_STATUS_ALL, false, SB_ACT_ANSWER, (int)k->status_all, false};
    if (in_outage(k, c))
        return (struct sb_fate){SB_OUTAGE, false, sb_knobs_act(k->outage_mode), 503, false};
    if (k->lookup_error > 0 && draw(k, count, DRAW_LOOKUP) < k->lookup_error)
        return (struct sb_fate){SB_ERROR_NOT_TAKEN, false, SB_ACT_ANSWER, 503, true};
    return (struct sb_fate){SB_ACCEPTED, true, SB_ACT_ANSWER, 200, true};
}

double sb_knobs_draw_receipt(const struct sb_knobs *k, uint64_t count)
{
    return draw(k, count, DRAW_RECEIPT);
}

double sb_knobs_latency(const struct sb_knobs *k, uint64_t number, double elapsed_s)
{
    double ms = k->latency_p50;

    if (k->latency_p99 > k->latency_p50)
        ms = sb_latency_sample(k->latency_p50, k->latency_p99, draw(k, number, DRAW_LATENCY_1),
                               draw(k, number, DRAW_LATENCY_2));
    if (within(elapsed_s, k->slow_from, k->slow_for))
        ms *= k->slow_factor;
    return ms < SB_LATENCY_MAX_MS ? ms : SB_LATENCY_MAX_MS;
}

bool sb_knobs_refuses(const struct sb_knobs *k, double elapsed_s)
{
    return k->outage_mode == SB_MODE_REFUSE && within(elapsed_s, k->outage_at, k->outage_for);
}
