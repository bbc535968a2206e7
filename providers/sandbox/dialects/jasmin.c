/* Jasmin's HTTP API, /send: a form or a query in, `Success "id"` or `Error "words"` out; receipts
 * of level 1 and 2 until the answer is exactly ACK/Jasmin. With coding 0 what GSM 03.38 has not is
 * replaced without a word, and parts beyond long_content_max_parts are dropped. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "providers/kit/form.h"
#include "providers/kit/sign.h"
#include "providers/sandbox/dialect.h"
#include "worker/core/text.h"
#include "worker/core/utf8.h"

static const char plain[] = "text/plain";

static const struct sb_setting settings[] = {
    {"username", "postrider", "of the user"},
    {"password", "secret", "of the user"},
    {"long_content_max_parts", "5", "parts a text may have; the rest is dropped"},
    {NULL, NULL, NULL},
};

/* ---- a request ------------------------------------------------------------------------------ */

static int refused(struct sb_reply *reply, int status, const char *fmt, const char *word)
{
    struct form words = {0};
    int r;

    form_raw(&words, "Error \"");
    for (const char *p = fmt; *p; p++) {
        if (*p == '%')
            form_raw(&words, word);
        else
            form_printf(&words, "%c", *p);
    }
    form_raw(&words, "\"");
    r = words.error ? words.error : sb_reply_text(reply, status, plain, words.text);
    form_done(&words);
    return r < 0 ? r : -EINVAL;
}

static bool all_of(const char *text, const char *set)
{
    return strspn(text, set) == strlen(text);
}

static bool is_to(const char *v)
{
    v += *v == '+';
    return *v && all_of(v, "0123456789");
}

static bool is_coding(const char *v)
{
    return all_of(v, "0123456789") && *v && strlen(v) <= 2 && strtol(v, NULL, 10) <= 14;
}

static bool is_digits(const char *v)
{
    return *v && all_of(v, "0123456789");
}

static bool is_yes_no(const char *v)
{
    return strcmp(v, "yes") == 0 || strcmp(v, "no") == 0;
}

static bool is_url(const char *v)
{
    return strncmp(v, "http://", 7) == 0 || strncmp(v, "https://", 8) == 0;
}

static bool is_level(const char *v)
{
    return strlen(v) == 1 && *v >= '1' && *v <= '3';
}

static bool is_method(const char *v)
{
    return strcasecmp(v, "get") == 0 || strcasecmp(v, "post") == 0;
}

static bool is_hex(const char *v)
{
    return all_of(v, "0123456789abcdefABCDEF") && strlen(v) % 2 == 0;
}

static bool is_tags(const char *v)
{
    return all_of(v, "-0123456789,abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
}

static bool is_credential(const char *v)
{
    return *v && strlen(v) <= 30;
}

static bool is_any(const char *v)
{
    (void)v;
    return true;
}

static const struct {
    const char *name;
    bool mandatory;
    bool (*ok)(const char *);
} arguments[] = {
    {"username", true, is_credential},
    {"password", true, is_credential},
    {"to", true, is_to},
    {"from", false, is_any},
    {"coding", false, is_coding},
    {"validity-period", false, is_digits},
    {"priority", false, is_digits},
    {"dlr", true, is_yes_no},
    {"dlr-url", false, is_url},
    {"dlr-level", false, is_level},
    {"dlr-method", false, is_method},
    {"tags", false, is_tags},
    {"content", false, is_any},
    {"hex-content", false, is_hex},
};

static const char *argument(const struct sb_call *c, const char *name)
{
    bool post = strcmp(c->method, "POST") == 0;

    return post ? sb_call_form(c, name) : sb_call_query(c, name);
}

static int check_arguments(const struct sb_call *c, struct sb_reply *reply)
{
    for (size_t i = 0; i < sizeof(arguments) / sizeof(arguments[0]); i++) {
        const char *value = argument(c, arguments[i].name);

        /* `dlr` is "no" unless it is said. */
        if (!value && arguments[i].mandatory && strcmp(arguments[i].name, "dlr") != 0)
            return refused(reply, 400, "Mandatory argument [%] is not found.", arguments[i].name);
        if (value && !arguments[i].ok(value))
            return refused(reply, 400, "Argument [%] has an invalid value.", arguments[i].name);
    }
    if (!argument(c, "content") == !argument(c, "hex-content"))
        return refused(reply, 400, "content and hex-content: one of them is needed.", "");
    return 0;
}

static int check_user(const struct sb_call *c, struct sb_reply *reply)
{
    const char *user = argument(c, "username"), *password = argument(c, "password");

    if (strcmp(user, sb_setting(c->world, "username")) == 0 &&
        strcmp(password, sb_setting(c->world, "password")) == 0)
        return 0;
    return refused(reply, 403, "Authentication failure for username:%", user);
}

static const char *as_seven_bit(struct sb_call *c, const char *text)
{
    struct form out = {0};
    const char *copy;
    size_t len = strlen(text);
    uint32_t code;

    for (size_t at = 0, from = 0; at < len; from = at) {
        if (utf8_next(text, len, &at, &code) < 0)
            at++;
        else if (text_septets(code) > 0)
            form_printf(&out, "%.*s", (int)(at - from), text + from);
        else
            form_raw(&out, "?");
    }
    copy = out.error ? NULL : sb_call_copy(c, out.text ? out.text : "", out.len);
    form_done(&out);
    return copy;
}

static const char *drop_parts(struct sb_call *c, const char *text)
{
    struct text_measure m;
    struct text_part part = {0};
    size_t len = strlen(text), end = 0;
    long parts = strtol(sb_setting(c->world, "long_content_max_parts"), NULL, 10);

    if (text_measure(text, len, &m) < 0 || m.segments <= (size_t)parts)
        return text;
    for (long i = 0; i < parts && text_part_next(text, len, &m, &part); i++)
        end = part.offset + part.bytes;
    return sb_call_copy(c, text, end);
}

static int read_text(struct sb_call *c, struct sb_send *ret, struct sb_reply *reply)
{
    const char *coding = argument(c, "coding"), *text = argument(c, "content");
    bool ucs2 = coding && strcmp(coding, "8") == 0;

    if (!text && !ucs2) /* the bytes of another alphabet: not needed here, so not imitated */
        return refused(reply, 400, "Argument [hex-content] has an invalid value.", "");
    if (!text)
        text = sb_call_utf16be_hex(c, argument(c, "hex-content"));
    else if (ucs2)
        text = sb_call_utf16be(c, text, strlen(text));
    else
        text = as_seven_bit(c, text);
    if (!text)
        return refused(reply, 400, "Argument [hex-content] has an invalid value.", "");
    ret->text = drop_parts(c, text);
    return ret->text ? 0 : -ENOMEM;
}

static int read_receipts(struct sb_call *c, struct sb_send *ret, struct sb_reply *reply)
{
    const char *dlr = argument(c, "dlr"), *level = argument(c, "dlr-level");
    const char *method = argument(c, "dlr-method");

    ret->no_receipt = true;
    if (!dlr || strcmp(dlr, "yes") != 0)
        return 0;
    ret->callback = argument(c, "dlr-url");
    if (!ret->callback)
        return refused(reply, 400, "Mandatory argument [%] is not found.", "dlr-url");
    ret->no_receipt = false;
    ret->extra = sb_call_keep(c, json_pack("{s:i, s:b}", "level", level ? *level - '0' : 1, "get",
                                           method && strcasecmp(method, "get") == 0));
    return ret->extra ? 0 : -ENOMEM;
}

static int read_message(struct sb_call *c, struct sb_send *ret, struct sb_reply *reply)
{
    const char *minutes;
    int r = check_arguments(c, reply);

    if (r == 0)
        r = check_user(c, reply);
    if (r == 0)
        r = read_receipts(c, ret, reply);
    if (r < 0)
        return r;
    ret->to = argument(c, "to");
    ret->from = argument(c, "from");
    minutes = argument(c, "validity-period");
    ret->validity_ms = minutes ? strtol(minutes, NULL, 10) * INT64_C(60000) : 0;
    return read_text(c, ret, reply);
}

/* ---- answers -------------------------------------------------------------------------------- */

static int word_accept(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m,
                       bool replay, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)replay;
    return sb_reply_printf(reply, 200, plain, "Success \"%s\"", m->ids[0]);
}

static int word_refuse(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                       const struct sb_msg *known, struct sb_reply *reply)
{
    int status = sb_reply_status(reply);

    (void)c;
    (void)s;
    (void)known;
    switch (why) {
    case SB_REFUSE_NUMBER:
        return sb_reply_printf(reply, 400, plain, "Error \"%s\"",
                               "Value filter failed for user [postrider] (destination_address "
                               "filter mismatch).");
    case SB_REFUSE_THROTTLED:
        return sb_reply_text(reply, 403, plain, "Error \"User throughput exceeded\"");
    case SB_REFUSE_LATER:
        return sb_reply_text(reply, 412, plain, "Error \"Failover route has no bound connectors\"");
    case SB_REFUSE_ACCOUNT:
        return sb_reply_printf(reply, 403, plain, "Error \"%s\"",
                               "Cannot charge submit_sm, check RouterPB log file for details");
    case SB_REFUSE_ERROR: /* its own 503 is an interceptor's, before queueing: that would prove */
        return sb_reply_text(reply, status == 503 ? 500 : status, plain,
                             "Error \"Unknown error: 'NoneType' object\"");
    default:
        return -ENOTSUP;
    }
}

/* ---- receipts ------------------------------------------------------------------------------- */

static const char *word_of(enum sb_state state)
{
    switch (state) {
    case SB_ST_DELIVERED:
        return "DELIVRD";
    case SB_ST_UNDELIVERED:
        return "UNDELIV";
    case SB_ST_EXPIRED:
        return "EXPIRED";
    case SB_ST_REJECTED:
        return "REJECTD";
    default:
        return "ESME_ROK";
    }
}

static void write_receipt(struct form *f, const struct sb_receipt *r)
{
    bool smsc = r->state == SB_ST_QUEUED || r->state == SB_ST_SENT;

    form_add(f, "id", r->msg->ids[r->part]);
    form_add(f, "message_status", word_of(r->state));
    form_add(f, "level", smsc ? "1" : "2");
    form_add(f, "connector", "smppc1");
    if (smsc)
        return;
    form_add_i64(f, "id_smsc", (int64_t)r->msg->no);
    form_add(f, "sub", "001");
    form_add(f, "dlvrd", r->state == SB_ST_DELIVERED ? "001" : "000");
    form_add(f, "subdate", "2612010000");
    form_add(f, "donedate", "2612010001");
    form_add(f, "err", r->state == SB_ST_DELIVERED ? "000" : "011");
    form_add(f, "text", "");
}

/* Parameters to the target, in the way it asked for. */
static int call(struct sb_out *out, bool get, const struct form *params)
{
    const char *target = sb_out_target(out);
    struct form url = {0};
    int r;

    if (params->error)
        return params->error;
    if (!get) {
        r = sb_out_call(out, "POST", target);
        return r < 0 ? r
                     : sb_out_body(out, "application/x-www-form-urlencoded", params->text,
                                   params->len);
    }
    form_raw(&url, target);
    form_raw(&url, strchr(target, '?') ? "&" : "?");
    form_raw(&url, params->text);
    r = url.error ? url.error : sb_out_call(out, "GET", url.text);
    form_done(&url);
    return r;
}

static int word_receipt(const struct sb_world *w, const struct sb_receipt *items, size_t n,
                        enum sb_forge forge, struct sb_out *out)
{
    struct form params = {0};
    int r;

    (void)w;
    (void)forge; /* there is no signature to get wrong */
    if (n > 1)
        return -ENOTSUP;
    write_receipt(&params, &items[0]);
    r = call(out, json_is_true(json_object_get(items[0].msg->extra, "get")), &params);
    form_done(&params);
    return r;
}

static int word_inbound(const struct sb_world *w, const struct sb_inbound *m, enum sb_forge forge,
                        struct sb_out *out)
{
    struct form params = {0};
    char *hex = sign_hex((const uint8_t *)m->text, strlen(m->text));
    int r;

    (void)w;
    (void)forge;
    form_add(&params, "id", m->id);
    form_add(&params, "from", m->from);
    form_add(&params, "to", m->to);
    form_add(&params, "origin-connector", "smppc1");
    form_add(&params, "coding", "0");
    form_add(&params, "content", m->text);
    form_add(&params, "binary", hex);
    r = call(out, false, &params);
    form_done(&params);
    free(hex);
    return r;
}

static bool receipt_ok(int status, const char *body, size_t len)
{
    static const char ack[] = "ACK/Jasmin";

    return status == 200 && len == strlen(ack) && memcmp(body, ack, len) == 0;
}

static const struct sb_dialect_route routes[] = {
    {"POST", "/send", NULL, false},
    {"GET", "/send", NULL, false},
    {NULL, NULL, NULL, false},
};

const struct sb_dialect sb_dialect_jasmin = {
    .name = "jasmin",
    .help = "Jasmin's HTTP API, /send; receipts until the answer is ACK/Jasmin",
    .settings = settings,
    .routes = routes,
    .dedup = SB_DEDUP_NONE,
    .receipt_tries = 4,
    .read = read_message,
    .accept = word_accept,
    .refuse = word_refuse,
    .receipt = word_receipt,
    .inbound = word_inbound,
    .receipt_ok = receipt_ok,
};
