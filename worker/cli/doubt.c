#include "worker/cli/doubt.h"

#include <stdio.h>
#include <stdlib.h>

#include "worker/cli/words.h"

/* ---- asking the rules ---------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The doubt of a call that began at 0 and whose attempt is judged at `now`. Jitter 0: the wait in
 * front of a resend is the shortest there can be. */
static struct decision at(const struct policy *p, const struct capability *cap, int64_t life_ms,
                          int attempts, int64_t now, bool has_id)
{
    struct view v = {.attempts = attempts,
                     .calls = attempts,
                     .doubts = attempts > 1 ? 1 : 0,
                     .now_ms = least(now, life_ms - 1),
                     .expires_ms = life_ms,
                     .has_vendor_id = has_id};

    return decide(p, cap, &v, OUTCOME_UNKNOWN, -1);
}

static enum doubt_step step_of(const struct decision *d)
{
    if (d->state == MSG_PENDING)
        return d->possible_duplicate ? DOUBT_RESEND : DOUBT_RESEND_KEY;
    return d->ask ? DOUBT_ASK : DOUBT_HOLD;
}

/* Look-ups that all find the same, until something follows. */
static enum ask_next look_up(const struct policy *p, const struct capability *cap, int64_t life_ms,
                             int64_t ask_ms, enum finding finding, struct doubt *d)
{
    struct ask_view v = {.attempts = 1,
                         .calls = 1,
                         .now_ms = least(cap->call_ms + ask_ms, life_ms - 1),
                         .expires_ms = life_ms};
    struct ask_decision next = {.next = ASK_AGAIN};

    while (next.next == ASK_AGAIN && v.tries < ASK_TRIES) {
        v.tries++;
        next = decide_ask(p, cap, &v, finding, -1);
        if (v.tries == 1 && finding == FINDING_NEVER_SEEN)
            d->ask_again_ms = next.again_ms;
        v.misses = next.misses;
        v.now_ms = least(v.now_ms + next.again_ms, life_ms - 1);
    }
    if (finding == FINDING_NEVER_SEEN)
        d->misses = next.misses;
    return next.next == ASK_AGAIN ? ASK_STOP : next.next;
}

/* The most of a life that may be left where it is sent again without asking: where late is worse
 * than double. Asked with no wait in front of a resend, which a life near its end has no room for.
 */
static int64_t too_late(const struct policy *policy, const struct capability *cap, int64_t life_ms)
{
    int64_t asks = life_ms - cap->call_ms, sends = 0;
    struct policy p = *policy;

    p.backoff_base_ms = p.backoff_cap_ms = 0;
    while (asks - sends > 1) {
        int64_t left = sends + (asks - sends) / 2;
        struct decision d = at(&p, cap, life_ms, 1, life_ms - left, false);

        *(step_of(&d) == DOUBT_RESEND ? &sends : &asks) = left;
    }
    return sends;
}

static void foretell_asking(const struct policy *p, const struct capability *cap, int64_t life_ms,
                            int64_t ask_ms, struct doubt *d)
{
    d->ask_ms = ask_ms;
    d->unseen = look_up(p, cap, life_ms, ask_ms, FINDING_NEVER_SEEN, d);
    d->silent = look_up(p, cap, life_ms, ask_ms, FINDING_CANNOT_SAY, d);
    if (d->first != DOUBT_ASK && !(d->window_ends && d->after == DOUBT_ASK))
        return; /* its attempts are used up: whatever is found, it is not sent again */
    d->duplicate = d->unseen == ASK_RESEND || d->silent == ASK_RESEND;
    if (d->first == DOUBT_ASK)
        d->too_late_ms = too_late(p, cap, life_ms);
}

struct doubt doubt_foretell(const struct policy *policy, const struct capability *cap,
                            int64_t life_ms)
{
    struct decision first = at(policy, cap, life_ms, 1, cap->call_ms, false);
    struct decision over = at(policy, cap, life_ms, 1, cap->dedup_window_ms, false);
    struct decision last = at(policy, cap, life_ms, policy->max_attempts, cap->call_ms, false);
    struct decision by_id = at(policy, cap, life_ms, policy->max_attempts, cap->call_ms, true);
    struct doubt d = {.first = step_of(&first),
                      .window_ms = cap->dedup_window_ms,
                      .used_up = step_of(&last),
                      .unseen = ASK_STOP,
                      .silent = ASK_STOP,
                      .asked_by_id = by_id.ask && !last.ask,
                      .another = first.state == MSG_PENDING && !first.pinned};

    d.window_ends = d.first == DOUBT_RESEND_KEY && cap->dedup_window_ms < life_ms;
    d.after = d.window_ends ? step_of(&over) : d.used_up;
    d.impossible =
        policy->on_unknown == ON_UNKNOWN_ASK && !cap->dedup && cap->asking != ASKING_BY_KEY;
    if (first.ask || (d.window_ends && over.ask) || last.ask)
        foretell_asking(policy, cap, life_ms,
                        first.ask  ? first.ask_ms
                        : over.ask ? over.ask_ms
                                   : last.ask_ms,
                        &d);
    d.duplicate =
        d.duplicate || d.first == DOUBT_RESEND || d.after == DOUBT_RESEND || d.too_late_ms > 0;
    return d;
}

/* ---- words --------------------------------------------------------------------------------- */

static const char held[] = "not sent again, but shown as unknown until a receipt, the vendor's "
                           "log or an operator settles it";

static void say_unseen(FILE *out, const struct doubt *d)
{
    bool once = d->misses <= 1;

    if (d->unseen == ASK_NOT_TAKEN && once)
        fputs("sent again as soon as a look-up proves that it was not taken", out);
    else if (d->unseen == ASK_NOT_TAKEN)
        fprintf(out,
                "never sent again without proof: two look-ups, %s apart, that have not seen it",
                words_duration(d->ask_again_ms).text);
    else if (d->unseen == ASK_RESEND)
        fprintf(out, "sent again when %s not seen it, which is no proof at this vendor",
                once ? "a look-up has" : "two look-ups have");
    else
        fputs("never sent again, as \"not found\" is no proof at this vendor", out);
}

/* What happens without an answer, or without the time for one. */
static void say_silent(FILE *out, const struct doubt *d)
{
    bool sends = d->silent == ASK_RESEND;

    if (sends)
        fputs("; sent again, too, when two look-ups bring no answer", out);
    if (d->too_late_ms > 0)
        fprintf(out, "%s less than %s of its life is left",
                sends ? ", or when" : "; sent again without asking when",
                words_duration(d->too_late_ms).text);
    if (d->unseen == ASK_RESEND || sends || d->too_late_ms > 0)
        fputs(": a duplicate is possible, and counted", out);
    if (!sends)
        fputs("; unknown where the vendor cannot say", out);
}

static void say_asking(FILE *out, const struct doubt *d)
{
    fprintf(out, "asked about after %s, and ", words_duration(d->ask_ms).text);
    say_unseen(out, d);
    say_silent(out, d);
}

static void say_after_window(FILE *out, const struct doubt *d)
{
    if (d->after == DOUBT_RESEND)
        fputs("again though the vendor has forgotten the key: a duplicate is possible, and counted",
              out);
    else if (d->after == DOUBT_ASK)
        say_asking(out, d);
    else
        fputs("shown as unknown and not sent again", out);
}

static void say_used_up(FILE *out, const struct doubt *d, const struct policy *p)
{
    if (d->used_up == DOUBT_ASK)
        fprintf(out, "; still in doubt after %d attempts, asked about after %s", p->max_attempts,
                words_duration(d->ask_ms).text);
}

static void say_key(FILE *out, const struct doubt *d, const struct policy *p, int64_t life_ms)
{
    fprintf(out, "sent again under the same key for %s", words_duration(d->window_ms).text);
    if (d->window_ends) {
        fputs(", then ", out);
        say_after_window(out, d);
    } else {
        fprintf(out, ", which covers its life (%s by default): not doubled",
                words_duration(life_ms).text);
    }
    if (!(d->window_ends && d->after == DOUBT_ASK))
        say_used_up(out, d, p);
}

static void say_first(FILE *out, const struct doubt *d, const struct policy *p, int64_t life_ms)
{
    switch (d->first) {
    case DOUBT_RESEND_KEY:
        say_key(out, d, p, life_ms);
        break;
    case DOUBT_ASK:
        say_asking(out, d);
        break;
    case DOUBT_RESEND:
        fprintf(out,
                "sent again while it lives (%s), in at most %d attempts: the phone may get it up "
                "to %d times, and each possible duplicate is counted",
                words_duration(life_ms).text, p->max_attempts, p->max_attempts);
        say_used_up(out, d, p);
        break;
    case DOUBT_HOLD:
    case DOUBT_STEP_MAX_:
    default:
        fputs(held, out);
        break;
    }
}

char *doubt_words(const struct doubt *doubt, const struct policy *policy, int64_t life_ms)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    if (!out)
        return NULL;
    if (doubt->impossible)
        fputs("impossible: this vendor can neither be asked nor de-duplicates", out);
    else
        say_first(out, doubt, policy, life_ms);
    if (doubt->asked_by_id && !doubt->impossible)
        fputs("; asked about where the vendor's id is known", out);
    if (doubt->another)
        fputs("; another vendor may be tried (cross_vendor_resend)", out);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

const char *doubt_step_name(enum doubt_step step)
{
    static const char *const names[DOUBT_STEP_MAX_] = {"hold", "ask", "resend_key", "resend"};

    return (unsigned)step < DOUBT_STEP_MAX_ ? names[step] : names[DOUBT_HOLD];
}
