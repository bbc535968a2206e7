#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/sign.h"
#include "providers/sandbox/mix.h"
#include "providers/sandbox/vendor.h"
#include "providers/sandbox/wait.h"
#include "providers/sandbox/world.h"
#include "worker/core/text.h"

#define HOLD_MS     15000               /* longest wait for a receipt that must come first */
#define LOOKUP_DRAW (UINT64_C(1) << 40) /* latencies of look-ups are drawn apart */

struct turn { /* one request that takes a message, while it is decided */
    struct sb_req *r;
    struct sb_world *w;
    struct sb_call call;
    struct sb_call_priv priv;
    struct sb_send send;
    bool well_formed;
    struct sb_now now;
    uint64_t number;
    struct sb_entry *entry; /* NULL: not well-formed, or the ledger is full */
    enum sb_magic magic;
    char made[SB_KEY_MAX + 1];
    struct sb_key key;
    bool hold;
};

const struct sb_dialect_route *sb_dialect_route_find(const struct sb_world *w, const char *method,
                                                     const char *path, bool *ret_other)
{
    *ret_other = false;
    for (const struct sb_dialect_route *route = w->d->routes; route->method; route++) {
        if (!sb_path_fits(route->path, path, NULL))
            continue;
        if (strcmp(route->method, method) == 0)
            return route;
        *ret_other = true;
    }
    return NULL;
}

/* --- wording ---------------------------------------------------------------------------- */

static int fresh_reply(struct sb_req *r)
{
    sb_reply_free(r->reply);
    r->reply = calloc(1, sizeof(*r->reply));
    if (!r->reply)
        return -ENOMEM;
    r->reply->status = (int)r->sb->knobs.error_status;
    return 0;
}

/* What a gateway in front of the vendor says: nothing in the vendor's own form. */
static int gateway(struct sb_req *r, int status)
{
    return sb_reply_printf(r->reply, status, "text/html",
                           "<html>\r\n<head><title>%d</title></head>\r\n<body>\r\n"
                           "<center><h1>%d</h1></center>\r\n<hr><center>gateway</center>\r\n"
                           "</body>\r\n</html>\r\n",
                           status, status);
}

static int refuse(struct turn *t, enum sb_refusal why, const struct sb_msg *known)
{
    const struct sb_dialect *d = t->w->d;
    int rc = fresh_reply(t->r);

    if (rc == 0)
        rc = d->refuse(&t->call, why, t->well_formed ? &t->send : NULL, known, t->r->reply);
    if (rc != -ENOTSUP)
        return rc;
    switch (why) {
    case SB_REFUSE_THROTTLED:
        return sb_reply_text(t->r->reply, 429, "text/plain", "");
    case SB_REFUSE_OPT_OUT:
        return d->refuse(&t->call, SB_REFUSE_NUMBER, &t->send, NULL, t->r->reply);
    case SB_REFUSE_LATER:
        return d->refuse(&t->call, SB_REFUSE_ERROR, &t->send, NULL, t->r->reply);
    default:
        return rc;
    }
}

static int refuse_as(struct turn *t, enum sb_reason reason, enum sb_refusal why)
{
    sb_vendor_set_fate(t->r, reason, SB_ACT_ANSWER, 0);
    return refuse(t, why, NULL);
}

/* --- a message -------------------------------------------------------------------------- */

/* What names the message in the ledger: what the vendor knows it by, or number and text. */
static void identify(struct turn *t)
{
    const char *s = NULL;
    uint8_t digest[SIGN_MAX];

    if (t->w->sb->knobs.identity == SB_IDENTITY_KEY)
        s = t->send.key ? t->send.key : t->send.ref;
    if (s) {
        t->key = (struct sb_key){s, strlen(s)};
        if (sb_key_is_fine(&t->key))
            return;
    }
    if (sign_digest(SIGN_SHA256, t->send.text, strlen(t->send.text), digest) == 0)
        memset(digest, 0, sizeof(digest));
    const char *to = *t->send.to == '+' ? t->send.to + 1 : t->send.to;
    int n = snprintf(t->made, sizeof(t->made), "+%s:", to);
    for (size_t i = 0; i < 8; i++)
        n += snprintf(t->made + n, sizeof(t->made) - (size_t)n, "%02x", digest[i]);
    t->key = (struct sb_key){t->made, (size_t)n};
}

static int read_message(struct turn *t)
{
    struct text_measure m;
    int rc = t->w->d->read(&t->call, &t->send, t->r->reply);

    if (rc == 0 && (!t->send.to || !sb_to_is_fine(t->send.to) || !t->send.text ||
                    text_measure(t->send.text, strlen(t->send.text), &m) < 0))
        rc = refuse(t, SB_REFUSE_NUMBER, NULL) < 0 ? -ENOMEM : -EINVAL;
    t->well_formed = rc == 0;
    if (rc < 0)
        return rc == -EINVAL ? 0 : rc;
    identify(t);
    t->magic = sb_magic_of(t->send.to);
    if (sb_store_full(t->w->store))
        return 0;
    sb_ledger_note(t->w->sb->ledger,
                   &(struct sb_request){.key = t->key.text,
                                        .key_len = t->key.len,
                                        .to = t->send.to,
                                        .body_hash = sb_hash(t->r->body, t->r->len)},
                   &t->entry);
    return 0;
}

/* Fates that lie in the number. False: none, go on. */
static bool magic_refuses(struct turn *t, int *ret_rc)
{
    static const struct {
        enum sb_magic magic;
        bool once;
        enum sb_reason reason;
        enum sb_refusal why;
    } rows[] = {
        {SB_MAGIC_REFUSED, false, SB_REJECTED, SB_REFUSE_NUMBER},
        {SB_MAGIC_OPTED_OUT, false, SB_OPTED_OUT, SB_REFUSE_OPT_OUT},
        {SB_MAGIC_THROTTLED_ONCE, true, SB_THROTTLED, SB_REFUSE_THROTTLED},
        {SB_MAGIC_LATER_ONCE, true, SB_LATER, SB_REFUSE_LATER},
        {SB_MAGIC_ACCOUNT_ONCE, true, SB_ACCOUNT, SB_REFUSE_ACCOUNT},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].magic != t->magic || (rows[i].once && !sb_ledger_once(t->entry)))
            continue;
        *ret_rc = refuse_as(t, rows[i].reason, rows[i].why);
        return true;
    }
    if (!sb_ends_with(t->send.to, t->w->sb->knobs.reject_last))
        return false;
    *ret_rc = refuse_as(t, SB_REJECTED, SB_REFUSE_NUMBER);
    return true;
}

static struct sb_msg *known_message(const struct turn *t)
{
    const struct sb_dialect *d = t->w->d;
    double window_s = d->dedup_s ? (double)d->dedup_s : t->w->sb->knobs.dedup_window;
    struct sb_msg *m = NULL;

    if (d->dedup != SB_DEDUP_NONE && t->send.key)
        m = sb_store_by_key(t->w->store, t->send.key);
    return m && (double)(sb_now_ms(t->w) - m->taken_ms) < window_s * 1000 ? m : NULL;
}

/* A repeat is not delivered. The knobs may still spoil its answer. */
static int answer_known(struct turn *t, const struct sb_msg *known)
{
    struct sb_req *r = t->r;
    bool same = sb_msg_body_hash(known) == sb_hash(r->body, r->len);
    int rc = -ENOTSUP;

    if (t->entry->deliveries > 0)
        sb_ledger_take(t->w->sb->ledger, t->entry, t->now.wall_us / 1000, INT64_MAX, 0);
    if (r->reason != SB_ACCEPTED)
        return 0;
    r->reason = SB_REPLAYED;
    if (!same)
        rc = refuse(t, SB_REFUSE_MISMATCH, known);
    if (rc == -ENOTSUP && !sb_msg_answered(known))
        rc = refuse(t, SB_REFUSE_RUNNING, known);
    if (rc != -ENOTSUP)
        return rc;
    if (t->w->d->dedup == SB_DEDUP_REJECT)
        return refuse(t, SB_REFUSE_DUPLICATE, known);
    rc = fresh_reply(r);
    return rc < 0 ? rc : t->w->d->accept(&t->call, &t->send, known, true, r->reply);
}

static void plan_receipts(struct turn *t, const struct sb_msg *m)
{
    enum sb_state final = SB_ST_DELIVERED;
    enum sb_when when = SB_WHEN_USUAL;

    if (t->magic == SB_MAGIC_UNDELIVERED)
        final = SB_ST_UNDELIVERED;
    else if (t->magic == SB_MAGIC_EXPIRED)
        final = SB_ST_EXPIRED;
    else if (t->magic == SB_MAGIC_NO_RECEIPT)
        when = SB_WHEN_NEVER;
    else if (t->magic == SB_MAGIC_LATE_RECEIPT)
        when = SB_WHEN_LATE;
    bool hold = t->w->sb->knobs.receipt_first && t->r->act == SB_ACT_ANSWER;
    t->hold = sb_receipts_plan(t->w->receipts, m, final, when, hold ? t->r : NULL);
}

static int deliver(struct turn *t)
{
    struct sandbox *sb = t->w->sb;
    struct sb_msg *m = NULL;
    int rc = sb_store_add(t->w, &t->send, sb_hash(t->r->body, t->r->len), &m);
    char key[SB_KEY_MAX + 1];

    if (rc < 0)
        return rc;
    t->r->vendor_no = m->no;
    sb_ledger_take(sb->ledger, t->entry, t->now.wall_us / 1000, 0, m->no);
    sb_entry_key(t->entry, key);
    sb_inbox_add(sb->inbox, &(struct sb_text){.at_ms = t->now.wall_us / 1000,
                                              .vendor_no = m->no,
                                              .to = m->to,
                                              .key = key,
                                              .lane = "",
                                              .text = m->text});
    if (t->magic == SB_MAGIC_NO_ANSWER && sb_ledger_once(t->entry))
        sb_vendor_set_fate(t->r, SB_DROP_ANSWER, sb_knobs_act(sb->knobs.drop_mode), 0);
    plan_receipts(t, m);
    if (t->r->reason != SB_ACCEPTED)
        return 0; /* worded by take, or not at all */
    rc = fresh_reply(t->r);
    return rc < 0 ? rc : t->w->d->accept(&t->call, &t->send, m, false, t->r->reply);
}

static int take(struct turn *t)
{
    const struct sb_msg *known = NULL;
    int rc = 0;

    if (!t->well_formed) {
        sb_vendor_set_fate(t->r, SB_INVALID, SB_ACT_ANSWER, 0);
        return 0; /* worded by the dialect's read */
    }
    if (!t->entry) {
        sb_vendor_set_fate(t->r, SB_FULL, SB_ACT_ANSWER, 507);
        return gateway(t->r, 507);
    }
    if (magic_refuses(t, &rc))
        return rc;
    known = known_message(t);
    rc = known ? answer_known(t, known) : deliver(t);
    if (rc == 0 && t->r->reason == SB_ERROR_TAKEN)
        rc = refuse(t, SB_REFUSE_ERROR, NULL);
    return rc;
}

/* Decides and words. True when the action has to wait for the sampled latency. */
static bool decide(struct turn *t, int *ret_rc)
{
    struct sb_req *r = t->r;
    struct sandbox *sb = t->w->sb;
    const struct sb_case c = {
        .number = t->number,
        .elapsed_s = t->now.elapsed_s,
        .reused = r->link->served > 1,
        .over_rate =
            sb->knobs.rate > 0 && sb_meter_rate(&sb->admitted, t->now.mono_ms) >= sb->knobs.rate,
    };
    const struct sb_fate fate = sb_knobs_decide(&sb->knobs, &c);

    sb_vendor_set_fate(r, fate.reason, fate.act, fate.status);
    if (fate.reason != SB_THROTTLED && fate.reason != SB_OUTAGE && fate.reason != SB_STATUS_ALL)
        sb_meter_add(&sb->admitted, t->now.mono_ms);
    *ret_rc = 0;
    if (fate.take)
        *ret_rc = take(t);
    else if (fate.reason == SB_THROTTLED)
        *ret_rc = refuse(t, SB_REFUSE_THROTTLED, NULL);
    else if (fate.reason == SB_ERROR_NOT_TAKEN)
        *ret_rc = refuse(t, SB_REFUSE_ERROR, NULL);
    else if (fate.act == SB_ACT_ANSWER)
        *ret_rc = gateway(r, fate.status);
    if (sb->waits)
        sb_wait_check(sb, t->entry);
    return fate.delayed;
}

/* --- serving ---------------------------------------------------------------------------- */

static enum MHD_Result act(struct sb_req *r)
{
    struct sb_msg *m = r->vendor_no ? sb_store_at(r->sb->world->store, r->vendor_no) : NULL;

    if (m)
        sb_msg_set_answered(m);
    return sb_vendor_act(r);
}

static enum MHD_Result act_after(struct sb_req *r, double latency, bool hold, double exact_ms)
{
    if (r->act == SB_ACT_HANG || (latency <= 0 && !hold))
        return act(r);
    return sb_req_sleep(r, (int64_t)ceil(exact_ms + latency) + (hold ? HOLD_MS : 0), false);
}

static enum MHD_Result serve_message(struct turn *t)
{
    struct sandbox *sb = t->w->sb;
    struct sb_req *r = t->r;
    double exact_ms = sb_vendor_clocks(&t->now, sb);
    bool wait = false;

    sb_vendor_arrive(r, t->now.mono_ms);
    t->number = sb->stats.requests;
    int rc = read_message(t);
    if (rc == 0)
        wait = decide(t, &rc);
    sb->stats.by_reason[r->reason]++;
    sb_vendor_log(r, t->number, &t->now, t->key);
    if (rc < 0)
        return MHD_NO; /* out of memory */
    double latency = wait ? sb_knobs_latency(&sb->knobs, t->number, t->now.elapsed_s) : 0;
    return act_after(r, latency, t->hold, exact_ms);
}

static enum MHD_Result serve_other(struct turn *t, const struct sb_dialect_route *route)
{
    struct sandbox *sb = t->w->sb;
    struct sb_req *r = t->r;
    double exact_ms = sb_vendor_clocks(&t->now, sb);
    uint64_t count = t->w->lookups + t->w->logins;
    const struct sb_case c = {.number = sb->stats.requests, .elapsed_s = t->now.elapsed_s};
    const struct sb_fate fate = sb_knobs_decide_other(&sb->knobs, &c, count);
    int rc = 0;

    (*(route->login ? &t->w->logins : &t->w->lookups))++;
    sb_vendor_set_fate(r, fate.reason, fate.act, fate.status);
    if (fate.take)
        rc = route->serve(&t->call, r->reply);
    else if (fate.act == SB_ACT_ANSWER)
        rc = gateway(r, fate.status);
    if (rc < 0)
        return MHD_NO;
    double latency =
        fate.delayed ? sb_knobs_latency(&sb->knobs, LOOKUP_DRAW + count, t->now.elapsed_s) : 0;
    return act_after(r, latency, false, exact_ms);
}

enum MHD_Result sb_dialect_serve(struct sb_req *r)
{
    struct turn t = {.r = r, .w = r->sb->world, .key = {"", 0}};
    enum MHD_Result result = MHD_NO;
    bool other = false;

    if (r->woken)
        return act(r);
    const struct sb_dialect_route *route = sb_dialect_route_find(t.w, r->method, r->tail, &other);
    if (fresh_reply(r) == 0 && sb_call_init(&t.call, &t.priv, t.w, r) == 0) {
        sb_path_fits(route->path, r->tail, &t.priv.parts);
        result = route->serve ? serve_other(&t, route) : serve_message(&t);
    }
    sb_call_done(&t.call);
    return result;
}

void sb_dialect_done(struct sb_req *r)
{
    if (r->held)
        sb_receipts_forget(r);
    if (r->counted)
        r->sb->stats.in_air--;
    if (!r->complete)
        r->sb->stats.incomplete++;
    r->reply = sb_reply_free(r->reply);
}
