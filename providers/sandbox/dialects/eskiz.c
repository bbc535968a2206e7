/* Eskiz.uz: log in for a 30-day JWT, send batches as JSON, find them in a list by time or by
 * dispatch. Errors are words. Written from the vendor's API page. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/when.h"
#include "providers/sandbox/dialect.h"

enum { UTC_OFFSET_MIN = 300, PAGE_MIN = 20, PAGE_MAX = 200 };

static const struct sb_setting settings[] = {
    {"email", "test@example.uz", "login"},
    {"password", "secret", "login"},
    {"nick", "", "the one sender the account may use; empty: any"},
    {NULL, NULL, NULL},
};

static int error(struct sb_reply *reply, int status, const char *words)
{
    return sb_reply_json(reply, status,
                         json_pack("{s:s, s:s}", "status", "error", "message", words));
}

static int field_error(struct sb_reply *reply, const char *field, const char *words)
{
    return sb_reply_json(reply, 422,
                         json_pack("{s:s, s:{s:[s]}}", "status", "error", "message", field, words));
}

/* ---- login ---------------------------------------------------------------------------------- */

static int grant(struct sb_call *c, struct sb_reply *reply)
{
    json_auto_t *claims = json_pack("{s:s, s:s}", "role", "user", "sub", "378");
    const char *token = claims ? sb_token_issue(c, claims, NULL) : NULL;

    if (!token)
        return -ENOMEM;
    return sb_reply_json(reply, 200,
                         json_pack("{s:s, s:{s:s}, s:s}", "message", "token_generated", "data",
                                   "token", token, "token_type", "bearer"));
}

static int serve_login(struct sb_call *c, struct sb_reply *reply)
{
    const char *email = sb_call_form(c, "email"), *password = sb_call_form(c, "password");

    if (!email || !password)
        return field_error(reply, email ? "password" : "email", "The field is required.");
    if (strcmp(email, sb_setting(c->world, "email")) != 0 ||
        strcmp(password, sb_setting(c->world, "password")) != 0)
        return error(reply, 401, "Неверный Email или пароль");
    return grant(c, reply);
}

/* True when the token is good; otherwise the refusal is worded. */
static bool knows(struct sb_call *c, struct sb_reply *reply, int *ret)
{
    if (sb_token_ok(c->world, sb_call_bearer(c, "Bearer")))
        return true;
    *ret = sb_reply_json(
        reply, 401, json_pack("{s:s, s:s}", "status", "token-invalid", "message", "Expired token"));
    return false;
}

static int serve_refresh(struct sb_call *c, struct sb_reply *reply)
{
    int r = 0;

    return knows(c, reply, &r) ? grant(c, reply) : r;
}

/* ---- sending -------------------------------------------------------------------------------- */

static bool is_batch(const struct sb_call *c)
{
    return strcmp(c->path, "/api/message/sms/send-batch") == 0;
}

static int read_batch(struct sb_call *c, struct sb_send *ret, struct sb_reply *reply)
{
    const json_t *list = json_object_get(c->json, "messages"), *one = json_array_get(list, 0);
    const json_t *to = json_object_get(one, "to");
    json_t *dispatch = json_object_get(c->json, "dispatch_id");

    if (!sb_call_type(c, "application/json") || !json_is_object(c->json))
        return field_error(reply, "messages", "The messages field is required.");
    if (json_array_size(list) != 1)
        return field_error(reply, "messages", "The sandbox takes a batch of one.");
    if (!json_is_integer(to))
        return field_error(reply, "messages.0.to", "The messages.0.to must be a number.");
    if (dispatch && !json_is_number(dispatch))
        return field_error(reply, "dispatch_id", "The dispatch_id must be a number.");
    ret->to = sb_call_printf(c, "%" JSON_INTEGER_FORMAT, json_integer_value(to));
    ret->text = json_string_value(json_object_get(one, "text"));
    ret->ref = json_string_value(json_object_get(one, "user_sms_id"));
    ret->from = json_string_value(json_object_get(c->json, "from"));
    ret->callback = json_string_value(json_object_get(c->json, "callback_url"));
    ret->extra =
        sb_call_keep(c, dispatch ? json_pack("{s:O}", "dispatch_id", dispatch) : json_object());
    return ret->to && ret->extra ? 0 : -ENOMEM;
}

static void read_single(struct sb_call *c, struct sb_send *ret)
{
    ret->to = sb_call_form(c, "mobile_phone");
    ret->text = sb_call_form(c, "message");
    ret->from = sb_call_form(c, "from");
    ret->callback = sb_call_form(c, "callback_url");
}

static bool is_number(const char *to)
{
    size_t len = strlen(to);

    return len >= 7 && len <= 15 && strspn(to, "0123456789") == len;
}

static int refuse_fields(struct sb_call *c, const struct sb_send *s, struct sb_reply *reply)
{
    const char *nick = sb_setting(c->world, "nick");

    if (!s->to || !is_number(s->to))
        return error(reply, 400, "Неверный номер телефона");
    if (!s->text || !*s->text)
        return field_error(reply, is_batch(c) ? "messages.0.text" : "message",
                           "The text field is required.");
    if (!s->from || !*s->from)
        return field_error(reply, "from", "The from field is required.");
    if (*nick && strcmp(nick, s->from) != 0)
        return error(reply, 400, "Никнейм не найден");
    return 1;
}

static int ez_read(struct sb_call *c, struct sb_send *ret, struct sb_reply *reply)
{
    int r = 0;

    if (!knows(c, reply, &r))
        return r < 0 ? r : -EINVAL;
    if (is_batch(c))
        r = read_batch(c, ret, reply);
    else
        read_single(c, ret);
    if (r < 0)
        return r;
    if (is_batch(c) && !ret->to) /* worded already */
        return -EINVAL;
    r = refuse_fields(c, ret, reply);
    return r == 1 ? 0 : r < 0 ? r : -EINVAL;
}

static int ez_accept(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m,
                     bool replay, struct sb_reply *reply)
{
    json_t *status = is_batch(c) ? json_pack("[s]", "waiting") : json_string("waiting");

    (void)s;
    (void)replay;
    return sb_reply_json(reply, 200,
                         json_pack("{s:s, s:s, s:o}", "id", m->ids[0], "message",
                                   "Waiting for SMS provider", "status", status));
}

static int ez_refuse(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                     const struct sb_msg *known, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)known;
    switch (why) {
    case SB_REFUSE_NUMBER:
        return error(reply, 400, "Абонент в чёрном списке");
    case SB_REFUSE_ACCOUNT:
        return error(reply, 400, "Недостаточно средств на балансе");
    case SB_REFUSE_ERROR:
        return error(reply, sb_reply_status(reply), "Server Error");
    default:
        return -ENOTSUP;
    }
}

/* ---- looking up ----------------------------------------------------------------------------- */

static const char *status_word(enum sb_state state)
{
    static const char *const words[] = {
        [SB_ST_QUEUED] = "NEW",          [SB_ST_SENT] = "ACCEPTED",
        [SB_ST_DELIVERED] = "DELIVERED", [SB_ST_UNDELIVERED] = "UNDELIVERABLE",
        [SB_ST_EXPIRED] = "EXPIRED",     [SB_ST_REJECTED] = "REJECTED",
    };

    return words[state];
}

/* Tashkent time that claims to be UTC, as in the vendor's own examples. */
static json_t *false_utc(int64_t unix_ms)
{
    char buf[WHEN_SIZE];

    (void)when_local(unix_ms, UTC_OFFSET_MIN, buf);
    return json_sprintf("%.10sT%sZ", buf, buf + 11);
}

static json_t *row_of(const struct sb_msg *m)
{
    json_t *dispatch = json_object_get(m->extra, "dispatch_id");
    const char *to = m->to + (*m->to == '+');

    return json_pack("{s:I, s:i, s:O?, s:s?, s:s, s:i, s:b, s:s?, s:s, s:s, s:i, s:s, s:o}", "id",
                     (json_int_t)m->no, "user_id", 378, "dispatch_id", dispatch, "user_sms_id",
                     m->ref, "request_id", m->ids[0], "price", 50, "is_ad", 0, "nick", m->from,
                     "to", to, "message", m->text, "parts_count", (int)m->parts, "status",
                     status_word(m->state), "sent_at", false_utc(m->taken_ms));
}

struct list {
    json_t *rows;
    int64_t page, size, total;
};

static int list_add(struct list *l, const struct sb_msg *m)
{
    int64_t at = l->total++;

    if (at < (l->page - 1) * l->size || at >= l->page * l->size)
        return 0;
    return json_array_append_new(l->rows, row_of(m)) < 0 ? -ENOMEM : 0;
}

static int64_t number_param(const char *text, int64_t otherwise)
{
    size_t len = text ? strlen(text) : 0;

    if (!text)
        return otherwise;
    if (len == 0 || len > 15 || strspn(text, "0123456789") != len)
        return -1;
    return strtoll(text, NULL, 10);
}

static int word_list(struct sb_call *c, const struct list *l, struct sb_reply *reply)
{
    int64_t last = l->total == 0 ? 1 : (l->total + l->size - 1) / l->size;
    json_t *next = l->page < last ? json_sprintf("https://notify.eskiz.uz%s?page=%" PRId64, c->path,
                                                 l->page + 1)
                                  : json_null();

    return sb_reply_json(reply, 200,
                         json_pack("{s:{s:I, s:s, s:o, s:I, s:I, s:I, s:O}, s:s}", "data",
                                   "current_page", (json_int_t)l->page, "path", c->path,
                                   "next_page_url", next, "per_page", (json_int_t)l->size,
                                   "last_page", (json_int_t)last, "total", (json_int_t)l->total,
                                   "result", l->rows, "status", "success"));
}

/* False when the request's page or size is none. */
static bool list_begin(struct sb_call *c, struct list *l)
{
    l->page = number_param(sb_call_query(c, "page"), 1);
    l->size = number_param(sb_call_form(c, "page_size"), PAGE_MIN);
    l->total = 0;
    return l->page >= 1 && l->size >= PAGE_MIN && l->size <= PAGE_MAX;
}

static int serve_list(struct sb_call *c, struct sb_reply *reply)
{
    const char *from = sb_call_form(c, "start_date"), *to = sb_call_form(c, "to_date");
    json_auto_t *rows = json_array();
    struct list l = {.rows = rows};
    struct sb_filter f = {0};
    int r = 0;

    if (!knows(c, reply, &r))
        return r;
    if (!list_begin(c, &l))
        return field_error(reply, "page_size", "The page_size must be between 20 and 200.");
    if (!from || !to || !when_parse(from, UTC_OFFSET_MIN, &f.from_ms) ||
        !when_parse(to, UTC_OFFSET_MIN, &f.to_ms))
        return field_error(reply, "start_date", "The date does not match Y-m-d H:i.");
    for (const struct sb_msg *m = NULL; r == 0 && (m = sb_msg_next(c->world, &f, m));)
        r = list_add(&l, m);
    return r < 0 ? r : word_list(c, &l, reply);
}

static int serve_dispatch(struct sb_call *c, struct sb_reply *reply)
{
    int64_t wanted = number_param(sb_call_form(c, "dispatch_id"), -1);
    json_auto_t *rows = json_array();
    struct list l = {.rows = rows};
    const struct sb_filter f = {0};
    int r = 0;

    if (!knows(c, reply, &r))
        return r;
    if (wanted < 0 || !list_begin(c, &l))
        return field_error(reply, "dispatch_id", "The dispatch_id field is required.");
    for (const struct sb_msg *m = NULL; r == 0 && (m = sb_msg_next(c->world, &f, m));) {
        const json_t *has = json_object_get(m->extra, "dispatch_id");

        if (has && json_integer_value(has) == wanted)
            r = list_add(&l, m);
    }
    return r < 0 ? r : word_list(c, &l, reply);
}

static int serve_one(struct sb_call *c, struct sb_reply *reply)
{
    const struct sb_msg *m = sb_msg_by_id(c->world, sb_call_part(c, "id"), NULL);
    int r = 0;

    if (!knows(c, reply, &r))
        return r;
    if (!m)
        return error(reply, 404, "SMS not found");
    return sb_reply_json(
        reply, 200, json_pack("{s:s, s:o, s:n}", "status", "success", "data", row_of(m), "id"));
}

/* ---- receipts ------------------------------------------------------------------------------- */

static int ez_receipt(const struct sb_world *w, const struct sb_receipt *items, size_t n,
                      enum sb_forge forge, struct sb_out *out)
{
    static const char *const words[] = {
        [SB_ST_QUEUED] = "STORED",       [SB_ST_SENT] = "ACCEPTED",   [SB_ST_DELIVERED] = "DELIVRD",
        [SB_ST_UNDELIVERED] = "UNDELIV", [SB_ST_EXPIRED] = "EXPIRED", [SB_ST_REJECTED] = "REJECTD",
    };
    const struct sb_msg *m = items[0].msg;
    char id[SB_ID_SIZE], date[WHEN_SIZE];
    int r;

    (void)forge; /* nothing is signed */
    if (n > 1)
        return -ENOTSUP;
    sb_id_digits(w, m, 0, 9, id);
    r = sb_out_call(out, "POST", sb_out_target(out));
    if (r < 0)
        return r;
    return sb_out_json(out,
                       json_pack("{s:s, s:s, s:s?, s:s, s:s, s:o, s:s, s:s}", "request_id",
                                 m->ids[0], "message_id", id, "user_sms_id", m->ref, "country",
                                 "UZ", "phone_number", m->to + (*m->to == '+'), "sms_count",
                                 json_sprintf("%u", m->parts), "status", words[items[0].state],
                                 "status_date", when_local(items[0].at_ms, UTC_OFFSET_MIN, date)));
}

static const struct sb_dialect_route routes[] = {
    {"POST", "/api/auth/login", serve_login, true},
    {"PATCH", "/api/auth/refresh", serve_refresh, true},
    {"POST", "/api/message/sms/send-batch", NULL, false},
    {"POST", "/api/message/sms/send", NULL, false},
    {"POST", "/api/message/sms/get-user-messages", serve_list, false},
    {"POST", "/api/message/sms/get-user-messages-by-dispatch", serve_dispatch, false},
    {"GET", "/api/message/sms/status_by_id/{id}", serve_one, false},
    {NULL, NULL, NULL, false},
};

const struct sb_dialect sb_dialect_eskiz = {
    .name = "eskiz",
    .help = "Eskiz.uz: JWT login, send-batch, message list, unsigned receipts",
    .settings = settings,
    .routes = routes,
    .token_s = INT64_C(30) * 24 * 3600,
    .read = ez_read,
    .accept = ez_accept,
    .refuse = ez_refuse,
    .receipt = ez_receipt,
};
