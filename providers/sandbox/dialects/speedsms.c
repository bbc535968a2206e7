/* SpeedSMS.vn: Basic with token:x, errors inside HTTP 200, bad numbers even inside success, 60
 * requests a minute. Nothing of the customer's is echoed. Written from the vendor's API page. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/sandbox/dialect.h"

static const struct sb_setting settings[] = {
    {"access_token", "test-token", "HTTP Basic user; the password is x"},
    {"sender", "", "the one brand name of the account; empty: any"},
    {NULL, NULL, NULL},
};

static int error(struct sb_reply *reply, const char *code, const char *words)
{
    return sb_reply_json(
        reply, 200,
        json_pack("{s:s, s:s, s:s}", "status", "error", "code", code, "message", words));
}

static int http_error(struct sb_reply *reply, int status, const char *name, const char *words)
{
    return sb_reply_json(reply, status,
                         json_pack("{s:s, s:s, s:i, s:i}", "name", name, "message", words, "code",
                                   0, "status", status));
}

/* A wrong token is answered as if there were no such page. */
static bool knows(struct sb_call *c, struct sb_reply *reply, int *ret)
{
    if (sb_call_basic(c, sb_setting(c->world, "access_token"), "x"))
        return true;
    *ret = http_error(reply, 404, "Not Found", "Page not found.");
    return false;
}

static bool is_phone(const char *to)
{
    size_t len = strlen(to);

    return len >= 9 && len <= 15 && strspn(to, "0123456789") == len;
}

/* NULL, or a code. */
static const char *code_of(struct sb_call *c, struct sb_send *ret)
{
    const json_t *to = json_object_get(c->json, "to"), *type = json_object_get(c->json, "sms_type");
    const json_t *sender = json_object_get(c->json, "sender");
    const char *brand = sb_setting(c->world, "sender");

    if (!sb_call_type(c, "application/json") || !json_is_object(c->json) ||
        json_array_size(to) != 1 || !json_is_integer(type) || (sender && !json_is_string(sender)))
        return "101";
    if (json_integer_value(type) < 2 || json_integer_value(type) > 8)
        return "101";
    ret->to = json_string_value(json_array_get(to, 0));
    ret->text = json_string_value(json_object_get(c->json, "content"));
    ret->from = sender && *json_string_value(sender) ? json_string_value(sender) : NULL;
    if (json_integer_value(type) == 3 && !ret->from)
        return "101";
    if (*brand && ret->from && strcmp(brand, ret->from) != 0)
        return "101";
    if (!ret->text || !*ret->text)
        return "101";
    return ret->to && is_phone(ret->to) ? NULL : "105";
}

static int sp_read(struct sb_call *c, struct sb_send *ret, struct sb_reply *reply)
{
    const char *code;
    int r = 0;

    if (!knows(c, reply, &r))
        return r < 0 ? r : -EINVAL;
    code = code_of(c, ret);
    if (!code)
        return 0;
    r = error(reply, code, "Invalid or missing parameters");
    return r < 0 ? r : -EINVAL;
}

static json_t *id_of(const struct sb_msg *m)
{
    return json_integer(strtoll(m->ids[0], NULL, 10));
}

static int sp_accept(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m,
                     bool replay, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)replay;
    return sb_reply_json(reply, 200,
                         json_pack("{s:s, s:s, s:{s:o, s:s, s:i, s:i, s:[]}}", "status", "success",
                                   "code", "00", "data", "tranId", id_of(m), "name", "Speedsms",
                                   "totalSMS", (int)m->parts, "totalPrice", 250 * (int)m->parts,
                                   "invalidPhone"));
}

static int sp_refuse(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                     const struct sb_msg *known, struct sb_reply *reply)
{
    int r;

    (void)c;
    (void)known;
    switch (why) {
    case SB_REFUSE_NUMBER:
        /* The trap of this vendor: "success", and nobody will get anything. */
        return sb_reply_json(reply, 200,
                             json_pack("{s:s, s:s, s:{s:i, s:s, s:i, s:i, s:[s]}}", "status",
                                       "success", "code", "00", "data", "tranId", 1, "name",
                                       "Speedsms", "totalSMS", 0, "totalPrice", 0, "invalidPhone",
                                       s ? s->to : ""));
    case SB_REFUSE_THROTTLED:
        r = http_error(reply, 429, "Too Many Requests", "Rate limit exceeded.");
        return r < 0 ? r : sb_reply_header(reply, "X-Rate-Limit-Reset", "1");
    case SB_REFUSE_ACCOUNT:
        return error(reply, "300", "Your account balance not enough to send sms");
    case SB_REFUSE_ERROR:
        return sb_reply_text(reply, sb_reply_status(reply), "text/html",
                             "<html><body>error</body></html>");
    default:
        return -ENOTSUP;
    }
}

static void make_id(const struct sb_world *w, const struct sb_msg *m, size_t part,
                    char buf[SB_ID_SIZE])
{
    sb_id_digits(w, m, part, 15, buf);
}

static int status_of(enum sb_state state)
{
    static const int statuses[] = {
        [SB_ST_QUEUED] = 2,       [SB_ST_SENT] = 1,     [SB_ST_DELIVERED] = 0,
        [SB_ST_UNDELIVERED] = 64, [SB_ST_EXPIRED] = 65, [SB_ST_REJECTED] = 66,
    };

    return statuses[state];
}

static int serve_status(struct sb_call *c, struct sb_reply *reply)
{
    const struct sb_msg *m = sb_msg_by_id(c->world, sb_call_part(c, "id"), NULL);
    int r = 0;

    if (!knows(c, reply, &r))
        return r;
    if (!m)
        return error(reply, "101", "Invalid or missing parameters");
    return sb_reply_json(reply, 200,
                         json_pack("{s:s, s:s, s:[{s:s, s:i}]}", "status", "success", "code", "00",
                                   "data", "phone", m->to + (*m->to == '+'), "status",
                                   status_of(m->state)));
}

static int sp_receipt(const struct sb_world *w, const struct sb_receipt *items, size_t n,
                      enum sb_forge forge, struct sb_out *out)
{
    const struct sb_msg *m = items[0].msg;
    int r;

    (void)w;
    (void)forge; /* nothing is signed */
    if (n > 1)
        return -ENOTSUP;
    r = sb_out_call(out, "POST", sb_out_target(out));
    if (r < 0)
        return r;
    return sb_out_json(out, json_pack("{s:s, s:o, s:s, s:i}", "type", "report", "tranId", id_of(m),
                                      "phone", m->to + (*m->to == '+'), "status",
                                      status_of(items[0].state)));
}

static const struct sb_dialect_route routes[] = {
    {"POST", "/index.php/sms/send", NULL, false},
    {"POST", "/sms/send", NULL, false}, /* where the root was given without index.php */
    {"GET", "/index.php/sms/status/{id}", serve_status, false},
    {"GET", "/sms/status/{id}", serve_status, false},
    {NULL, NULL, NULL, false},
};

const struct sb_dialect sb_dialect_speedsms = {
    .name = "speedsms",
    .help = "SpeedSMS.vn: errors inside 200, invalidPhone inside success, receipts by tranId",
    .settings = settings,
    .routes = routes,
    .read = sp_read,
    .accept = sp_accept,
    .refuse = sp_refuse,
    .make_id = make_id,
    .receipt = sp_receipt,
};
