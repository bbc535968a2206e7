#include "worker/core/decide.h"

#include <limits.h>
#include <string.h>

#include "worker/core/backoff.h"
#include "worker/core/sat.h"

static bool within_window(const struct capability *cap, int64_t since_ms, int64_t now_ms)
{
    /* The whole resend has to fit: the vendor forgets the key at its own hour (R2). */
    return cap->dedup && now_ms >= since_ms &&
           sat_sub(now_ms, since_ms) < sat_sub(cap->dedup_window_ms, cap->call_ms);
}

/* May the attempts of one message have gone to different vendors? Then no vendor's memory speaks
 * for all of them. It takes both consents: another vendor doubles by definition. */
static bool roams(const struct policy *p)
{
    return p->cross_vendor_resend && p->on_unknown == ON_UNKNOWN_RESEND;
}

static struct decision final(const struct view *v, enum msg_state state, int doubts,
                             const char *reason)
{
    return (struct decision){
        .state = state, .attempts = v->attempts, .doubts = doubts, .reason = reason};
}

/* Not taken by anybody, as far as is proven: failed, or unknown while a doubt is left (R7). */
static struct decision given_up(const struct view *v, int doubts, const char *reason)
{
    return final(v, doubts > 0 ? MSG_UNKNOWN : MSG_FAILED, doubts, reason);
}

/* Waits `delay_ms`, unless the message's life ends first: nothing is planned past expiry. */
static struct decision wait(const struct view *v, int attempts, int doubts, int64_t delay_ms,
                            const char *reason)
{
    struct decision d = {.state = MSG_PENDING,
                         .attempts = attempts,
                         .doubts = doubts,
                         .pinned = doubts > 0,
                         .reason = reason};

    if (v->now_ms >= v->expires_ms || delay_ms >= sat_sub(v->expires_ms, v->now_ms)) {
        d.state = doubts > 0 ? MSG_UNKNOWN : MSG_EXPIRED;
        d.pinned = false;
        return d;
    }
    d.due_ms = v->now_ms + (delay_ms > 0 ? delay_ms : 0);
    return d;
}

static int64_t backoff(const struct policy *p, const struct view *v, int n)
{
    return backoff_ms(p->backoff_base_ms, p->backoff_cap_ms, n > 0 ? (uint32_t)n : 1u, v->jitter);
}

/* The vendor's wish lengthens a wait, but takes at most half of the life that is left: a message
 * dies of its own deadline, never of somebody's Retry-After. */
static int64_t heard(const struct view *v, int64_t delay_ms, int64_t retry_after_ms)
{
    int64_t most = sat_sub(v->expires_ms, v->now_ms) / 2;
    int64_t wish = retry_after_ms < most ? retry_after_ms : most;

    return wish > delay_ms ? wish : delay_ms;
}

static int returned(const struct view *v)
{
    return v->attempts > 0 ? v->attempts - 1 : 0;
}

/* The vendor surely did not take it and the message is not at fault: the attempt comes back
 * (R8). The provider's own pause does the waiting, so the message waits only a little: another
 * provider of its route may be open. */
static struct decision give_back(const struct policy *p, const struct view *v,
                                 int64_t retry_after_ms, const char *reason)
{
    int64_t wish = retry_after_ms < p->backoff_cap_ms ? retry_after_ms : p->backoff_cap_ms;

    if (v->calls >= p->max_calls)
        return given_up(v, v->doubts, "too many calls");
    return wait(v, returned(v), v->doubts, heard(v, backoff(p, v, 1), wish), reason);
}

static struct decision try_again(const struct policy *p, const struct view *v, int doubts,
                                 int64_t retry_after_ms, const char *reason)
{
    if (v->attempts >= p->max_attempts || v->calls >= p->max_calls)
        return given_up(v, doubts, "attempts used up");
    return wait(v, v->attempts, doubts, heard(v, backoff(p, v, v->attempts), retry_after_ms),
                reason);
}

static bool can_ask(const struct policy *p, const struct capability *cap, const struct view *v)
{
    return !roams(p) &&
           (cap->asking == ASKING_BY_KEY || (cap->asking == ASKING_BY_ID && v->has_vendor_id));
}

/* The vendor may still be reading a request whose call has ended here, and what it took is not
 * seen by a look-up at once. */
static int64_t quiet_ms(const struct capability *cap)
{
    return sat_add(cap->call_ms, cap->ask_delay_ms);
}

/* Where late is worse than double, asking may take a tenth of the life that is left: a code of five
 * minutes waits for a look-up of seconds, not for one of a minute. */
static bool ask_in_time(const struct policy *p, const struct capability *cap, const struct view *v)
{
    return p->on_unknown != ON_UNKNOWN_RESEND ||
           quiet_ms(cap) < sat_sub(v->expires_ms, v->now_ms) / 10;
}

static struct decision asking(const struct capability *cap, struct decision d)
{
    d.ask = true;
    d.ask_ms = quiet_ms(cap);
    return d;
}

static struct decision in_doubt(const struct policy *p, const struct capability *cap,
                                const struct view *v)
{
    int earlier = v->doubts > 0 ? v->doubts : 0;
    int doubts = earlier < INT_MAX ? earlier + 1 : INT_MAX;
    int64_t since = v->doubts > 0 ? v->doubt_since_ms : v->started_ms;
    struct decision d = try_again(p, v, doubts, -1, "resend under the same key");

    /* The key has to hold when the resend is due, not only now. */
    if (!roams(p) && within_window(cap, since, v->now_ms) &&
        (d.state != MSG_PENDING || within_window(cap, since, d.due_ms)))
        return d;
    if (can_ask(p, cap, v) && ask_in_time(p, cap, v))
        return final(v, MSG_UNKNOWN, doubts, "asking the vendor");
    if (p->on_unknown != ON_UNKNOWN_RESEND)
        return final(v, MSG_UNKNOWN, doubts, "outcome unknown");
    d = try_again(p, v, doubts, -1, "resend after doubt");
    d.possible_duplicate = d.state == MSG_PENDING;
    return d;
}

static bool speaks_for_all(const struct policy *p, const struct capability *cap,
                           const struct view *v)
{
    return v->doubts > 0 && !roams(p) && within_window(cap, v->doubt_since_ms, v->now_ms);
}

static struct decision rejected(const struct policy *p, const struct capability *cap,
                                const struct view *v)
{
    /* Under the same key a de-duplicating vendor would have repeated an acceptance: its
     * rejection speaks for the earlier attempts too. */
    if (speaks_for_all(p, cap, v))
        return final(v, MSG_FAILED, 0, "rejected");
    return given_up(v, v->doubts, "rejected");
}

static struct decision accepted(const struct policy *p, const struct capability *cap,
                                const struct view *v)
{
    return final(v, MSG_SENT, speaks_for_all(p, cap, v) ? 0 : v->doubts, NULL);
}

struct decision decide(const struct policy *policy, const struct capability *cap,
                       const struct view *view, enum outcome outcome, int64_t retry_after_ms)
{
    struct decision d;

    switch (outcome) {
    case OUTCOME_ACCEPTED:
        return accepted(policy, cap, view);
    case OUTCOME_REJECTED:
        d = rejected(policy, cap, view);
        break;
    case OUTCOME_THROTTLED:
        d = give_back(policy, view, retry_after_ms, "throttled");
        break;
    case OUTCOME_HELD:
        d = give_back(policy, view, retry_after_ms, "provider held");
        break;
    case OUTCOME_UNREACHED:
        /* No request left, so none is counted: an outage ends no message before its deadline. */
        d = wait(view, returned(view), view->doubts, backoff(policy, view, 1),
                 "provider unreached");
        break;
    case OUTCOME_REFUSED:
        d = try_again(policy, view, view->doubts, retry_after_ms, "refused for now");
        break;
    case OUTCOME_UNKNOWN:
    case OUTCOME_MAX_:
    default:
        d = in_doubt(policy, cap, view);
        break;
    }
    if (roams(policy))
        d.pinned = false;
    /* However it came to be in doubt for good: what can be asked is asked. */
    return d.state == MSG_UNKNOWN && can_ask(policy, cap, view) ? asking(cap, d) : d;
}

bool decide_dispatch(const struct policy *policy, const struct capability *cap,
                     const struct view *view, struct decision *ret_decision)
{
    if (view->now_ms >= view->expires_ms) {
        *ret_decision = wait(view, returned(view), view->doubts, 0, "expired before the call");
        if (ret_decision->state == MSG_UNKNOWN && can_ask(policy, cap, view))
            *ret_decision = asking(cap, *ret_decision);
        return false;
    }
    /* A first counted attempt with a doubt behind it is an operator's retry: allowed by hand. */
    if (view->doubts == 0 || view->attempts <= 1 || view->asked ||
        policy->on_unknown == ON_UNKNOWN_RESEND ||
        within_window(cap, view->doubt_since_ms, view->now_ms))
        return true;
    *ret_decision = final(view, MSG_UNKNOWN, view->doubts, "key window over");
    ret_decision->attempts = view->attempts - 1;
    if (can_ask(policy, cap, view))
        *ret_decision = asking(cap, *ret_decision);
    return false;
}

struct decision decide_back(const struct view *view)
{
    struct decision d = final(view, MSG_PENDING, view->doubts, NULL);

    d.attempts = view->attempts > 0 ? view->attempts - 1 : 0;
    d.pinned = view->doubts > 0;
    return d;
}

struct decision decide_unfit(const struct view *view, const char *reason)
{
    return given_up(view, view->doubts, reason);
}

bool duplicate_explained(const struct view *view, int permits)
{
    return view->doubts > 0 || view->calls <= 1 || permits > 1;
}

struct decision decide_duplicate(const struct policy *policy, const struct capability *cap,
                                 const struct view *view)
{
    struct decision d =
        final(view, MSG_UNKNOWN, view->doubts < INT_MAX ? view->doubts + 1 : INT_MAX,
              "duplicate of a refused try");

    return can_ask(policy, cap, view) ? asking(cap, d) : d;
}

struct decision decide_unstorable(const struct view *view)
{
    return final(view, MSG_UNKNOWN, view->doubts < INT_MAX ? view->doubts + 1 : INT_MAX,
                 "outcome could not be stored");
}

/* ---- asking ---- */

enum { ASK_PAUSE_MIN_MS = 1000, ASK_PAUSE_MAX_MS = 15 * 60 * 1000 };

static bool nothing_left(const struct capability *cap, const struct ask_view *v, int64_t wait_ms)
{
    return v->tries >= ASK_TRIES ||
           (cap->ask_window_ms > 0 &&
            sat_sub(sat_add(v->now_ms, wait_ms), v->doubt_since_ms) >= cap->ask_window_ms);
}

static struct ask_decision ask_again(const struct capability *cap, const struct ask_view *v,
                                     int misses, int64_t retry_after_ms, const char *reason)
{
    int64_t base = cap->ask_delay_ms > ASK_PAUSE_MIN_MS ? cap->ask_delay_ms : ASK_PAUSE_MIN_MS;
    int64_t most = base > ASK_PAUSE_MAX_MS ? base : ASK_PAUSE_MAX_MS;
    struct ask_decision d = {.next = ASK_AGAIN, .misses = misses, .reason = reason};

    d.again_ms = backoff_ms(base, most, v->tries > 0 ? (uint32_t)v->tries : 1u, v->jitter);
    if (d.again_ms < base)
        d.again_ms = base; /* jitter never undercuts the visibility delay */
    if (retry_after_ms > d.again_ms)
        d.again_ms = retry_after_ms < most ? retry_after_ms : most;
    if (nothing_left(cap, v, d.again_ms)) {
        d.next = ASK_STOP;
        d.again_ms = 0;
    }
    return d;
}

static bool may_send_again(const struct policy *p, const struct ask_view *v)
{
    return p->on_unknown != ON_UNKNOWN_HOLD && !v->canceled && v->now_ms < v->expires_ms &&
           v->attempts < p->max_attempts && v->calls < p->max_calls;
}

static struct ask_decision never_seen(const struct policy *p, const struct capability *cap,
                                      const struct ask_view *v)
{
    int misses = v->misses < INT_MAX ? v->misses + 1 : INT_MAX;
    int needed = p->on_unknown == ON_UNKNOWN_RESEND ? 1 : 2;

    if (misses < needed)
        return ask_again(cap, v, misses, -1, NULL);
    if (cap->absence_proves)
        return (struct ask_decision){.next = ASK_NOT_TAKEN, .misses = misses};
    if (may_send_again(p, v))
        return (struct ask_decision){
            .next = ASK_RESEND, .misses = misses, .reason = "not found, sent again"};
    return ask_again(cap, v, misses, -1, "not found");
}

struct ask_decision decide_ask(const struct policy *policy, const struct capability *cap,
                               const struct ask_view *view, enum finding finding,
                               int64_t retry_after_ms)
{
    struct ask_decision d = {.misses = view->misses};

    switch (finding) {
    case FINDING_HAS_IT:
        d.next = ASK_ACCEPTED;
        return d;
    case FINDING_REFUSED_IT:
        d.next = ASK_REJECTED;
        return d;
    case FINDING_NEVER_SEEN:
        return never_seen(policy, cap, view);
    case FINDING_CANNOT_SAY:
    case FINDING_MAX_:
    default:
        break;
    }
    if (policy->on_unknown == ON_UNKNOWN_RESEND && view->tries >= 2 && may_send_again(policy, view))
        return (struct ask_decision){
            .next = ASK_RESEND, .misses = view->misses, .reason = "no answer, sent again"};
    return ask_again(cap, view, view->misses, retry_after_ms,
                     view->misses > 0 ? NULL : "the vendor cannot say yet");
}

/* ---- the fold ---- */

enum fold fold_attempts(const enum outcome *outcomes, unsigned n)
{
    enum fold fold = FOLD_NOT_TAKEN;

    for (unsigned i = 0; i < n; i++) {
        enum fold one = FOLD_DOUBT; /* also for what is outside the enum */

        if (outcomes[i] == OUTCOME_ACCEPTED)
            one = FOLD_ACCEPTED;
        else if (outcomes[i] == OUTCOME_REJECTED)
            one = FOLD_REJECTED;
        else if (outcomes[i] >= OUTCOME_THROTTLED && outcomes[i] <= OUTCOME_REFUSED)
            one = FOLD_NOT_TAKEN;
        if (one > fold)
            fold = one;
    }
    return fold;
}

static struct late_decision late_accepted(const struct late_view *v)
{
    struct late_decision d = {
        .change = true, .state = MSG_SENT, .doubts = v->doubts > 0 ? v->doubts - 1 : 0};

    if (v->newer_attempt) { /* it cannot be called back; what it finds does not matter any more */
        d.state = MSG_SENDING;
        d.taken = true;
        d.duplicate = v->taken && !v->same_vendor_id;
        d.reason = "accepted late";
    } else {
        d.taken = v->taken;
        d.duplicate = v->state == MSG_SENT && !v->same_vendor_id;
        d.reason = d.duplicate ? "accepted twice" : NULL;
    }
    return d;
}

static struct late_decision late_not_taken(const struct policy *p, const struct late_view *v,
                                           enum outcome outcome)
{
    struct late_decision d = {
        .change = true, .state = v->state, .doubts = v->doubts - 1, .taken = v->taken};

    d.reason = "doubt cleared";
    if (v->state != MSG_UNKNOWN && v->state != MSG_PENDING)
        return d;
    if (d.doubts > 0) {
        if (v->state == MSG_PENDING && (outcome == OUTCOME_REJECTED || v->rejected)) {
            d.state = MSG_UNKNOWN; /* as a rejection in time: not tried again, but not failed yet */
            d.reason = "rejected";
        }
        return d;
    }
    if (outcome == OUTCOME_REJECTED || v->rejected) {
        d.state = MSG_FAILED;
        d.reason = "rejected";
    } else if (v->now_ms >= v->expires_ms) {
        d.state = MSG_EXPIRED;
    } else if (v->attempts < p->max_attempts) {
        d.state = MSG_PENDING;
    } else {
        d.state = MSG_FAILED;
        d.reason = "attempts used up";
    }
    return d;
}

struct late_decision decide_late(const struct policy *policy, const struct late_view *view,
                                 enum outcome outcome)
{
    struct late_decision nothing = {
        .state = view->state, .doubts = view->doubts, .taken = view->taken};

    /* Only a doubt can be cleared: whatever else is on record was proven and stays. */
    if (!view->recorded || view->recorded_as != OUTCOME_UNKNOWN)
        return nothing;
    /* No doubt is counted where a later answer under the same key spoke for this attempt too. News
     * of success still wins over everything that is not a success (R7). */
    if (outcome == OUTCOME_ACCEPTED)
        return view->state == MSG_SENT && view->doubts <= 0 ? nothing : late_accepted(view);
    if (outcome > OUTCOME_ACCEPTED && outcome < OUTCOME_UNKNOWN && view->doubts > 0)
        return late_not_taken(policy, view, outcome);
    return nothing;
}

bool on_unknown_parse(const char *name, enum on_unknown *ret)
{
    static const char *const names[ON_UNKNOWN_MAX_] = {"hold", "ask", "resend"};

    for (unsigned i = 0; i < ON_UNKNOWN_MAX_; i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret = (enum on_unknown)i;
            return true;
        }
    }
    return false;
}
