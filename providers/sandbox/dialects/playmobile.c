/* PlayMobile.uz (broker-api): Basic, JSON in, plain text out; refusals are a 400 with a code. The
 * vendor gives no id: message-id is the only one. Written from the vendor's wiki; its callbacks are
 * not confirmed. */
#include <errno.h>
#include <string.h>

#include "providers/kit/when.h"
#include "providers/sandbox/dialect.h"

static const struct sb_setting settings[] = {
    {"login", "acme", "HTTP Basic user"},
    {"password", "secret", "HTTP Basic password"},
    {"originator", "", "the one sender the account may use; empty: any"},
    {"timing_utc_offset_min", "0", "zone of the timing member: 0 or 300"},
    {NULL, NULL, NULL},
};

static int error(struct sb_reply *reply, int code, const char *words)
{
    return sb_reply_json(reply, 400,
                         json_pack("{s:i, s:s}", "error-code", code, "error-description", words));
}

static const char *text_in(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* 998 and nine digits. */
static bool is_recipient(const char *to)
{
    return strlen(to) == 12 && strncmp(to, "998", 3) == 0 && strspn(to, "0123456789") == 12;
}

/* 0, or a code. */
static int read_timing(struct sb_call *c, struct sb_send *ret)
{
    const json_t *timing = json_object_get(c->json, "timing");
    const char *start = text_in(timing, "start-datetime"), *end = text_in(timing, "end-datetime");
    int offset = strcmp(sb_setting(c->world, "timing_utc_offset_min"), "300") == 0 ? 300 : 0;
    int64_t from, to;

    if (!timing)
        return 0;
    if (!start || strlen(start) != strlen("2026-11-30 22:10") || !when_parse(start, offset, &from))
        return 301;
    if (!end || strlen(end) != strlen("2026-11-30 22:10") || !when_parse(end, offset, &to))
        return 302;
    if (to <= from || to <= sb_now_ms(c->world))
        return 303;
    ret->validity_ms = to - from;
    return 0;
}

static int code_of(struct sb_call *c, struct sb_send *ret)
{
    const json_t *list = json_object_get(c->json, "messages"), *one = json_array_get(list, 0);
    const json_t *sms = json_object_get(one, "sms");
    const char *allowed = sb_setting(c->world, "originator");

    if (!sb_call_type(c, "application/json") || !json_is_array(list) || !json_is_object(one))
        return 101;
    if (json_array_size(list) > 1)
        return 105;
    ret->to = text_in(one, "recipient");
    ret->ref = text_in(one, "message-id");
    ret->from = text_in(sms, "originator");
    ret->text = text_in(json_object_get(sms, "content"), "text");
    if (!ret->to || !is_recipient(ret->to))
        return 202;
    if (!ret->ref || !*ret->ref)
        return 205;
    if (!ret->from || !*ret->from || (*allowed && strcmp(allowed, ret->from) != 0))
        return 401;
    if (!ret->text || !*ret->text)
        return 404;
    return read_timing(c, ret);
}

static int pm_read(struct sb_call *c, struct sb_send *ret, struct sb_reply *reply)
{
    int code, r;

    if (!sb_call_basic(c, sb_setting(c->world, "login"), sb_setting(c->world, "password"))) {
        r = sb_reply_text(reply, 401, "text/plain", "Unauthorized");
        return r < 0 ? r : -EINVAL;
    }
    code = code_of(c, ret);
    if (code == 0)
        return 0;
    r = error(reply, code, "Invalid request");
    return r < 0 ? r : -EINVAL;
}

static int pm_accept(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m,
                     bool replay, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)m;
    (void)replay;
    return sb_reply_text(reply, 200, "text/plain;charset=UTF-8", "Request is received");
}

static int pm_refuse(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                     const struct sb_msg *known, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)known;
    switch (why) {
    case SB_REFUSE_NUMBER:
        return error(reply, 202, "Invalid recipient");
    case SB_REFUSE_ACCOUNT:
        return error(reply, 102, "Account is locked");
    case SB_REFUSE_LATER:
        return error(reply, 100, "Internal server error");
    case SB_REFUSE_ERROR:
        return sb_reply_text(reply, sb_reply_status(reply), "text/html",
                             "<html><body>error</body></html>");
    default:
        return -ENOTSUP;
    }
}

static int pm_receipt(const struct sb_world *w, const struct sb_receipt *items, size_t n,
                      enum sb_forge forge, struct sb_out *out)
{
    static const char *const words[] = {
        [SB_ST_QUEUED] = "Transmitted",  [SB_ST_SENT] = "Transmitted",
        [SB_ST_DELIVERED] = "Delivered", [SB_ST_UNDELIVERED] = "NotDelivered",
        [SB_ST_EXPIRED] = "Expired",     [SB_ST_REJECTED] = "Rejected",
    };
    int r;

    (void)w;
    (void)forge; /* nothing is signed */
    if (n > 1)
        return -ENOTSUP;
    r = sb_out_call(out, "POST", sb_out_target(out));
    if (r < 0)
        return r;
    return sb_out_json(out, json_pack("{s:s, s:s}", "message-id", items[0].msg->ref, "status",
                                      words[items[0].state]));
}

static const struct sb_dialect_route routes[] = {
    {"POST", "/broker-api/send", NULL, false},
    {NULL, NULL, NULL, false},
};

const struct sb_dialect sb_dialect_playmobile = {
    .name = "playmobile",
    .help = "PlayMobile.uz broker-api: message-id is ours alone, text answers, codes in a 400",
    .settings = settings,
    .routes = routes,
    .read = pm_read,
    .accept = pm_accept,
    .refuse = pm_refuse,
    .receipt = pm_receipt,
};
