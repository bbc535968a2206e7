/* Vonage's Reports API, records by id or by a window of at most a day. Facts: Vonage's OpenAPI
 * file of reports and its guide to pages. */
#include "providers/sandbox/dialects/vonage_reports.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/form.h"
#include "providers/kit/when.h"

#define DAY_MS INT64_C(86400000)

int sb_vonage_problem(struct sb_reply *reply, int status, const char *api, const char *code,
                      const char *title, const char *detail)
{
    json_t *type = json_sprintf("https://developer.vonage.com/api-errors%s#%s", api, code);

    return sb_reply_json(reply, status,
                         json_pack("{s:o, s:s, s:s, s:s}", "type", type, "title", title, "detail",
                                   detail, "instance", "bf0ca0bf927b3b52e3cb03217e1a1ddf"));
}

bool sb_vonage_is_number(const char *text)
{
    size_t len = text ? strlen(text) : 0;

    return len >= 7 && len <= 15 && strspn(text, "0123456789") == len;
}

bool sb_vonage_is_sender(const char *text)
{
    size_t len = text ? strlen(text) : 0;

    if (len == 0)
        return false;
    return strspn(text, "0123456789") == len ? len <= 15 : len <= 11 && *text != '+';
}

/* ---- records -------------------------------------------------------------------------------- */

static json_t *date_json(int64_t ms)
{
    char buf[WHEN_SIZE];

    return json_sprintf("%.10sT%.8s+0000", when_local(ms, 0, buf), buf + 11);
}

static json_t *record_json(const struct sb_call *c, const struct sb_msg *m, size_t part,
                           const struct sb_vonage_product *product)
{
    const char *with = sb_call_query(c, "include_message");

    return json_pack("{s:s, s:s, s:s?, s:s, s:s?, s:s, s:s*, s:o, s:o, s:s, s:s, s:s, s:s}",
                     "account_id", sb_setting(c->world, "api_key"), "message_id", m->ids[part],
                     "client_ref", m->ref, "direction", "outbound", "from", m->from, "to", m->to,
                     "message_body", with && strcmp(with, "true") == 0 ? m->text : NULL,
                     "date_received", date_json(m->taken_ms), "date_finalized",
                     date_json(m->changed_ms), "status", product->status(m->state), "error_code",
                     "0", "currency", "EUR", "total_price", "0.0333");
}

static void add_records(const struct sb_call *c, const struct sb_msg *m,
                        const struct sb_vonage_product *product, json_t *records)
{
    for (size_t part = 0; part < m->ids_n; part++)
        json_array_append_new(records, record_json(c, m, part, product));
}

/* ---- requests ------------------------------------------------------------------------------- */

static int invalid(struct sb_reply *reply, const char *detail)
{
    return sb_vonage_problem(reply, 422, "/reports", "invalid-request-parameters",
                             "Invalid request parameter", detail);
}

static bool is(const struct sb_call *c, const char *name, const char *wanted)
{
    const char *value = sb_call_query(c, name);

    return value && strcmp(value, wanted) == 0;
}

/* The begin and end of the window; false: not both, or not in order, or longer than a day. */
static bool window_of(const struct sb_call *c, struct sb_filter *f)
{
    return when_parse(sb_call_query(c, "date_start"), 0, &f->from_ms) &&
           when_parse(sb_call_query(c, "date_end"), 0, &f->to_ms) && f->to_ms > f->from_ms &&
           f->to_ms - f->from_ms <= DAY_MS;
}

static json_t *links(const struct sb_call *c, const char *cursor)
{
    struct form f = {0};
    json_t *result;

    form_raw(&f, "https://api.nexmo.com/v2/reports/records?");
    for (size_t i = 0; i < c->query_n; i++)
        if (strcmp(c->query[i].name, "cursor") != 0 && strcmp(c->query[i].name, "iv") != 0)
            form_add(&f, c->query[i].name, c->query[i].value);
    form_add(&f, "cursor", cursor);
    form_add(&f, "iv", "QnJtvajk5bH0wMX");
    result = json_pack("{s:{s:s}}", "next", "href", f.error ? "" : f.text);
    form_done(&f);
    return result;
}

static int answer(struct sb_call *c, json_t *records, const char *cursor,
                  const struct sb_vonage_product *product, struct sb_reply *reply)
{
    json_t *body = json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:o}", "request_id", "aaaaaaaa-bbbb-cccc-dddd-0123456789ab",
        "request_status", cursor ? "TRUNCATED" : "SUCCESS", "product", product->name, "direction",
        "outbound", "items_count", (json_int_t)json_array_size(records), "records", records);

    if (body && cursor) {
        json_object_set_new(body, "cursor", json_string(cursor));
        json_object_set_new(body, "iv", json_string("QnJtvajk5bH0wMX"));
        json_object_set_new(body, "_links", links(c, cursor));
    }
    return sb_reply_json(reply, 200, body);
}

static int by_window(struct sb_call *c, const struct sb_vonage_product *product,
                     struct sb_reply *reply)
{
    size_t size = strtoul(sb_setting(c->world, "page_size"), NULL, 10);
    const char *cursor = sb_call_query(c, "cursor"), *next = NULL;
    const struct sb_msg *m = NULL;
    struct sb_filter f = {0};
    json_t *records;

    if (!window_of(c, &f))
        return invalid(reply, "date_start and date_end, at most 24 hours apart");
    if (cursor && (!is(c, "iv", "QnJtvajk5bH0wMX") || !(m = sb_msg_by_id(c->world, cursor, NULL))))
        return invalid(reply, "cursor and iv");
    records = json_array();
    while ((m = sb_msg_next(c->world, &f, m))) {
        add_records(c, m, product, records);
        if (json_array_size(records) >= size) {
            next = sb_msg_next(c->world, &f, m) ? m->ids[0] : NULL;
            break;
        }
    }
    return answer(c, records, next, product, reply);
}

static int by_id(struct sb_call *c, const char *id, const struct sb_vonage_product *product,
                 struct sb_reply *reply)
{
    size_t part = 0;
    const struct sb_msg *m = sb_msg_by_id(c->world, id, &part);
    json_t *records = json_array();

    if (m)
        json_array_append_new(records, record_json(c, m, part, product));
    return answer(c, records, NULL, product, reply);
}

int sb_vonage_reports(struct sb_call *c, struct sb_reply *reply,
                      const struct sb_vonage_product *product)
{
    const char *key = sb_setting(c->world, "api_key"), *id = sb_call_query(c, "id");

    if (!sb_call_basic(c, key, sb_setting(c->world, "api_secret")))
        return sb_vonage_problem(reply, 401, "", "unauthorized", "Unauthorized",
                                 "You did not provide correct credentials.");
    if (!is(c, "account_id", key))
        return sb_vonage_problem(reply, 403, "", "forbidden", "Forbidden",
                                 "User not authorized to query the requested data.");
    if (!is(c, "product", product->name) || !is(c, "direction", "outbound"))
        return invalid(reply, "product and direction");
    if (id && (sb_call_query(c, "date_start") || sb_call_query(c, "date_end")))
        return invalid(reply, "id with date_start or date_end");
    return id ? by_id(c, id, product, reply) : by_window(c, product, reply);
}
