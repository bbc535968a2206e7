/* Kannel's smsbox as Debian ships it (1.4.5, tried there): sendsms by GET, or by POST with the text
 * as body and X-Kannel-* headers; forms are refused. No key, no id, no signature: the customer's
 * dlr-url is fetched with its escapes replaced. What does not fit is not refused but cut
 * (max_messages) or replaced by question marks (7 bit), and the answer is "Accepted". */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "providers/kit/form.h"
#include "providers/sandbox/dialect.h"
#include "worker/core/text.h"
#include "worker/core/utf8.h"

static const char html[] = "text/html"; /* what it says of its plain sentences */

static const struct sb_setting settings[] = {
    {"username", "postrider", "of the sendsms-user"},
    {"password", "secret", "of the sendsms-user"},
    {"global_sender", "", "sender of messages that name none; empty: they are refused"},
    {"max_messages", "10", "parts a text may have; the rest is cut off"},
    {NULL, NULL, NULL},
};

/* ---- a request ------------------------------------------------------------------------------ */

/* Where a value comes from: the query, or a header of the POST. */
static const char *value_of(const struct sb_call *c, bool post, const char *name,
                            const char *header)
{
    return post ? sb_call_header(c, header) : sb_call_query(c, name);
}

static int refused(struct sb_reply *reply, int status, const char *words)
{
    int r = sb_reply_text(reply, status, html, words);

    return r < 0 ? r : -EINVAL;
}

static bool is_number(const char *text, long min, long max, long *ret)
{
    char *end;

    errno = 0;
    *ret = strtol(text, &end, 10);
    return *text && !*end && errno == 0 && *ret >= min && *ret <= max;
}

/* A number out of range is "misformed"; one that lacks is `fallback`. */
static bool get_number(const char *text, long min, long max, long fallback, long *ret)
{
    *ret = fallback;
    return !text || is_number(text, min, max, ret);
}

static bool in_charset(const char *charset, const char *name)
{
    return charset && strncasecmp(charset, name, strlen(name)) == 0;
}

static const char *post_charset(const struct sb_call *c)
{
    const char *type = sb_call_header(c, "Content-Type");
    const char *at = type ? strcasestr(type, "charset=") : NULL;

    return at ? at + strlen("charset=") : NULL;
}

/* 7 bit: what GSM 03.38 has not becomes a question mark on the way to the phone. */
static const char *as_seven_bit(struct sb_call *c, const char *text)
{
    struct form out = {0};
    const char *copy;
    size_t len = strlen(text);
    uint32_t code;

    form_raw(&out, "");
    for (size_t at = 0, from = 0; at < len; from = at) {
        if (utf8_next(text, len, &at, &code) < 0 || text_septets(code) == 0) {
            form_raw(&out, "?");
            at = at == from ? at + 1 : at;
        } else {
            form_printf(&out, "%.*s", (int)(at - from), text + from);
        }
    }
    copy = out.error ? NULL : sb_call_copy(c, out.text ? out.text : "", out.len);
    form_done(&out);
    return copy;
}

/* The first parts of a text that has more than are allowed. */
static const char *cut(struct sb_call *c, const char *text, long parts)
{
    struct text_measure m;
    struct text_part part = {0};
    size_t len = strlen(text), end = 0;

    if (text_measure(text, len, &m) < 0 || m.segments <= (size_t)parts)
        return text;
    for (long i = 0; i < parts && text_part_next(text, len, &m, &part); i++)
        end = part.offset + part.bytes;
    return sb_call_copy(c, text, end);
}

static int read_text(struct sb_call *c, bool post, long coding, struct sb_send *ret,
                     struct sb_reply *reply)
{
    const char *text = post ? c->body : sb_call_query(c, "text");
    const char *charset = post ? post_charset(c) : sb_call_query(c, "charset");
    size_t len = post ? c->len : text ? strlen(text) : 0;
    long parts = 10;

    if (len == 0) {
        ret->text = "<Empty reply from service provider>"; /* it really says so, to the phone */
        return 0;
    }
    if (charset && !in_charset(charset, "UTF-8") && !in_charset(charset, "UTF-16BE"))
        return refused(reply, 400, "Charset or body misformed, rejected");
    if (coding == 2 && !in_charset(charset, "UTF-8"))
        text = sb_call_utf16be(c, text, len);
    else if (coding == 2)
        text = sb_call_copy(c, text, len);
    else
        text = as_seven_bit(c, text);
    if (!text)
        return refused(reply, 400, "Charset or body misformed, rejected");
    (void)is_number(sb_setting(c->world, "max_messages"), 1, 255, &parts);
    ret->text = cut(c, text, parts);
    return ret->text ? 0 : -ENOMEM;
}

static int check_user(const struct sb_call *c, bool post, struct sb_reply *reply)
{
    const char *user = value_of(c, post, "username", "X-Kannel-Username");
    const char *password = value_of(c, post, "password", "X-Kannel-Password");

    if (user && password && strcmp(user, sb_setting(c->world, "username")) == 0 &&
        strcmp(password, sb_setting(c->world, "password")) == 0)
        return 0;
    return refused(reply, 403, "Authorization failed for sendsms");
}

static int read_receiver(const struct sb_call *c, bool post, struct sb_send *ret,
                         struct sb_reply *reply)
{
    const char *from = value_of(c, post, "from", "X-Kannel-From");

    ret->to = value_of(c, post, "to", "X-Kannel-To");
    if (!ret->to)
        return refused(reply, 400,
                       post ? "Missing receiver(s) number(s), rejected"
                            : "Missing receiver number, rejected");
    if (!*ret->to)
        return refused(reply, 400, "Empty receiver number not allowed, rejected");
    /* Its own words for a number with other characters than sendsms-chars, too. */
    if (strspn(ret->to, "0123456789 +-") != strlen(ret->to))
        return refused(reply, 400, "Number(s) has/have been denied by white- and/or black-lists.");
    if (!from || !*from)
        from = sb_setting(c->world, "global_sender");
    if (!*from)
        return refused(reply, 400, "Sender missing and no global set, rejected");
    ret->from = from;
    return 0;
}

static int read_receipts(struct sb_call *c, bool post, struct sb_send *ret, struct sb_reply *reply)
{
    const char *url = value_of(c, post, "dlr-url", "X-Kannel-DLR-Url");
    long mask;

    if (url && *url && strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0)
        return refused(reply, 400, "DLR-URL field misformed, rejected");
    if (!get_number(value_of(c, post, "dlr-mask", "X-Kannel-DLR-Mask"), -1, 66, 0, &mask))
        return refused(reply, 400, "DLR-Mask field misformed, rejected");
    ret->no_receipt = !url || !*url || (mask & 3) == 0;
    ret->callback = ret->no_receipt ? NULL : url;
    return 0;
}

static int read_message(struct sb_call *c, struct sb_send *ret, struct sb_reply *reply)
{
    bool post = strcmp(c->method, "POST") == 0;
    const char *account;
    long coding, minutes;
    int r;

    if (post && !sb_call_type(c, "text/plain") && !sb_call_type(c, "text/html") &&
        !sb_call_type(c, "text/xml") && !sb_call_type(c, "application/octet-stream"))
        return refused(reply, 400, "Invalid content-type");
    r = check_user(c, post, reply);
    if (r == 0)
        r = read_receiver(c, post, ret, reply);
    account = value_of(c, post, "account", "X-Kannel-Account");
    if (r == 0 && account && (strlen(account) > 64 || strpbrk(account, "[]")))
        r = refused(reply, 400, "Account field misformed or too long, rejected");
    if (r == 0)
        r = read_receipts(c, post, ret, reply);
    if (r == 0 && !get_number(value_of(c, post, "coding", "X-Kannel-Coding"), -1, 2, 0, &coding))
        r = refused(reply, 400, "Coding field misformed, rejected");
    if (r == 0 &&
        !get_number(value_of(c, post, "validity", "X-Kannel-Validity"), -1, 10000000, 0, &minutes))
        r = refused(reply, 400, "Validity field misformed, rejected");
    if (r < 0)
        return r;
    ret->validity_ms = minutes > 0 ? minutes * INT64_C(60000) : 0;
    return read_text(c, post, coding, ret, reply);
}

/* ---- answers -------------------------------------------------------------------------------- */

static int word_accept(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m,
                       bool replay, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)m;
    (void)replay;
    return sb_reply_text(reply, 202, html, "0: Accepted for delivery");
}

static int word_refuse(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                       const struct sb_msg *known, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)known;
    switch (why) {
    case SB_REFUSE_NUMBER:
        return sb_reply_text(reply, 403, html, "Not routable. Do not try again.");
    case SB_REFUSE_LATER:
        return sb_reply_text(reply, 503, html, "Temporal failure, try again later.");
    case SB_REFUSE_ACCOUNT:
        return sb_reply_text(reply, 403, html, "Authorization failed for sendsms");
    case SB_REFUSE_ERROR:
        return sb_reply_text(reply, sb_reply_status(reply), html, "Sending failed.");
    default:
        return -ENOTSUP;
    }
}

/* ---- receipts ------------------------------------------------------------------------------- */

static const char *event_of(enum sb_state state)
{
    switch (state) {
    case SB_ST_DELIVERED:
        return "1";
    case SB_ST_UNDELIVERED:
    case SB_ST_EXPIRED:
        return "2";
    case SB_ST_REJECTED:
        return "16";
    default:
        return "8";
    }
}

/* What %A stands for: an SMPP receipt. Networks put the first characters of the text into it. */
static void write_words(struct form *f, const struct sb_receipt *r)
{
    const char *stat = r->state == SB_ST_DELIVERED ? "DELIVRD"
                       : r->state == SB_ST_EXPIRED ? "EXPIRED"
                                                   : "UNDELIV";

    if (r->state == SB_ST_REJECTED)
        form_raw(f, "NACK/0x0000000b/Invalid Destination Address");
    else if (strcmp(event_of(r->state), "8") == 0)
        form_raw(f, "ACK/");
    else
        form_printf(f,
                    "id:%s sub:001 dlvrd:001 submit date:2612010000 done date:2612010001 stat:%s "
                    "err:%s text:0123456789",
                    r->msg->ids[r->part], stat, r->state == SB_ST_DELIVERED ? "000" : "027");
}

static void write_escape(struct form *url, char escape, const struct sb_receipt *r)
{
    struct form words = {0};

    switch (escape) {
    case '%':
        form_raw(url, "%");
        return;
    case 'd':
        form_raw(url, event_of(r->state));
        return;
    case 'F':
        form_escape(url, r->msg->ids[r->part], strlen(r->msg->ids[r->part]));
        return;
    case 'p':
    case 'P':
        form_escape(url, r->msg->to, strlen(r->msg->to));
        return;
    case 'A':
        write_words(&words, r);
        if (words.error)
            url->error = words.error;
        else
            form_escape(url, words.text, words.len);
        form_done(&words);
        return;
    default:
        form_printf(url, "%%%c", escape);
    }
}

static int word_receipt(const struct sb_world *w, const struct sb_receipt *items, size_t n,
                        enum sb_forge forge, struct sb_out *out)
{
    struct form url = {0};
    int r;

    (void)w;
    (void)forge; /* there is no signature to get wrong */
    if (n > 1)
        return -ENOTSUP;
    for (const char *p = sb_out_target(out); *p; p++) {
        if (*p == '%' && p[1])
            write_escape(&url, *++p, &items[0]);
        else
            form_printf(&url, "%c", *p);
    }
    r = url.error ? url.error : sb_out_call(out, "GET", url.text ? url.text : "");
    form_done(&url);
    return r;
}

/* As its manual's get-url for an sms-service: from=%p&to=%P&text=%a. */
static int word_inbound(const struct sb_world *w, const struct sb_inbound *m, enum sb_forge forge,
                        struct sb_out *out)
{
    struct form url = {0};
    int r;

    (void)w;
    (void)forge;
    form_raw(&url, sb_out_target(out));
    form_raw(&url, strchr(sb_out_target(out), '?') ? "&" : "?");
    form_add(&url, "from", m->from);
    form_add(&url, "to", m->to);
    form_add(&url, "text", m->text);
    form_add(&url, "id", m->id);
    r = url.error ? url.error : sb_out_call(out, "GET", url.text);
    form_done(&url);
    return r;
}

static const struct sb_dialect_route routes[] = {
    {"GET", "/cgi-bin/sendsms", NULL, false},
    {"POST", "/cgi-bin/sendsms", NULL, false},
    {NULL, NULL, NULL, false},
};

const struct sb_dialect sb_dialect_kannel = {
    .name = "kannel",
    .help = "Kannel's smsbox, sendsms by GET or POST; no id, receipts by fetching dlr-url",
    .settings = settings,
    .routes = routes,
    .dedup = SB_DEDUP_NONE,
    .receipt_tries = 1, /* http-request-retry is 0 unless the operator sets it */
    .read = read_message,
    .accept = word_accept,
    .refuse = word_refuse,
    .receipt = word_receipt,
    .inbound = word_inbound,
};
