#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "providers/sandbox/api.h"
#include "providers/sandbox/vendor.h"

#define LIST_DEFAULT  100u
#define LIST_MAX      10000u
#define NAMED_DEFAULT 1000u
#define NAMED_MAX     1000000u
#define CSV_BLOCK     65536u

/* --- entries ---------------------------------------------------------------------------- */

/* The text of the entry's latest delivery, where the inbox still has it. */
static const struct sb_text *text_of(const struct sandbox *sb, const struct sb_entry *e)
{
    const struct sb_text *t;

    for (size_t i = 0; (t = sb_inbox_at(sb->inbox, i)) != NULL; i++)
        if (t->vendor_no == e->vendor_no)
            return t;
    return NULL;
}

static json_t *entry_plain(const struct sandbox *sb, const struct sb_entry *e)
{
    char key[SB_KEY_MAX + 1];
    char to[SB_TO_MAX + 1];
    char id[SB_VENDOR_ID_MAX] = "";
    const char *lane = sb_ledger_lane(sb->ledger, e->lane);

    sb_entry_key(e, key);
    sb_entry_to(e, to);
    if (e->vendor_no > 0)
        sb_vendor_id(sb, e->vendor_no, id);
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:s, s:s, s:s}", "key", key, "deliveries",
                     (json_int_t)e->deliveries, "requests", (json_int_t)e->requests, "first_ms",
                     (json_int_t)e->first_ms, "last_ms", (json_int_t)sb_entry_last_ms(e), "lane",
                     lane ? lane : "", "to", to, "id", id);
}

json_t *sb_entry_json(const struct sandbox *sb, const struct sb_entry *e)
{
    json_t *o = entry_plain(sb, e);
    const struct sb_text *t = e->vendor_no > 0 ? text_of(sb, e) : NULL;

    if (o && t)
        json_object_set_new(o, "text", json_string(t->text));
    return o;
}

static bool query_u64(const struct sb_req *r, const char *name, uint64_t max, uint64_t *value)
{
    const char *s = sb_query(r, name);

    if (s && !sb_parse_u64(s, value))
        return false;
    if (*value > max)
        *value = max;
    return true;
}

enum MHD_Result sb_ledger_list_serve(struct sb_req *r)
{
    const struct sandbox *sb = r->sb;
    size_t count = sb_ledger_count(sb->ledger);
    uint64_t offset = 0;
    uint64_t limit = LIST_DEFAULT;

    if (!query_u64(r, "offset", count, &offset) || !query_u64(r, "limit", LIST_MAX, &limit))
        return sb_answer_error(r, 400, "offset and limit must be whole numbers");
    json_t *entries = json_array();
    for (size_t i = offset; i < count && i - offset < limit; i++)
        json_array_append_new(entries, entry_plain(sb, sb_ledger_at(sb->ledger, i)));
    return sb_answer_json(r, 200,
                          json_pack("{s:I, s:I, s:o}", "total", (json_int_t)count, "offset",
                                    (json_int_t)offset, "entries", entries));
}

enum MHD_Result sb_ledger_one_serve(struct sb_req *r)
{
    const struct sb_entry *e = sb_ledger_find(r->sb->ledger, r->tail, strlen(r->tail));

    if (!e)
        return sb_answer_error(r, 404, "no request had this key");
    return sb_answer_json(r, 200, sb_entry_json(r->sb, e));
}

/* --- CSV -------------------------------------------------------------------------------- */

struct csv { /* a download under way */
    const struct sandbox *sb;
    size_t next; /* entry */
    bool begun;
};

static size_t csv_line(const struct sandbox *sb, const struct sb_entry *e, char *buf, size_t max)
{
    char key[SB_KEY_MAX + 1];
    char to[SB_TO_MAX + 1];
    const char *lane = sb_ledger_lane(sb->ledger, e->lane);

    sb_entry_key(e, key);
    sb_entry_to(e, to);
    int n = snprintf(buf, max, "%s,%" PRIu32 ",%" PRIu32 ",%" PRId64 ",%" PRId64 ",%s,%s\n", key,
                     e->deliveries, e->requests, e->first_ms, sb_entry_last_ms(e), lane ? lane : "",
                     to);
    return n > 0 && (size_t)n < max ? (size_t)n : 0;
}

static ssize_t csv_read(void *cls, uint64_t pos, char *buf, size_t max)
{
    static const char head[] = "key,deliveries,requests,first_ms,last_ms,lane,to\n";
    struct csv *c = cls;
    size_t used = 0;

    (void)pos;
    if (!c->begun && max >= sizeof(head)) {
        memcpy(buf, head, sizeof(head) - 1);
        used = sizeof(head) - 1;
        c->begun = true;
    }
    while (c->next < sb_ledger_count(c->sb->ledger)) {
        size_t n = csv_line(c->sb, sb_ledger_at(c->sb->ledger, c->next), buf + used, max - used);
        if (n == 0)
            break;
        used += n;
        c->next++;
    }
    return used > 0 ? (ssize_t)used : MHD_CONTENT_READER_END_OF_STREAM;
}

enum MHD_Result sb_ledger_csv_serve(struct sb_req *r)
{
    struct csv *c = calloc(1, sizeof(*c));
    struct MHD_Response *response =
        c ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, CSV_BLOCK, csv_read, c, free)
          : NULL;

    if (!response) {
        free(c);
        return MHD_NO;
    }
    c->sb = r->sb;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/csv");
    enum MHD_Result rc = MHD_queue_response(r->conn, 200, response);
    MHD_destroy_response(response);
    return rc;
}

/* --- phones ----------------------------------------------------------------------------- */

static json_t *text_json(const struct sandbox *sb, const struct sb_text *t)
{
    char id[SB_VENDOR_ID_MAX];

    sb_vendor_id(sb, t->vendor_no, id);
    return json_pack("{s:I, s:s, s:s, s:s, s:s}", "at_ms", (json_int_t)t->at_ms, "id", id, "key",
                     t->key, "lane", t->lane, "text", t->text);
}

enum MHD_Result sb_phone_serve(struct sb_req *r)
{
    const struct sandbox *sb = r->sb;
    const struct sb_text *t;
    json_t *texts = json_array();

    for (size_t i = 0; (t = sb_inbox_at(sb->inbox, i)) != NULL; i++)
        if (sb_same_number(t->to, r->tail))
            json_array_append_new(texts, text_json(sb, t));
    return sb_answer_json(r, 200, json_pack("{s:s, s:o}", "to", r->tail, "texts", texts));
}

/* --- missing ---------------------------------------------------------------------------- */

struct missing { /* a question being read: keys, one a line */
    uint64_t limit, asked, missing, duplicated, delivered;
    json_t *missing_keys, *duplicate_keys;
    size_t len; /* of the line begun in the piece before */
    bool overlong;
    char line[SB_KEY_MAX + 1];
};

static void ask_key(struct sb_req *r, struct missing *q, const char *key, size_t len)
{
    bool again = false;

    if (len > 0 && key[len - 1] == '\r')
        len--;
    if (len == 0)
        return;
    uint32_t deliveries = sb_ledger_ask(r->sb->ledger, key, len, &again);
    if (again)
        return;
    q->asked++;
    q->delivered += deliveries > 0;
    if (deliveries == 0 && q->missing++ < q->limit)
        json_array_append_new(q->missing_keys, json_stringn(key, len));
    if (deliveries > 1 && q->duplicated++ < q->limit)
        json_array_append_new(q->duplicate_keys, json_pack("{s:s#, s:I}", "key", key, len,
                                                           "deliveries", (json_int_t)deliveries));
}

static void end_line(struct sb_req *r, struct missing *q)
{
    if (q->overlong) { /* no such key can exist */
        q->asked++;
        q->missing++;
    } else {
        ask_key(r, q, q->line, q->len);
    }
    q->len = 0;
    q->overlong = false;
}

static void keep_part(struct missing *q, const char *data, size_t len)
{
    if (len > SB_KEY_MAX - q->len) {
        q->overlong = true;
        return;
    }
    memcpy(q->line + q->len, data, len);
    q->len += len;
}

static struct missing *missing_of(struct sb_req *r)
{
    struct missing *q = r->data;

    if (q)
        return q;
    q = calloc(1, sizeof(*q));
    if (!q)
        return NULL;
    q->limit = NAMED_DEFAULT;
    q->missing_keys = json_array();
    q->duplicate_keys = json_array();
    r->data = q;
    query_u64(r, "limit", NAMED_MAX, &q->limit);
    sb_ledger_ask_begin(r->sb->ledger);
    return q;
}

int sb_missing_feed(struct sb_req *r, const char *data, size_t len)
{
    struct missing *q = missing_of(r);

    if (!q)
        return -1;
    while (len > 0) {
        const char *nl = memchr(data, '\n', len);
        size_t part = nl ? (size_t)(nl - data) : len;
        keep_part(q, data, part);
        if (!nl)
            break;
        end_line(r, q);
        data += part + 1;
        len -= part + 1;
    }
    return 0;
}

enum MHD_Result sb_missing_serve(struct sb_req *r)
{
    struct missing *q = missing_of(r);

    if (!q)
        return MHD_NO;
    end_line(r, q);
    /* keys that reached a phone although nobody asked for them */
    uint64_t keys = sb_ledger_totals(r->sb->ledger)->keys;
    uint64_t unexpected = keys > q->delivered ? keys - q->delivered : 0;
    return sb_answer_json(
        r, 200,
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:O, s:O}", "asked", (json_int_t)q->asked, "delivered",
                  (json_int_t)q->delivered, "missing", (json_int_t)q->missing, "duplicated",
                  (json_int_t)q->duplicated, "unexpected", (json_int_t)unexpected, "missing_keys",
                  q->missing_keys, "duplicate_keys", q->duplicate_keys));
}

void sb_missing_done(struct sb_req *r)
{
    struct missing *q = r->data;

    if (!q)
        return;
    json_decref(q->missing_keys);
    json_decref(q->duplicate_keys);
    free(q);
    r->data = NULL;
}
