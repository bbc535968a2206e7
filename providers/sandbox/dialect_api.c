#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/sandbox/api.h"
#include "providers/sandbox/mix.h"
#include "providers/sandbox/world.h"

#define BATCH_MAX 1000u

static const char *const state_names[] = {
    [SB_ST_QUEUED] = "queued",       [SB_ST_SENT] = "sent",
    [SB_ST_DELIVERED] = "delivered", [SB_ST_UNDELIVERED] = "undelivered",
    [SB_ST_EXPIRED] = "expired",     [SB_ST_REJECTED] = "rejected",
};

const char *sb_state_name(enum sb_state state)
{
    return state_names[state];
}

/* --- GET /api/messages ------------------------------------------------------------------ */

static json_t *message_json(const struct sb_msg *m)
{
    json_t *ids = json_array();

    for (size_t i = 0; i < m->ids_n; i++)
        json_array_append_new(ids, json_string(m->ids[i]));
    json_t *o = json_pack("{s:I, s:o, s:s, s:s, s:s?, s:s?, s:s?, s:s?, s:I, s:i, s:s, s:I, s:I}",
                          "no", (json_int_t)m->no, "ids", ids, "to", m->to, "text", m->text, "from",
                          m->from, "key", m->key, "ref", m->ref, "callback", m->callback,
                          "validity_ms", (json_int_t)m->validity_ms, "parts", (int)m->parts,
                          "state", sb_state_name(m->state), "taken_ms", (json_int_t)m->taken_ms,
                          "changed_ms", (json_int_t)m->changed_ms);
    if (o && m->extra)
        json_object_set(o, "extra", (json_t *)(uintptr_t)m->extra);
    return o;
}

/* Newest first. */
enum MHD_Result sb_messages_serve(struct sb_req *r)
{
    const struct sb_world *w = r->sb->world;
    const char *limit_text = sb_query(r, "limit");
    const char *to = sb_query(r, "to");
    uint64_t limit = 1000;
    json_t *list = json_array();

    if (limit_text && !sb_parse_u64(limit_text, &limit)) {
        json_decref(list);
        return sb_answer_error(r, 400, "limit must be a number");
    }
    const struct sb_msg *last = sb_store_latest(w->store);
    for (uint64_t no = last ? last->no : 0; no > 0 && json_array_size(list) < limit; no--) {
        const struct sb_msg *m = sb_store_at(w->store, no);
        if (!m)
            break;
        if (!to || sb_same_number(to, m->to))
            json_array_append_new(list, message_json(m));
    }
    return sb_answer_json(r, 200, json_pack("{s:o}", "messages", list));
}

/* --- shots: one call for a test, and what the customer said ----------------------------- */

static const char *text_of(const json_t *o, const char *name, const char *fallback)
{
    const char *s = json_string_value(json_object_get(o, name));

    return s ? s : fallback;
}

static bool read_forge(const json_t *o, enum sb_forge *ret)
{
    static const char *const names[] = {"genuine", "forged", "unsigned"};
    const char *s = text_of(o, "sign", "genuine");

    for (int i = 0; i < 3; i++) {
        if (strcmp(s, names[i]) == 0) {
            *ret = (enum sb_forge)i;
            return true;
        }
    }
    return false;
}

static enum MHD_Result shot_answer(struct sb_req *r)
{
    const struct sb_shot *shot = r->data;
    json_t *body = shot->body ? json_string(shot->body) : NULL; /* NULL: not UTF-8 */

    return sb_answer_json(
        r, 200,
        json_pack("{s:i, s:o*}", "status", shot->status, "body", body ? body : json_string("")));
}

/* Sends what was worded; the request sleeps until the customer has answered. */
static enum MHD_Result shoot(struct sb_req *r, const struct sb_out *out)
{
    struct sb_shot *shot = calloc(1, sizeof(*shot));

    if (!shot)
        return MHD_NO;
    shot->req = r;
    r->data = shot;
    if (sb_receipts_shoot(r->sb->world->receipts, out, shot) < 0)
        return sb_answer_error(r, 409, "could not be sent: is there a callback URL?");
    return sb_req_sleep(r, sb_mono_ms() + 60000, true);
}

void sb_shot_done(struct sb_req *r)
{
    struct sb_shot *shot = r->data;

    if (!shot)
        return;
    sb_receipts_unshoot(r->sb->world->receipts, shot);
    free(shot->body);
    free(shot);
    r->data = NULL;
}

static const char *first_text(const char *a, const char *b, const char *c)
{
    if (a && *a)
        return a;
    return b && *b ? b : c;
}

/* --- POST /api/receipt ------------------------------------------------------------------ */

struct batch {
    struct sb_receipt items[BATCH_MAX];
    size_t n;
    struct sb_msg made; /* for an id nobody knows */
    const char *made_id;
};

static bool read_state(const json_t *o, enum sb_state *ret)
{
    const char *s = text_of(o, "state", "delivered");

    for (size_t i = 0; i < sizeof(state_names) / sizeof(state_names[0]); i++) {
        if (strcmp(s, state_names[i]) == 0) {
            *ret = (enum sb_state)i;
            return true;
        }
    }
    return false;
}

static bool add_item(struct batch *b, const struct sb_world *w, const char *id, enum sb_state state)
{
    size_t part = 0;
    const struct sb_msg *m = sb_store_by_id(w->store, id, &part);

    if (!m || b->n >= BATCH_MAX)
        return false;
    b->items[b->n++] =
        (struct sb_receipt){.msg = m, .part = part, .state = state, .at_ms = sb_now_ms(w)};
    return true;
}

/* A receipt for a message that never was. */
static void add_unknown(struct batch *b, const struct sb_world *w, const json_t *o,
                        enum sb_state state)
{
    b->made_id = text_of(o, "id", "00000000-0000-4000-8000-000000000000");
    b->made = (struct sb_msg){.no = 1,
                              .to = text_of(o, "to", "+998900000000"),
                              .from = text_of(o, "from", "4546"),
                              .text = text_of(o, "text", "?"),
                              .key = text_of(o, "key", NULL),
                              .ref = text_of(o, "ref", NULL),
                              .callback = text_of(o, "url", NULL),
                              .ids = &b->made_id,
                              .ids_n = 1,
                              .parts = 1,
                              .taken_ms = sb_now_ms(w),
                              .changed_ms = sb_now_ms(w),
                              .state = state};
    b->items[b->n++] =
        (struct sb_receipt){.msg = &b->made, .state = state, .at_ms = b->made.taken_ms};
}

/* NULL, or what is wrong. */
static const char *read_batch(struct batch *b, const struct sb_world *w, const json_t *o,
                              enum sb_forge *ret_forge)
{
    const json_t *ids = json_object_get(o, "ids");
    const char *id = text_of(o, "id", NULL);
    const json_t *value = NULL;
    enum sb_state state = SB_ST_DELIVERED;
    size_t i = 0;

    if (!read_state(o, &state) || !read_forge(o, ret_forge))
        return "state or sign is none of the words";
    if (json_is_true(json_object_get(o, "unknown"))) {
        add_unknown(b, w, o, state);
        return NULL;
    }
    json_array_foreach (ids, i, value)
        if (!json_is_string(value) || !add_item(b, w, json_string_value(value), state))
            return "ids: no such message, or too many";
    if (id && !add_item(b, w, id, state))
        return "id: no such message";
    return b->n > 0 ? NULL : "give id or ids";
}

static enum MHD_Result send_batch(struct sb_req *r, const struct batch *b, const json_t *o,
                                  enum sb_forge forge)
{
    const struct sb_world *w = r->sb->world;
    struct sb_out out;
    enum MHD_Result result = MHD_NO;
    int rc = sb_out_init(&out, first_text(text_of(o, "url", NULL), b->items[0].msg->callback,
                                          sb_setting(w, "callback_url")));

    if (rc == 0)
        rc = w->d->receipt ? w->d->receipt(w, b->items, b->n, forge, &out) : -ENOTSUP;
    if (rc == -ENOTSUP)
        result = sb_answer_error(r, 409, "this vendor has no such receipt");
    else if (rc == 0)
        result = shoot(r, &out);
    sb_out_done(&out);
    return result;
}

enum MHD_Result sb_receipt_serve(struct sb_req *r)
{
    json_auto_t *o = NULL;
    struct batch *b = NULL;
    enum sb_forge forge = SB_GENUINE;

    if (r->woken)
        return shot_answer(r);
    o = json_loadb(r->body ? r->body : "", r->len, 0, NULL);
    b = calloc(1, sizeof(*b));
    if (!b)
        return MHD_NO;
    const char *wrong = read_batch(b, r->sb->world, o, &forge);
    enum MHD_Result result = wrong ? sb_answer_error(r, 400, wrong) : send_batch(r, b, o, forge);
    free(b);
    return result;
}

/* --- POST /api/inbound ------------------------------------------------------------------ */

enum MHD_Result sb_inbound_serve(struct sb_req *r)
{
    const struct sb_world *w = r->sb->world;
    enum sb_forge forge = SB_GENUINE;
    char id[SB_ID_SIZE];
    struct sb_out out;

    if (r->woken)
        return shot_answer(r);
    json_auto_t *o = json_loadb(r->body ? r->body : "", r->len, 0, NULL);
    struct sb_msg like = {.no = sb_mix(r->sb->instance ^ (uint64_t)sb_wall_us())};
    sb_id_hex(w, &like, 0, "", 32, id);
    const struct sb_inbound in = {.from = text_of(o, "from", NULL),
                                  .to = text_of(o, "to", "4546"),
                                  .text = text_of(o, "text", NULL),
                                  .id = id};
    if (!in.from || !in.text || !read_forge(o, &forge))
        return sb_answer_error(r, 400, "give from, to, text; sign is genuine, forged or unsigned");
    if (!w->d->inbound)
        return sb_answer_error(r, 409, "this vendor has no inbound messages");
    if (sb_out_init(&out, first_text(text_of(o, "url", NULL), sb_setting(w, "inbound_url"),
                                     sb_setting(w, "callback_url"))) < 0)
        return MHD_NO;
    int rc = w->d->inbound(w, &in, forge, &out);
    enum MHD_Result result = rc < 0 ? MHD_NO : shoot(r, &out);
    sb_out_done(&out);
    return result;
}
