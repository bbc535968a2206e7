#include "providers/sandbox/vendor.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "providers/sandbox/message.h"
#include "providers/sandbox/mix.h"
#include "providers/sandbox/wait.h"
#include "providers/sandbox/world.h"

size_t sb_vendor_id(const struct sandbox *sb, uint64_t vendor_no, char buf[SB_VENDOR_ID_MAX])
{
    const struct sb_msg *m = sb->world ? sb_store_at(sb->world->store, vendor_no) : NULL;

    if (m)
        return (size_t)snprintf(buf, SB_VENDOR_ID_MAX, "%s", m->ids[0]);
    return (size_t)snprintf(buf, SB_VENDOR_ID_MAX, "%" PRIx64 "-%" PRIu64, sb->instance, vendor_no);
}

/* --- reading ---------------------------------------------------------------------------- */

bool sb_key_is_fine(const struct sb_key *k)
{
    if (k->len == 0 || k->len > SB_KEY_MAX)
        return false;
    for (size_t i = 0; i < k->len; i++)
        if (k->text[i] <= ' ' || k->text[i] > '~' || strchr("\",\\", k->text[i]))
            return false;
    return true;
}

bool sb_to_is_fine(const char *to)
{
    size_t len = strlen(to);

    if (len == 0 || len > SB_TO_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)to[i] < ' ' || strchr("\",", to[i]))
            return false;
    return true;
}

static struct sb_key key_of(const char *s)
{
    return (struct sb_key){s, strlen(s)};
}

/* The header first, then the body; a request without a key gets one of its own, so that it
 * can never be taken for a repeat of another. */
static struct sb_key choose_key(const struct sb_req *r, const struct sb_message *m, uint64_t number,
                                char made[SB_KEY_MAX])
{
    const char *s = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Idempotency-Key");

    if (s) {
        struct sb_key k = key_of(s);
        if (k.len > 2 && s[0] == '"' && s[k.len - 1] == '"') /* a structured-field string */
            k = (struct sb_key){s + 1, k.len - 2};
        return k;
    }
    if (m->key && *m->key)
        return key_of(m->key);
    snprintf(made, SB_KEY_MAX, "unkeyed-%" PRIu64, number);
    return key_of(made);
}

/* --- taking ----------------------------------------------------------------------------- */

static void record_delay(struct sandbox *sb, const struct sb_entry *e, double t_ms, int64_t wall_us)
{
    if (t_ms <= 0)
        return;
    if (!sb->delay[e->lane])
        sb->delay[e->lane] = calloc(1, sizeof(struct sb_hist));
    if (sb->delay[e->lane])
        sb_hist_add(sb->delay[e->lane], wall_us - llround(t_ms * 1000.0));
}

static void deliver(struct sb_req *r, struct sb_entry *e, const struct sb_message *m,
                    const struct sb_now *now)
{
    struct sandbox *sb = r->sb;
    const struct sb_knobs *k = &sb->knobs;
    int64_t window_ms = k->dedup ? llround(k->dedup_window * 1000.0) : 0;
    enum sb_taken taken =
        sb_ledger_take(sb->ledger, e, now->wall_us / 1000, window_ms, sb->vendor_no + 1);

    r->vendor_no = e->vendor_no;
    if (taken == SB_TAKEN_REPLAY) {
        if (r->reason == SB_ACCEPTED) {
            r->reason = SB_REPLAYED;
            r->status = 200;
        }
        return;
    }
    sb->vendor_no++;
    if (taken == SB_TAKEN_FIRST)
        record_delay(sb, e, m->t_ms, now->wall_us);
    char key[SB_KEY_MAX + 1];
    sb_entry_key(e, key);
    sb_inbox_add(sb->inbox, &(struct sb_text){.at_ms = now->wall_us / 1000,
                                              .vendor_no = e->vendor_no,
                                              .to = m->to,
                                              .key = key,
                                              .lane = m->lane ? m->lane : "",
                                              .text = m->text});
}

/* --- deciding --------------------------------------------------------------------------- */

void sb_vendor_set_fate(struct sb_req *r, enum sb_reason reason, enum sb_act act, int status)
{
    r->reason = reason;
    r->act = act;
    r->status = status;
}

bool sb_ends_with(const char *s, const char *tail)
{
    size_t a = strlen(s);
    size_t b = strlen(tail);

    return b > 0 && a >= b && memcmp(s + a - b, tail, b) == 0;
}

/* Faults of the message itself show only where the vendor got to look at it. */
static bool refuse_message(struct sb_req *r, const struct sb_message *m, bool well_formed,
                           int noted)
{
    if (!well_formed)
        sb_vendor_set_fate(r, SB_INVALID, SB_ACT_ANSWER, 400);
    else if (sb_ends_with(m->to, r->sb->knobs.reject_last))
        sb_vendor_set_fate(r, SB_REJECTED, SB_ACT_ANSWER, 400);
    else if (noted < 0)
        sb_vendor_set_fate(r, SB_FULL, SB_ACT_ANSWER, 507);
    else
        return false;
    return true;
}

/* Decides and, where the message is taken, delivers. True when the action has to wait for
 * the sampled latency. */
static bool decide(struct sb_req *r, uint64_t number, const struct sb_now *now,
                   const struct sb_message *m, struct sb_key key)
{
    struct sandbox *sb = r->sb;
    struct sb_entry *e = NULL;
    bool well_formed = m->to && sb_to_is_fine(m->to) && m->text && sb_key_is_fine(&key);
    int noted = 0;
    const struct sb_case c = {
        .number = number,
        .elapsed_s = now->elapsed_s,
        .reused = r->link->served > 1,
        .over_rate =
            sb->knobs.rate > 0 && sb_meter_rate(&sb->admitted, now->mono_ms) >= sb->knobs.rate,
    };

    if (well_formed)
        noted = sb_ledger_note(sb->ledger,
                               &(struct sb_request){.key = key.text,
                                                    .key_len = key.len,
                                                    .to = m->to,
                                                    .lane = m->lane,
                                                    .body_hash = sb_hash(r->body, r->len)},
                               &e);
    const struct sb_fate fate = sb_knobs_decide(&sb->knobs, &c);
    sb_vendor_set_fate(r, fate.reason, fate.act, fate.status);
    if (fate.reason != SB_THROTTLED && fate.reason != SB_OUTAGE && fate.reason != SB_STATUS_ALL)
        sb_meter_add(&sb->admitted, now->mono_ms);
    if (fate.take && refuse_message(r, m, well_formed, noted))
        return false;
    if (fate.take)
        deliver(r, e, m, now);
    if (sb->waits)
        sb_wait_check(sb, e);
    return fate.delayed;
}

void sb_vendor_log(const struct sb_req *r, uint64_t number, const struct sb_now *now,
                   struct sb_key key)
{
    static const char *const acts[] = {"", "hang", "reset", "close"};
    bool shown = sb_key_is_fine(&key);

    if (!r->sb->log)
        return;
    fprintf(r->sb->log, "%" PRId64 "\t%" PRIu64 "\t%.*s\t%016" PRIx64 "\t%s\t", now->wall_us / 1000,
            number, shown ? (int)key.len : 1, shown ? key.text : "-", sb_hash(r->body, r->len),
            sb_reason_name(r->reason));
    if (r->act == SB_ACT_ANSWER)
        fprintf(r->sb->log, "%d\n", r->reply ? r->reply->status : r->status);
    else
        fprintf(r->sb->log, "%s\n", acts[r->act]);
}

/* --- answering -------------------------------------------------------------------------- */

static const char *error_text(const struct sb_req *r)
{
    switch (r->reason) {
    case SB_INVALID:
        return "invalid_request";
    case SB_REJECTED:
        return "invalid_number";
    case SB_FULL:
        return "sandbox_full";
    case SB_THROTTLED:
        return "too_many_requests";
    case SB_OUTAGE:
        return "unavailable";
    default:
        return r->status < 500 ? "refused" : "internal";
    }
}

static enum MHD_Result answer(struct sb_req *r)
{
    struct sandbox *sb = r->sb;
    char body[SB_VENDOR_ID_MAX + 64];
    char id[SB_VENDOR_ID_MAX];
    int len;

    if (r->reply) {
        if (r->counted)
            sb->stats.answered[r->reply->status % SB_STATUS_MAX]++;
        return sb_req_reply(r);
    }
    if (r->reason == SB_ACCEPTED || r->reason == SB_REPLAYED) {
        sb_vendor_id(sb, r->vendor_no, id);
        len = snprintf(body, sizeof(body), "{\"id\":\"%s\",\"status\":\"accepted\"}", id);
    } else {
        len = snprintf(body, sizeof(body), "{\"error\":\"%s\"}", error_text(r));
    }
    sb->stats.answered[r->status]++;
    return sb_req_answer(r, r->status, body, (size_t)len, NULL);
}

enum MHD_Result sb_vendor_act(struct sb_req *r)
{
    struct sb_stats *s = &r->sb->stats;

    switch (r->act) {
    case SB_ACT_ANSWER:
        return answer(r);
    case SB_ACT_RESET:
        s->reset++;
        sb_req_reset(r);
        return MHD_NO;
    case SB_ACT_HANG:
        s->hung++;
        r->act = SB_ACT_CLOSE;
        return sb_req_sleep(r, sb_mono_ms() + llround(r->sb->knobs.hang_s * 1000.0), true);
    case SB_ACT_CLOSE:
        break;
    }
    s->closed++;
    return MHD_NO;
}

double sb_vendor_clocks(struct sb_now *now, const struct sandbox *sb)
{
    double exact_ms = sb_mono_exact_ms();

    now->mono_ms = (int64_t)exact_ms;
    now->wall_us = sb_wall_us();
    now->elapsed_s = (exact_ms - (double)sb->start_ms) / 1000.0;
    return exact_ms;
}

void sb_vendor_arrive(struct sb_req *r, int64_t mono_ms)
{
    struct sb_stats *s = &r->sb->stats;

    s->requests++;
    s->bytes += r->len;
    s->in_air++;
    r->counted = true;
    if (s->in_air > s->max_in_air)
        s->max_in_air = s->in_air;
    sb_meter_add(&r->sb->arrivals, mono_ms);
}

enum MHD_Result sb_vendor_serve(struct sb_req *r)
{
    struct sandbox *sb = r->sb;
    struct sb_message m;
    struct sb_now now;
    char made[SB_KEY_MAX];

    if (r->woken)
        return sb_vendor_act(r);
    double exact_ms = sb_vendor_clocks(&now, sb);
    sb_vendor_arrive(r, now.mono_ms);
    uint64_t number = sb->stats.requests;
    sb_message_parse(r->body, r->len,
                     MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Content-Type"), &m);
    struct sb_key key = choose_key(r, &m, number, made);
    bool wait = decide(r, number, &now, &m, key);
    sb->stats.by_reason[r->reason]++;
    sb_vendor_log(r, number, &now, key);
    sb_message_done(&m);
    double latency = wait ? sb_knobs_latency(&sb->knobs, number, now.elapsed_s) : 0;
    if (latency <= 0 || r->act == SB_ACT_HANG)
        return sb_vendor_act(r);
    return sb_req_sleep(r, (int64_t)ceil(exact_ms + latency), false);
}

void sb_vendor_done(struct sb_req *r)
{
    if (r->counted)
        r->sb->stats.in_air--;
    if (!r->complete)
        r->sb->stats.incomplete++;
}
