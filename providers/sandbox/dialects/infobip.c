/* Infobip SMS 3: JSON in and out, rejections inside a 200. A client's messageId is the message's
 * id; a repeat is refused with status 23. Facts: Infobip's OpenAPI file and table of statuses. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/form.h"
#include "providers/kit/when.h"
#include "providers/sandbox/dialect.h"

enum { ID_MAX = 200, DATA_MAX = 4000, TEXT_MAX = 4000, BATCH_MAX = 100, LOGS_MAX = 1000 };
#define TWO_DAYS_MS (INT64_C(48) * 3600 * 1000)

static const struct sb_setting settings[] = {
    {"api_key", "sandbox-key", "Authorization: App …"},
    {NULL, NULL, NULL},
};

/* ---- words ---------------------------------------------------------------------------------- */

struct status {
    int group, id;
    const char *name, *words;
};

static json_t *status_json(const struct status *s)
{
    static const char *const groups[] = {"",          "PENDING", "UNDELIVERABLE",
                                         "DELIVERED", "EXPIRED", "REJECTED"};

    return json_pack("{s:i, s:s, s:i, s:s, s:s}", "groupId", s->group, "groupName",
                     groups[s->group], "id", s->id, "name", s->name, "description", s->words);
}

static const struct status *status_of(enum sb_state state)
{
    static const struct status statuses[] = {
        [SB_ST_QUEUED] = {1, 7, "PENDING_ENROUTE", "Message sent to next instance"},
        [SB_ST_SENT] = {3, 2, "DELIVERED_TO_OPERATOR", "Message delivered to operator"},
        [SB_ST_DELIVERED] = {3, 5, "DELIVERED_TO_HANDSET", "Message delivered to handset"},
        [SB_ST_UNDELIVERED] = {2, 9, "UNDELIVERABLE_NOT_DELIVERED", "Message sent not delivered"},
        [SB_ST_EXPIRED] = {4, 15, "EXPIRED_EXPIRED", "Message expired"},
        [SB_ST_REJECTED] = {5, 10, "REJECTED_DND", "Destination registered in DND"},
    };

    return &statuses[state];
}

static json_t *error_json(enum sb_state state)
{
    if (state == SB_ST_UNDELIVERED)
        return json_pack("{s:i, s:s, s:i, s:s, s:s, s:b}", "groupId", 1, "groupName",
                         "HANDSET_ERRORS", "id", 27, "name", "EC_ABSENT_SUBSCRIBER", "description",
                         "Absent Subscriber", "permanent", 0);
    return json_pack("{s:i, s:s, s:i, s:s, s:s, s:b}", "groupId", 0, "groupName", "OK", "id", 0,
                     "name", "NO_ERROR", "description", "No Error", "permanent", 0);
}

static int problem(struct sb_reply *reply, int status, const char *words, const char *property)
{
    json_t *violations = json_array();
    json_t *code = json_sprintf("E%d", status);

    if (property)
        json_array_append_new(violations,
                              json_pack("{s:s, s:s}", "property", property, "violation", words));
    return sb_reply_json(reply, status,
                         json_pack("{s:o, s:s, s:s, s:o, s:[]}", "errorCode", code, "description",
                                   words, "action", "Check the request", "violations", violations,
                                   "resources"));
}

static int refuse_read(struct sb_reply *reply, int status, const char *words, const char *property)
{
    int r = problem(reply, status, words, property);

    return r < 0 ? r : -EINVAL;
}

/* The answer to a request that was understood: 200, whatever became of the message. */
static int result(struct sb_reply *reply, const char *id, const char *to,
                  const struct status *status, unsigned parts)
{
    return sb_reply_json(reply, 200,
                         json_pack("{s:s, s:[{s:s, s:s, s:o, s:{s:i}}]}", "bulkId",
                                   "2034072219640523072", "messages", "messageId", id,
                                   "destination", to, "status", status_json(status), "details",
                                   "messageCount", (int)parts));
}

/* ---- requests ------------------------------------------------------------------------------- */

static bool knows_key(const struct sb_call *c)
{
    const char *key = sb_call_bearer(c, "App");

    return key && strcmp(key, sb_setting(c->world, "api_key")) == 0;
}

static const char *text_at(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* Digits, 7 to 15; a leading + is taken off. */
static bool is_number(const char *text)
{
    size_t len = strlen(text);

    return len >= 7 && len <= 15 && strspn(text, "0123456789") == len;
}

static bool is_sender(const char *text)
{
    size_t len = strlen(text), digits = strspn(text, "0123456789");

    return digits == len ? len >= 3 && len <= 15 : len <= 11;
}

/* {"amount":5,"timeUnit":"MINUTES"}; more than 48 h becomes 48 h. -1: none of these. */
static int64_t validity(const json_t *period)
{
    static const struct {
        const char *unit;
        int64_t ms;
    } units[] = {{"SECONDS", 1000}, {"MINUTES", 60000}, {"HOURS", 3600000}, {"DAYS", 86400000}};
    const char *unit = text_at(period, "timeUnit");
    json_int_t amount = json_integer_value(json_object_get(period, "amount"));

    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
        if (strcmp(unit ? unit : "MINUTES", units[i].unit) == 0 && amount > 0)
            return amount < TWO_DAYS_MS / units[i].ms ? amount * units[i].ms : TWO_DAYS_MS;
    return -1;
}

static int read_options(struct sb_send *s, const json_t *message, struct sb_reply *reply)
{
    const json_t *hooks = json_object_get(message, "webhooks");
    const json_t *delivery = json_object_get(hooks, "delivery");
    const json_t *period = json_object_get(json_object_get(message, "options"), "validityPeriod");

    s->ref = text_at(hooks, "callbackData");
    s->callback = text_at(delivery, "url");
    s->validity_ms = period ? validity(period) : 0;
    if (s->ref && strlen(s->ref) > DATA_MAX)
        return refuse_read(reply, 400, "size must be between 0 and 4000",
                           "messages[0].webhooks.callbackData");
    if (s->callback && strncmp(s->callback, "http://", 7) != 0 &&
        strncmp(s->callback, "https://", 8) != 0)
        return refuse_read(reply, 400, "must be a valid URL", "messages[0].webhooks.delivery.url");
    if (s->validity_ms < 0)
        return refuse_read(reply, 400, "must be positive", "messages[0].options.validityPeriod");
    s->no_receipt = delivery && json_is_false(json_object_get(delivery, "notify"));
    return 0;
}

static int read_message(struct sb_send *s, const json_t *message, struct sb_reply *reply)
{
    static const struct status bad_number = {5, 52, "REJECTED_INVALID_DESTINATION",
                                             "Invalid number"};
    static const struct status bad_sender = {5, 11, "REJECTED_SOURCE", "Invalid Source address"};
    static const struct status too_long = {5, 25, "REJECTED_MESSAGE_TOO_LONG", "Message too long"};
    const json_t *destination = json_array_get(json_object_get(message, "destinations"), 0);
    const struct status *bad = NULL;
    int r;

    s->to = text_at(destination, "to");
    s->key = text_at(destination, "messageId");
    s->from = text_at(message, "sender");
    s->text = text_at(json_object_get(message, "content"), "text");
    if (!s->to || !*s->to)
        return refuse_read(reply, 400, "must not be blank", "messages[0].destinations[0].to");
    if (!s->text || !*s->text)
        return refuse_read(reply, 400, "must not be blank", "messages[0].content.text");
    if (!s->from || !*s->from)
        return refuse_read(reply, 400, "must not be blank", "messages[0].sender");
    if (s->key && strlen(s->key) > ID_MAX)
        return refuse_read(reply, 400, "size must be between 0 and 200",
                           "messages[0].destinations[0].messageId");
    s->to += *s->to == '+';
    if (!is_number(s->to))
        bad = &bad_number;
    else if (!is_sender(s->from))
        bad = &bad_sender;
    else if (strlen(s->text) > (size_t)TEXT_MAX * 4)
        bad = &too_long;
    if (!bad)
        return read_options(s, message, reply);
    r = result(reply, s->key ? s->key : "1", s->to, bad, 1);
    return r < 0 ? r : -EINVAL;
}

static int ib_read(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    const json_t *messages = json_object_get(c->json, "messages");
    const json_t *message = json_array_get(messages, 0);

    if (!knows_key(c))
        return refuse_read(reply, 401, "Unauthorized", NULL);
    if (!sb_call_type(c, "application/json") || !json_is_object(c->json))
        return refuse_read(reply, 400, "The request cannot be read", NULL);
    if (json_array_size(messages) != 1 ||
        json_array_size(json_object_get(message, "destinations")) != 1)
        return refuse_read(reply, 400, "the sandbox takes one message to one destination",
                           "messages");
    return read_message(s, message, reply);
}

static int ib_accept(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m,
                     bool replay, struct sb_reply *reply)
{
    static const struct status accepted = {1, 26, "PENDING_ACCEPTED",
                                           "Message accepted, pending for delivery."};

    (void)c;
    (void)s;
    (void)replay;
    return result(reply, m->ids[0], m->to, &accepted, m->parts);
}

static int ib_refuse(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                     const struct sb_msg *known, struct sb_reply *reply)
{
    static const struct status statuses[SB_REFUSALS_] = {
        [SB_REFUSE_NUMBER] = {5, 8, "REJECTED_PREFIX_MISSING", "Number prefix missing"},
        [SB_REFUSE_OPT_OUT] = {5, 14, "REJECTED_DESTINATION", "Destination block-listed"},
        [SB_REFUSE_LATER] = {5, 21, "REJECTED_SYSTEM_ERROR", "System error, please retry"},
        [SB_REFUSE_ACCOUNT] = {5, 12, "REJECTED_NOT_ENOUGH_CREDITS", "Not enough credits"},
        [SB_REFUSE_DUPLICATE] = {5, 23, "REJECTED_DUPLICATE_MESSAGE_ID", "Duplicate message ID"},
    };

    (void)c;
    (void)known;
    if (why == SB_REFUSE_THROTTLED)
        return problem(reply, 429, "Too many requests", NULL);
    if (why == SB_REFUSE_ERROR)
        return problem(reply, sb_reply_status(reply), "Something went wrong", NULL);
    if (why >= SB_REFUSALS_ || !statuses[why].group)
        return -ENOTSUP;
    return result(reply, s && s->key ? s->key : "1", s ? s->to : "", &statuses[why], 1);
}

/* The client's own, or one of the vendor's. */
static void make_id(const struct sb_world *w, const struct sb_msg *m, size_t part,
                    char buf[SB_ID_SIZE])
{
    if (!m->key || strlen(m->key) >= SB_ID_SIZE)
        sb_id_digits(w, m, part, 19, buf);
    else
        memcpy(buf, m->key, strlen(m->key) + 1);
}

/* ---- look-up -------------------------------------------------------------------------------- */

/* "2026-11-30T22:30:00.000+0000" */
static json_t *time_json(int64_t ms)
{
    char buf[WHEN_SIZE];

    return json_sprintf("%.10sT%.8s.%03d+0000", when_local(ms, 0, buf), buf + 11, (int)(ms % 1000));
}

static json_t *log_json(const struct sb_msg *m)
{
    return json_pack("{s:s?, s:s, s:s, s:o, s:o, s:i, s:{s:f, s:s}, s:o, s:o, s:{s:s}}", "sender",
                     m->from, "destination", m->to, "messageId", m->ids[0], "sentAt",
                     time_json(m->taken_ms), "doneAt", time_json(m->changed_ms), "messageCount",
                     (int)m->parts, "price", "pricePerMessage", 0.01, "currency", "EUR", "status",
                     status_json(status_of(m->state)), "error", error_json(m->state), "content",
                     "text", m->text);
}

/* Whether the comma-separated list names this id. */
static bool listed(const char *list, const char *id)
{
    size_t len = strlen(id);

    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (strcspn(list, ",") == len && strncmp(list, id, len) == 0)
            return true;
    return false;
}

static int serve_logs(struct sb_call *c, struct sb_reply *reply)
{
    const char *ids = sb_call_query(c, "messageId");
    const struct sb_filter f = {.to = sb_call_query(c, "destination"),
                                .key = ids && !strchr(ids, ',') ? ids : NULL,
                                .from_ms = sb_now_ms(c->world) - TWO_DAYS_MS};
    const struct sb_msg *m = NULL;
    json_t *results;

    if (!knows_key(c))
        return problem(reply, 401, "Unauthorized", NULL);
    results = json_array();
    while ((m = sb_msg_next(c->world, &f, m)) && json_array_size(results) < LOGS_MAX)
        if (!ids || listed(ids, m->ids[0]))
            json_array_append_new(results, log_json(m));
    return sb_reply_json(reply, 200, json_pack("{s:o}", "results", results));
}

/* ---- calls to the customer ------------------------------------------------------------------ */

static json_t *report_json(const struct sb_receipt *r)
{
    const struct sb_msg *m = r->msg;

    return json_pack("{s:s, s:s, s:s, s:s?, s:o, s:o, s:i, s:{s:f, s:s}, s:o, s:o, s:s*}", "bulkId",
                     "2034072219640523072", "messageId", m->ids[0], "to", m->to, "sender", m->from,
                     "sentAt", time_json(m->taken_ms), "doneAt", time_json(r->at_ms),
                     "messageCount", (int)m->parts, "price", "pricePerMessage", 0.01, "currency",
                     "EUR", "status", status_json(status_of(r->state)), "error",
                     error_json(r->state), "callbackData", m->ref);
}

static int ib_receipt(const struct sb_world *w, const struct sb_receipt *items, size_t n,
                      enum sb_forge forge, struct sb_out *out)
{
    json_t *results;
    int r;

    (void)w;
    (void)forge; /* nothing is signed */
    if (n > BATCH_MAX)
        return -ENOTSUP;
    r = sb_out_call(out, "POST", sb_out_target(out));
    if (r < 0)
        return r;
    results = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(results, report_json(&items[i]));
    return sb_out_json(out, json_pack("{s:o}", "results", results));
}

static int ib_inbound(const struct sb_world *w, const struct sb_inbound *m, enum sb_forge forge,
                      struct sb_out *out)
{
    int r = sb_out_call(out, "POST", sb_out_target(out));

    (void)forge;
    if (r < 0)
        return r;
    return sb_out_json(out,
                       json_pack("{s:[{s:s, s:s, s:s, s:s, s:s, s:o, s:i}], s:i, s:i}", "results",
                                 "messageId", m->id, "from", m->from, "to", m->to, "text", m->text,
                                 "cleanText", m->text, "receivedAt", time_json(sb_now_ms(w)),
                                 "smsCount", 1, "messageCount", 1, "pendingMessageCount", 0));
}

static const struct sb_dialect_route routes[] = {
    {"POST", "/sms/3/messages", NULL, false},
    {"GET", "/sms/3/logs", serve_logs, false},
    {NULL, NULL, NULL, false},
};

const struct sb_dialect sb_dialect_infobip = {
    .name = "infobip",
    .help = "SMS API 3; a repeated messageId is refused with status 23; look-up in the logs",
    .settings = settings,
    .routes = routes,
    .dedup = SB_DEDUP_REJECT,
    .read = ib_read,
    .accept = ib_accept,
    .refuse = ib_refuse,
    .make_id = make_id,
    .receipt = ib_receipt,
    .inbound = ib_inbound,
};
