/* The fold and late news. First a table; then a model of the message's row that does what the SQL
 * functions claim, settle, release and late_write do, fences included, driven by decide and
 * decide_late through random lives with crashes, zombies and news in any order, and compared with
 * the plain fold over the attempts. Cases D7, D10, U2, U6, J4, J24; relations of permutation,
 * duplication, zombie and crash insertion; R7. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/decide.h"

#include <stdlib.h>
#include <string.h>

static const struct policy hold = {.on_unknown = ON_UNKNOWN_HOLD,
                                   .max_attempts = 3,
                                   .max_calls = 100,
                                   .backoff_base_ms = 10,
                                   .backoff_cap_ms = 100};

struct late_row {
    const char *name;
    struct late_view v;
    enum outcome news;
    struct late_decision want;
};

#define SEEN(st, at, db, rec, as, now, ...)                                                        \
    {                                                                                              \
        .state = MSG_##st, .attempts = at, .doubts = db, .recorded = rec, .recorded_as = as,       \
        .now_ms = now, .expires_ms = 1000, __VA_ARGS__                                             \
    }
#define VIEW(st, at, db, ...) SEEN(st, at, db, true, OUTCOME_UNKNOWN, 0, __VA_ARGS__)
#define NOTHING(st, db, ...)                                                                       \
    {                                                                                              \
        .state = MSG_##st, .doubts = db, __VA_ARGS__                                               \
    }
#define BECOMES(st, db, ...)                                                                       \
    {                                                                                              \
        .change = true, .state = MSG_##st, .doubts = db, __VA_ARGS__                               \
    }

static const struct late_row rows[] = {
    {"U6 unknown, accepted after all", VIEW(UNKNOWN, 1, 1, .taken = false), OUTCOME_ACCEPTED,
     BECOMES(SENT, 0, .taken = false)},
    {"a late success cancels the planned retry", VIEW(PENDING, 1, 1, .taken = false),
     OUTCOME_ACCEPTED, BECOMES(SENT, 0, .taken = false)},
    {"a late success lifts failed", VIEW(FAILED, 2, 0, .taken = false), OUTCOME_ACCEPTED,
     BECOMES(SENT, 0, .taken = false)},
    {"a late success lifts expired", VIEW(EXPIRED, 2, 0, .taken = false), OUTCOME_ACCEPTED,
     BECOMES(SENT, 0, .taken = false)},
    {"a late success lifts canceled", VIEW(CANCELED, 1, 1, .taken = false), OUTCOME_ACCEPTED,
     BECOMES(SENT, 0, .taken = false)},
    {"accepted while a newer attempt is in the air", VIEW(SENDING, 2, 1, .newer_attempt = true),
     OUTCOME_ACCEPTED, BECOMES(SENDING, 0, .taken = true, .reason = "accepted late")},
    {"two accepted while a third is in the air",
     VIEW(SENDING, 3, 1, .newer_attempt = true, .taken = true), OUTCOME_ACCEPTED,
     BECOMES(SENDING, 0, .taken = true, .duplicate = true, .reason = "accepted late")},
    {"sent, and another attempt was accepted too", VIEW(SENT, 2, 1, .taken = false),
     OUTCOME_ACCEPTED, BECOMES(SENT, 0, .duplicate = true, .reason = "accepted twice")},
    {"sent, and the same acceptance comes again", VIEW(SENT, 2, 1, .same_vendor_id = true),
     OUTCOME_ACCEPTED, BECOMES(SENT, 0, .taken = false)},
    {"sent under the same key: no doubt is left to clear", VIEW(SENT, 2, 0, .taken = false),
     OUTCOME_ACCEPTED, NOTHING(SENT, 0, .change = false)},
    {"surely not sent: may be tried again", VIEW(UNKNOWN, 1, 1, .taken = false), OUTCOME_UNREACHED,
     BECOMES(PENDING, 0, .reason = "doubt cleared")},
    {"surely not sent, attempts used up", VIEW(UNKNOWN, 3, 1, .taken = false), OUTCOME_REFUSED,
     BECOMES(FAILED, 0, .reason = "attempts used up")},
    {"surely not sent, too late to try again",
     SEEN(UNKNOWN, 1, 1, true, OUTCOME_UNKNOWN, 1000, .taken = false), OUTCOME_THROTTLED,
     BECOMES(EXPIRED, 0, .reason = "doubt cleared")},
    {"rejected for good", VIEW(UNKNOWN, 1, 1, .taken = false), OUTCOME_REJECTED,
     BECOMES(FAILED, 0, .reason = "rejected")},
    {"rejected cancels the planned retry", VIEW(PENDING, 1, 1, .taken = false), OUTCOME_REJECTED,
     BECOMES(FAILED, 0, .reason = "rejected")},
    {"not sent, but another attempt was rejected", VIEW(UNKNOWN, 2, 1, .rejected = true),
     OUTCOME_REFUSED, BECOMES(FAILED, 0, .reason = "rejected")},
    {"one doubt of two is cleared", VIEW(UNKNOWN, 2, 2, .taken = false), OUTCOME_REJECTED,
     BECOMES(UNKNOWN, 1, .reason = "doubt cleared")},
    {"rejected with a doubt left: not tried again", VIEW(PENDING, 2, 2, .taken = false),
     OUTCOME_REJECTED, BECOMES(UNKNOWN, 1, .reason = "rejected")},
    {"a doubt is cleared while a newer attempt is in the air",
     VIEW(SENDING, 2, 1, .newer_attempt = true), OUTCOME_REFUSED,
     BECOMES(SENDING, 0, .reason = "doubt cleared")},
    {"a canceled message stays canceled", VIEW(CANCELED, 1, 1, .taken = false), OUTCOME_REFUSED,
     BECOMES(CANCELED, 0, .reason = "doubt cleared")},
    {"still unknown is no news", VIEW(UNKNOWN, 1, 1, .taken = false), OUTCOME_UNKNOWN,
     NOTHING(UNKNOWN, 1, .change = false)},
    {"a stranger's word is no news", VIEW(UNKNOWN, 1, 1, .taken = false), OUTCOME_MAX_,
     NOTHING(UNKNOWN, 1, .change = false)},
    {"failed under the same key: no doubt is left to clear", VIEW(FAILED, 2, 0, .taken = false),
     OUTCOME_REFUSED, NOTHING(FAILED, 0, .change = false)},
    {"J24 what was accepted stays", SEEN(SENT, 1, 0, true, OUTCOME_ACCEPTED, 0, .taken = false),
     OUTCOME_REJECTED, NOTHING(SENT, 0, .change = false)},
    {"what was rejected stays", SEEN(FAILED, 1, 0, true, OUTCOME_REJECTED, 0, .taken = false),
     OUTCOME_ACCEPTED, NOTHING(FAILED, 0, .change = false)},
    {"an attempt nobody recorded", SEEN(SENT, 1, 0, false, OUTCOME_UNKNOWN, 0, .taken = false),
     OUTCOME_REFUSED, NOTHING(SENT, 0, .change = false)},
};

static bool same(const struct late_decision *a, const struct late_decision *b)
{
    return a->change == b->change && a->state == b->state && a->doubts == b->doubts &&
           a->taken == b->taken && a->duplicate == b->duplicate && !a->reason == !b->reason &&
           (!a->reason || strcmp(a->reason, b->reason) == 0);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct late_decision got = decide_late(&hold, &rows[i].v, rows[i].news);

        if (!same(&got, &rows[i].want))
            fail_msg("%s: change %d %s doubts %d taken %d duplicate %d reason %s", rows[i].name,
                     got.change, msg_state_name(got.state), got.doubts, got.taken, got.duplicate,
                     got.reason ? got.reason : "none");
    }
}

static void test_fold(void **state)
{
    static const enum fold one[] = {FOLD_ACCEPTED,  FOLD_REJECTED,  FOLD_NOT_TAKEN, FOLD_NOT_TAKEN,
                                    FOLD_NOT_TAKEN, FOLD_NOT_TAKEN, FOLD_DOUBT,     FOLD_DOUBT};

    (void)state;
    assert_int_equal(fold_attempts(NULL, 0), FOLD_NOT_TAKEN);
    for (unsigned code = 0; code < 8 * 8 * 8 * 8; code++) {
        enum outcome o[4], turned[4];
        enum fold want = FOLD_NOT_TAKEN;

        for (unsigned i = 0; i < 4; i++) {
            o[i] = (enum outcome)(code >> 3 * i & 7);
            turned[3 - i] = o[i];
            want = one[o[i]] > want ? one[o[i]] : want;
        }
        assert_int_equal(fold_attempts(o, 4), want);
        assert_int_equal(fold_attempts(turned, 4), want);
        assert_true(fold_attempts(o, 3) <= want); /* more attempts never prove less */
    }
}

/* ---- the model ---- */

enum { CLAIMS = 12 };

struct attempt {
    bool made, recorded, open; /* open: its worker, alive or a zombie, has not spoken yet */
    enum outcome truth, as;
};

struct model {
    enum msg_state state;
    int token, attempts, calls, doubts, claimed_doubts;
    bool taken;
    bool tolerated; /* a late rejection met a newer attempt in the air: one more may follow it */
    int64_t now, doubt_since, expires;
    struct attempt a[CLAIMS];
    int n;
    int duplicates;
    struct policy policy;
    struct capability cap;
    unsigned short seed[3];
};

static unsigned draw(struct model *m, unsigned below)
{
    return (unsigned)nrand48(m->seed) % below;
}

static struct view view_of(const struct model *m)
{
    return (struct view){.attempts = m->attempts,
                         .calls = m->calls,
                         .doubts = m->claimed_doubts,
                         .now_ms = m->now,
                         .expires_ms = m->expires,
                         .doubt_since_ms = m->doubt_since,
                         .started_ms = m->now,
                         .jitter = 0.5};
}

/* sql: settle(), for the row's own claim only. */
static bool settle(struct model *m, int token, const struct decision *d, const enum outcome *as)
{
    int doubt = as && *as == OUTCOME_UNKNOWN, doubts;

    if (m->state != MSG_SENDING || m->token != token)
        return false;
    doubts = d->doubts < m->doubts + doubt ? d->doubts : m->doubts + doubt;
    m->state = d->state;
    if (d->state == MSG_UNKNOWN && doubts == 0)
        m->state = m->now >= m->expires ? MSG_EXPIRED : as ? MSG_FAILED : MSG_PENDING;
    if (m->taken)
        m->state = MSG_SENT;
    m->taken = false;
    if (doubts > 0 && m->doubts == 0)
        m->doubt_since = m->now;
    m->attempts = d->attempts;
    m->doubts = doubts;
    if (as) {
        m->a[token].recorded = true;
        m->a[token].as = *as;
    }
    return true;
}

/* sql: late_read(), decide_late, late_write(). */
static void late(struct model *m, int token, enum outcome news)
{
    struct attempt *a = &m->a[token];
    struct late_view v = {.state = m->state,
                          .newer_attempt = m->state == MSG_SENDING && m->token != token,
                          .recorded = a->recorded,
                          .recorded_as = a->as,
                          .attempts = m->attempts,
                          .doubts = m->doubts,
                          .taken = m->taken,
                          .now_ms = m->now,
                          .expires_ms = m->expires};
    struct late_decision d;

    for (int i = 0; i < m->n; i++)
        v.rejected |= i != token && m->a[i].recorded && m->a[i].as == OUTCOME_REJECTED;
    d = decide_late(&m->policy, &v, news);
    if (!d.change)
        return;
    m->state = d.state;
    m->doubts = d.doubts;
    m->taken = d.taken;
    m->duplicates += d.duplicate;
    m->tolerated |= news == OUTCOME_REJECTED && d.state == MSG_SENDING;
    a->as = news;
}

static void speak(struct model *m, int token, enum outcome outcome)
{
    struct view v = view_of(m);
    struct decision d = decide(&m->policy, &m->cap, &v, outcome, -1);

    m->a[token].open = outcome == OUTCOME_UNKNOWN; /* later it may be known after all */
    if (!settle(m, token, &d, &outcome))
        late(m, token, outcome);
}

static void step_claim(struct model *m)
{
    struct view v;
    struct decision d;

    m->token = m->n++;
    m->state = MSG_SENDING;
    m->attempts++;
    m->claimed_doubts = m->doubts;
    if (draw(m, 8) == 0) { /* the answer of the claim's COMMIT is lost: release() */
        m->attempts--;
        m->state = m->taken ? MSG_SENT : MSG_PENDING;
        m->taken = false;
        return;
    }
    v = view_of(m);
    if (!decide_dispatch(&m->policy, &m->cap, &v, &d)) {
        settle(m, m->token, &d, NULL);
        return;
    }
    m->a[m->token] = (struct attempt){.made = true, .open = true};
    /* Mostly misfortune: success ends a story too soon. */
    m->a[m->token].truth =
        draw(m, 4) == 0 ? OUTCOME_ACCEPTED : (enum outcome)(1 + draw(m, OUTCOME_UNKNOWN - 1));
    m->calls += m->a[m->token].truth != OUTCOME_UNREACHED;
}

static void step(struct model *m)
{
    int i = m->n > 0 ? (int)draw(m, (unsigned)m->n) : 0;

    m->now += draw(m, 40);
    switch (draw(m, 4)) {
    case 0:
        if (m->state == MSG_PENDING && m->n < CLAIMS)
            step_claim(m);
        break;
    case 1: /* the sweeper, or the worker itself, knows nothing */
        if (m->state == MSG_SENDING && m->a[m->token].made && m->a[m->token].open)
            speak(m, m->token, OUTCOME_UNKNOWN);
        break;
    default: /* somebody learns how an attempt ended, whenever */
        if (m->n > 0 && m->a[i].made && m->a[i].open)
            speak(m, i, m->a[i].truth);
        else if (m->n > 0 && m->a[i].recorded) /* replay: said again */
            late(m, i, m->a[i].truth);
        break;
    }
}

/* The row says what the attempts say. */
static const char *untrue(const struct model *m)
{
    enum outcome known[CLAIMS];
    unsigned n = 0;
    int doubts = 0, accepted = 0;
    enum fold fold;

    for (int i = 0; i < m->n; i++) {
        if (!m->a[i].recorded)
            continue;
        known[n++] = m->a[i].as;
        doubts += m->a[i].as == OUTCOME_UNKNOWN;
        accepted += m->a[i].as == OUTCOME_ACCEPTED;
    }
    fold = fold_attempts(known, n);
    if (doubts != m->doubts)
        return "doubts are not the attempts in doubt";
    if (m->attempts > m->policy.max_attempts)
        return "more attempts than allowed";
    if ((m->state == MSG_SENT || m->taken) != (fold == FOLD_ACCEPTED))
        return "sent is not: any accepted";
    if (m->state == MSG_SENDING)
        return NULL;
    if (fold == FOLD_REJECTED && m->state != MSG_FAILED && !m->tolerated)
        return "rejected and nothing in doubt, but not failed";
    if (fold == FOLD_DOUBT && m->state != MSG_UNKNOWN && m->state != MSG_PENDING)
        return "in doubt, but neither unknown nor waiting";
    if (fold == FOLD_NOT_TAKEN && m->state == MSG_UNKNOWN)
        return "unknown without a doubt";
    if (m->policy.on_unknown != ON_UNKNOWN_RESEND && fold == FOLD_DOUBT && m->state == MSG_PENDING)
        return "hold plans another attempt after a doubt";
    if (m->policy.on_unknown != ON_UNKNOWN_RESEND && accepted > 1)
        return "hold was accepted twice";
    return NULL;
}

static void run(unsigned long number, bool check_steps)
{
    struct model m = {.state = MSG_PENDING, .policy = hold, .expires = 1200};
    uint64_t mixed = number * UINT64_C(0x9e3779b97f4a7c15);
    const char *fault;

    memcpy(m.seed, &mixed, sizeof(m.seed));
    m.policy.on_unknown = (enum on_unknown)(number % ON_UNKNOWN_MAX_);
    for (int i = 0; i < 60; i++) {
        step(&m);
        fault = untrue(&m);
        if (check_steps && fault)
            fail_msg("life %lu, step %d: %s (state %s, doubts %d, claims %d)", number, i, fault,
                     msg_state_name(m.state), m.doubts, m.n);
    }
    /* All news comes in the end, in two orders: the same end. */
    struct model other = m;

    for (int i = 0; i < m.n; i++) {
        if (m.a[i].made && m.a[i].open)
            speak(&m, i, m.a[i].truth);
    }
    for (int i = other.n; i-- > 0;) {
        if (other.a[i].made && other.a[i].open)
            speak(&other, i, other.a[i].truth);
    }
    fault = untrue(&m);
    if (fault || m.doubts != 0 || m.state == MSG_UNKNOWN || m.state == MSG_SENDING)
        fail_msg("life %lu at its end: %s (state %s, doubts %d)", number, fault ? fault : "left",
                 msg_state_name(m.state), m.doubts);
    if ((other.state != m.state && !m.tolerated && !other.tolerated) || other.doubts != m.doubts)
        fail_msg("life %lu: the order of news decides: %s or %s", number, msg_state_name(m.state),
                 msg_state_name(other.state));
}

static void test_lives(void **state)
{
    (void)state;
    for (unsigned long number = 0; number < 300000; number++)
        run(number, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_fold),
        cmocka_unit_test(test_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
