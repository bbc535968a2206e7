/* eSMS.vn: everything is HTTP 200, CodeResult tells. A RequestId is taken once a day and a repeat
 * answered with 124; callbacks come by GET. Written from the vendor's developer pages. */
#include <errno.h>
#include <string.h>

#include "providers/kit/form.h"
#include "providers/sandbox/dialect.h"

static const struct sb_setting settings[] = {
    {"api_key", "test-key", "ApiKey"},
    {"secret_key", "test-secret", "SecretKey"},
    {"brandname", "", "the one Brandname that is registered; empty: any"},
    {NULL, NULL, NULL},
};

enum { REQUEST_ID_MAX = 50 };

static int result(struct sb_reply *reply, const char *code, const char *words)
{
    return sb_reply_json(reply, 200,
                         json_pack("{s:s, s:s}", "CodeResult", code, "ErrorMessage", words));
}

static bool is(const struct sb_call *c, const char *given, const char *setting)
{
    return given && strcmp(given, sb_setting(c->world, setting)) == 0;
}

static const char *text_in(const struct sb_call *c, const char *name)
{
    return json_string_value(json_object_get(c->json, name));
}

/* Text that was not announced as Unicode loses what is beyond ASCII. */
static const char *without_marks(struct sb_call *c, const char *text)
{
    struct form plain = {0};
    const char *copy = NULL;

    for (const char *p = text; *p; p++)
        if (((unsigned char)*p & 0xc0) != 0x80) /* one for each character */
            form_printf(&plain, "%c", (unsigned char)*p < 0x80 ? *p : '?');
    if (!plain.error)
        copy = sb_call_copy(c, plain.text ? plain.text : "", plain.len);
    form_done(&plain);
    return copy;
}

static const char *code_of(const struct sb_call *c, const struct sb_send *s)
{
    const char *type = text_in(c, "SmsType"), *brand = sb_setting(c->world, "brandname");
    size_t digits = s->to ? strspn(s->to, "0123456789") : 0;

    if (!is(c, text_in(c, "ApiKey"), "api_key") || !is(c, text_in(c, "SecretKey"), "secret_key"))
        return "101";
    if (!type || !*type)
        return "300";
    if (strcmp(type, "1") != 0 && strcmp(type, "2") != 0 && strcmp(type, "8") != 0)
        return "118";
    if (!s->to || digits < 9 || s->to[digits])
        return "108";
    if (strcmp(type, "8") != 0 && (!s->from || !*s->from))
        return "104";
    if (*brand && (!s->from || strcmp(brand, s->from) != 0))
        return "104";
    return NULL;
}

static int es_read(struct sb_call *c, struct sb_send *ret, struct sb_reply *reply)
{
    const char *unicode = text_in(c, "IsUnicode"), *code;
    int r;

    ret->to = text_in(c, "Phone");
    ret->text = text_in(c, "Content");
    ret->from = text_in(c, "Brandname");
    ret->key = ret->ref = text_in(c, "RequestId");
    ret->callback = text_in(c, "CallbackUrl");
    if (!sb_call_type(c, "application/json") || !json_is_object(c->json) || !ret->text ||
        !*ret->text || (ret->key && strlen(ret->key) > REQUEST_ID_MAX)) {
        r = sb_reply_json(reply, 200, json_pack("{s:s}", "error", "Invalid request"));
        return r < 0 ? r : -EINVAL;
    }
    code = code_of(c, ret);
    if (code) {
        r = result(reply, code, "Request refused");
        return r < 0 ? r : -EINVAL;
    }
    if (!unicode || strcmp(unicode, "1") != 0)
        ret->text = without_marks(c, ret->text);
    return ret->text ? 0 : -ENOMEM;
}

static int es_accept(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m,
                     bool replay, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)replay;
    return sb_reply_json(reply, 200,
                         json_pack("{s:s, s:i, s:s}", "CodeResult", "100", "CountRegenerate", 0,
                                   "SMSID", m->ids[0]));
}

static int es_refuse(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                     const struct sb_msg *known, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)known;
    switch (why) {
    case SB_REFUSE_NUMBER:
        return result(reply, "99", "The phone number is blocked in the system");
    case SB_REFUSE_ACCOUNT:
        return result(reply, "103", "Not enough balance to send message");
    case SB_REFUSE_DUPLICATE:
        return sb_reply_json(reply, 200,
                             json_pack("{s:s, s:s, s:s}", "CodeResult", "124", "ErrorMessage",
                                       "Request exist 1", "SendStatus", "5"));
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
    sb_id_hex(w, m, part, "", 32, buf);
}

/* ---- looking up and receipts ---------------------------------------------------------------- */

struct counts {
    int status, success, failed;
    const char *words;
};

static struct counts counts_of(enum sb_state state)
{
    static const struct counts counts[] = {
        [SB_ST_QUEUED] = {2, 0, 0, ""},
        [SB_ST_SENT] = {7, 0, 0, ""},
        [SB_ST_DELIVERED] = {5, 1, 0, ""},
        [SB_ST_UNDELIVERED] = {5, 0, 1, "Thue bao khong lien lac duoc"},
        [SB_ST_EXPIRED] = {5, 0, 1, "Het han"},
        [SB_ST_REJECTED] = {4, 0, 1, "Bi tu choi"},
    };

    return counts[state];
}

static int serve_status(struct sb_call *c, struct sb_reply *reply)
{
    const char *id = sb_call_query(c, "RefId");
    const struct sb_msg *m = id ? sb_msg_by_id(c->world, id, NULL) : NULL;
    struct counts n;

    if (!is(c, sb_call_query(c, "ApiKey"), "api_key") ||
        !is(c, sb_call_query(c, "SecretKey"), "secret_key"))
        return sb_reply_json(reply, 200, json_pack("{s:s}", "CodeResponse", "101"));
    if (!m)
        return sb_reply_json(reply, 200, json_pack("{s:s}", "CodeResponse", "105"));
    n = counts_of(m->state);
    return sb_reply_json(reply, 200,
                         json_pack("{s:s, s:s, s:i, s:i, s:i, s:f, s:i, s:i}", "CodeResponse",
                                   "100", "SMSID", m->ids[0], "SendStatus", n.status, "SendSuccess",
                                   n.success, "SendFailed", n.failed, "TotalPrice", 850.0,
                                   "TotalReceiver", 1, "TotalSent", 1));
}

static int es_receipt(const struct sb_world *w, const struct sb_receipt *items, size_t n,
                      enum sb_forge forge, struct sb_out *out)
{
    const struct sb_msg *m = items[0].msg;
    struct counts counts = counts_of(items[0].state);
    struct form url = {0};
    int r;

    (void)w;
    (void)forge; /* nothing is signed */
    if (n > 1)
        return -ENOTSUP;
    form_raw(&url, sb_out_target(out));
    if (!strchr(sb_out_target(out), '?'))
        form_raw(&url, "?");
    form_add(&url, "SMSID", m->ids[0]);
    form_add(&url, "RequestId", m->ref);
    form_add_i64(&url, "SendStatus", counts.status);
    form_add_i64(&url, "SendSuccess", counts.success);
    form_add_i64(&url, "SendFailed", counts.failed);
    form_add(&url, "TotalReceiver", "1");
    form_add(&url, "TotalSent", "1");
    form_add(&url, "TotalPrice", "850.0");
    form_add(&url, "TypeId", "2");
    form_add(&url, "telcoid", "1");
    form_add(&url, "phonenumber", m->to + (*m->to == '+'));
    form_add(&url, "error_info", counts.words);
    r = url.error ? url.error : sb_out_call(out, "GET", url.text);
    form_done(&url);
    return r;
}

static const struct sb_dialect_route routes[] = {
    {"POST", "/MainService.svc/json/SendMultipleMessage_V4_post_json/", NULL, false},
    {"POST", "/MainService.svc/json/SendMultipleMessage_V4_post_json", NULL, false},
    {"GET", "/MainService.svc/json/GetSendStatus", serve_status, false},
    {NULL, NULL, NULL, false},
};

const struct sb_dialect sb_dialect_esms = {
    .name = "esms",
    .help = "eSMS.vn: always HTTP 200, a repeated RequestId answers 124, callbacks by GET",
    .settings = settings,
    .routes = routes,
    .dedup = SB_DEDUP_REJECT,
    .dedup_s = INT64_C(24) * 3600,
    .receipt_tries = 5,
    .read = es_read,
    .accept = es_accept,
    .refuse = es_refuse,
    .make_id = make_id,
    .receipt = es_receipt,
};
