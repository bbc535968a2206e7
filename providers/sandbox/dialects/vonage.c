/* Vonage's SMS API: form in, HTTP 200 out, status in the parts. An id and a receipt for each part.
 * Facts: Vonage's sms.yml, its guides to troubleshooting, receipts and signing. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/form.h"
#include "providers/kit/sign.h"
#include "providers/kit/when.h"
#include "providers/sandbox/dialects/vonage_reports.h"
#include "worker/core/text.h"

enum { REF_MAX = 40, PART_UCS2 = 70, PART_UCS2_LONG = 67 };
#define FORGED_SECRET "not the signature secret"

static const struct sb_setting settings[] = {
    SB_VONAGE_SETTINGS,
    {"signature_method", "md5hash", "md5hash, or HMAC: md5, sha1, sha256, sha512"},
    {"dlr_method", "post", "how receipts come: post, post-json or get"},
    {NULL, NULL, NULL},
};

/* ---- answers -------------------------------------------------------------------------------- */

static int failure(struct sb_reply *reply, const char *status, const char *words)
{
    return sb_reply_json(reply, 200,
                         json_pack("{s:s, s:[{s:s, s:s}]}", "message-count", "1", "messages",
                                   "status", status, "error-text", words));
}

static int refuse_read(struct sb_reply *reply, const char *status, const char *words)
{
    int r = failure(reply, status, words);

    return r < 0 ? r : -EINVAL;
}

static int vn_accept(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m,
                     bool replay, struct sb_reply *reply)
{
    json_t *parts = json_array(), *count = json_sprintf("%zu", m->ids_n);

    (void)c;
    (void)s;
    (void)replay;
    for (size_t i = 0; i < m->ids_n; i++)
        json_array_append_new(parts,
                              json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s*}", "to", m->to,
                                        "message-id", m->ids[i], "status", "0", "remaining-balance",
                                        "3.14159", "message-price", "0.03330000", "network",
                                        "43404", "client-ref", m->ref));
    return sb_reply_json(reply, 200,
                         json_pack("{s:o, s:o}", "message-count", count, "messages", parts));
}

static int vn_refuse(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                     const struct sb_msg *known, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)known;
    switch (why) {
    case SB_REFUSE_NUMBER:
        return failure(reply, "6", "Unroutable message - rejected");
    case SB_REFUSE_THROTTLED:
        return failure(reply, "1", "Throughput Rate Exceeded - please wait [ 250 ] and retry");
    case SB_REFUSE_OPT_OUT:
        return failure(reply, "7", "Number barred");
    case SB_REFUSE_LATER:
        return failure(reply, "5", "Internal Error");
    case SB_REFUSE_ACCOUNT:
        return failure(reply, "9", "Partner quota exceeded");
    case SB_REFUSE_ERROR:
        return sb_reply_text(reply, sb_reply_status(reply), "text/html",
                             "<html><body>Service unavailable</body></html>");
    default:
        return -ENOTSUP;
    }
}

static void make_id(const struct sb_world *w, const struct sb_msg *m, size_t part,
                    char buf[SB_ID_SIZE])
{
    sb_id_hex(w, m, part, "0A", 16, buf);
}

/* ---- requests ------------------------------------------------------------------------------- */

/* In the body or as Basic. 0, or -EINVAL with the answer. */
static int check_access(const struct sb_call *c, struct sb_reply *reply)
{
    const char *key = sb_call_form(c, "api_key"), *secret = sb_call_form(c, "api_secret");
    const char *my_key = sb_setting(c->world, "api_key");
    const char *my_secret = sb_setting(c->world, "api_secret");

    if (sb_call_basic(c, NULL, NULL))
        return sb_call_basic(c, my_key, my_secret) ? 0 : refuse_read(reply, "4", "Bad Credentials");
    if (!key || !*key)
        return refuse_read(reply, "2", "Missing api_key");
    if (!secret || !*secret)
        return refuse_read(reply, "2", "Missing api_secret");
    return strcmp(key, my_key) == 0 && strcmp(secret, my_secret) == 0
               ? 0
               : refuse_read(reply, "4", "Bad Credentials");
}

/* Sent as "text", what GSM-7 lacks arrives as a question mark. */
static const char *as_gsm7(struct sb_call *c, const char *text)
{
    struct text_culprits it = TEXT_CULPRITS_OF(text, strlen(text));
    struct text_culprit culprit;
    struct form plain = {0};
    const char *copy = NULL, *from = text;

    while (text_culprits_next(&it, &culprit)) {
        size_t width = culprit.code < 0x80      ? 1
                       : culprit.code < 0x800   ? 2
                       : culprit.code < 0x10000 ? 3
                                                : 4;

        form_printf(&plain, "%.*s?", (int)(text + it.offset - width - from), from);
        from = text + it.offset;
    }
    form_raw(&plain, from);
    if (!plain.error)
        copy = sb_call_copy(c, plain.text ? plain.text : "", plain.len);
    form_done(&plain);
    return copy;
}

static int read_text(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    const char *type = sb_call_form(c, "type");
    struct text_measure m;

    s->text = sb_call_form(c, "text");
    if (!s->text || !*s->text)
        return refuse_read(reply, "2", "Missing text param");
    if (text_measure(s->text, strlen(s->text), &m) < 0)
        return refuse_read(reply, "3", "Invalid text param");
    if (!type || strcmp(type, "text") == 0) {
        s->text = as_gsm7(c, s->text);
        return s->text ? 0 : -ENOMEM;
    }
    if (strcmp(type, "unicode") != 0)
        return refuse_read(reply, "3", "Invalid type param");
    /* Always two octets a character then, even where GSM-7 would have done. */
    if (m.alphabet == TEXT_GSM7)
        s->parts = m.characters <= PART_UCS2
                       ? 1
                       : (unsigned)((m.characters + PART_UCS2_LONG - 1) / PART_UCS2_LONG);
    return 0;
}

static int read_options(const struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    const char *ttl = sb_call_form(c, "ttl"), *wants = sb_call_form(c, "status-report-req");
    char *end = NULL;

    s->ref = sb_call_form(c, "client-ref");
    s->callback = sb_call_form(c, "callback");
    s->validity_ms = ttl ? strtoll(ttl, &end, 10) : 0;
    s->no_receipt = wants && strcmp(wants, "true") != 0 && strcmp(wants, "1") != 0;
    if (ttl && (!*ttl || *end || s->validity_ms < 20000 || s->validity_ms > 604800000))
        return refuse_read(reply, "3", "Invalid ttl param");
    if (s->ref && strlen(s->ref) > REF_MAX)
        return refuse_read(reply, "3", "Invalid client-ref param");
    if (s->callback && strncmp(s->callback, "http://", 7) != 0 &&
        strncmp(s->callback, "https://", 8) != 0)
        return refuse_read(reply, "23", "Invalid callback url");
    return 0;
}

static int vn_read(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    int r = check_access(c, reply);

    if (r < 0)
        return r;
    s->to = sb_call_form(c, "to");
    s->from = sb_call_form(c, "from");
    if (!s->to || !*s->to)
        return refuse_read(reply, "2", "Missing to param");
    if (!s->from || !*s->from)
        return refuse_read(reply, "2", "Missing from param");
    if (!sb_vonage_is_number(s->to))
        return refuse_read(reply, "3", "Invalid to param");
    if (!sb_vonage_is_sender(s->from))
        return refuse_read(reply, "15", "Illegal Sender Address - rejected");
    r = read_text(c, s, reply);
    return r == 0 ? read_options(c, s, reply) : r;
}

/* ---- look-up -------------------------------------------------------------------------------- */

static const char *status_word(enum sb_state state)
{
    static const char *const words[] = {
        [SB_ST_QUEUED] = "accepted",     [SB_ST_SENT] = "buffered",
        [SB_ST_DELIVERED] = "delivered", [SB_ST_UNDELIVERED] = "failed",
        [SB_ST_EXPIRED] = "expired",     [SB_ST_REJECTED] = "rejected",
    };

    return words[state];
}

static int serve_reports(struct sb_call *c, struct sb_reply *reply)
{
    static const struct sb_vonage_product sms = {"SMS", status_word};

    return sb_vonage_reports(c, reply, &sms);
}

/* ---- calls to the customer ------------------------------------------------------------------ */

static int by_name(const void *a, const void *b)
{
    const struct sb_pair *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* Hex of the digest of "&name=value…" in order of names, '&' and '=' of values written as '_'.
 * The caller frees. */
static char *signature(const char *method, const char *secret, const struct sb_pair *p, size_t n)
{
    static const struct {
        const char *name;
        enum sign_hash hash;
    } hmacs[] = {
        {"md5", SIGN_MD5}, {"sha1", SIGN_SHA1}, {"sha256", SIGN_SHA256}, {"sha512", SIGN_SHA512}};
    uint8_t digest[SIGN_MAX];
    struct form f = {0};
    size_t len = 0;
    char *hex;

    for (size_t i = 0; i < n; i++) {
        form_printf(&f, "&%s=", p[i].name);
        for (const char *v = p[i].value; *v; v++)
            form_printf(&f, "%c", *v == '&' || *v == '=' ? '_' : *v);
    }
    if (strcmp(method, "md5hash") == 0)
        form_raw(&f, secret);
    if (!f.error && strcmp(method, "md5hash") == 0)
        len = sign_digest(SIGN_MD5, f.text, f.len, digest);
    for (size_t i = 0; !f.error && i < sizeof(hmacs) / sizeof(*hmacs); i++)
        if (strcmp(method, hmacs[i].name) == 0)
            len = sign_hmac(hmacs[i].hash, secret, strlen(secret), f.text, f.len, digest);
    hex = len > 0 ? sign_hex(digest, len) : NULL;
    form_done(&f);
    return hex;
}

static int as_get(struct sb_out *out, const struct sb_pair *p, size_t n)
{
    const char *target = sb_out_target(out);
    struct form f = {0};
    int r;

    form_raw(&f, target);
    if (!strchr(target, '?'))
        form_raw(&f, "?");
    for (size_t i = 0; i < n; i++)
        form_add(&f, p[i].name, p[i].value);
    r = f.error ? f.error : sb_out_call(out, "GET", f.text);
    form_done(&f);
    return r;
}

static int as_json(struct sb_out *out, const struct sb_pair *p, size_t n)
{
    json_t *body = json_object();
    int r = sb_out_call(out, "POST", sb_out_target(out));

    for (size_t i = 0; i < n; i++)
        json_object_set_new(body, p[i].name, json_string(p[i].value));
    if (r < 0) {
        json_decref(body);
        return r;
    }
    return sb_out_json(out, body);
}

static int as_form(struct sb_out *out, const struct sb_pair *p, size_t n)
{
    struct form f = {0};
    int r = sb_out_call(out, "POST", sb_out_target(out));

    for (size_t i = 0; i < n; i++)
        form_add(&f, p[i].name, p[i].value);
    if (r == 0)
        r = f.error ? f.error
                    : sb_out_body(out, "application/x-www-form-urlencoded", f.text, f.len);
    form_done(&f);
    return r;
}

/* `p` has room for one more: the signature. */
static int call(const struct sb_world *w, struct sb_pair *p, size_t n, enum sb_forge forge,
                struct sb_out *out)
{
    const char *secret = sb_setting(w, "signature_secret"), *how = sb_setting(w, "dlr_method");
    char *sig = NULL;
    int r;

    qsort(p, n, sizeof(*p), by_name);
    if (*secret && forge != SB_UNSIGNED) {
        sig = signature(sb_setting(w, "signature_method"),
                        forge == SB_FORGED ? FORGED_SECRET : secret, p, n);
        if (!sig)
            return -ENOMEM;
        p[n++] = (struct sb_pair){"sig", sig};
    }
    if (strcmp(how, "get") == 0)
        r = as_get(out, p, n);
    else
        r = strcmp(how, "post-json") == 0 ? as_json(out, p, n) : as_form(out, p, n);
    free(sig);
    return r;
}

/* "2611302230": year to minute. */
static void scts(int64_t ms, char buf[16])
{
    char date[WHEN_SIZE];

    when_local(ms, 0, date);
    snprintf(buf, 16, "%.2s%.2s%.2s%.2s%.2s", date + 2, date + 5, date + 8, date + 11, date + 14);
}

static const char *error_code(enum sb_state state)
{
    static const char *const codes[] = {
        [SB_ST_QUEUED] = "0",      [SB_ST_SENT] = "0",    [SB_ST_DELIVERED] = "0",
        [SB_ST_UNDELIVERED] = "2", [SB_ST_EXPIRED] = "1", [SB_ST_REJECTED] = "14",
    };

    return codes[state];
}

static int vn_receipt(const struct sb_world *w, const struct sb_receipt *items, size_t n,
                      enum sb_forge forge, struct sb_out *out)
{
    const struct sb_msg *m = items->msg;
    char at[WHEN_SIZE], now[24], done[16], nonce[SB_ID_SIZE];
    struct sb_pair p[16];
    size_t count = 0;

    if (n > 1)
        return -ENOTSUP;
    snprintf(now, sizeof(now), "%lld", (long long)(sb_now_ms(w) / 1000));
    scts(items->at_ms, done);
    sb_id_uuid(w, m, items->part, nonce);
    p[count++] = (struct sb_pair){"msisdn", m->to};
    p[count++] = (struct sb_pair){"to", m->from ? m->from : ""};
    p[count++] = (struct sb_pair){"network-code", "43404"};
    p[count++] = (struct sb_pair){"messageId", m->ids[items->part]};
    p[count++] = (struct sb_pair){"price", "0.03330000"};
    p[count++] = (struct sb_pair){"status", status_word(items->state)};
    p[count++] = (struct sb_pair){"scts", done};
    p[count++] = (struct sb_pair){"err-code", error_code(items->state)};
    p[count++] = (struct sb_pair){"api-key", sb_setting(w, "api_key")};
    p[count++] = (struct sb_pair){"message-timestamp", when_local(items->at_ms, 0, at)};
    p[count++] = (struct sb_pair){"timestamp", now};
    p[count++] = (struct sb_pair){"nonce", nonce};
    if (m->ref)
        p[count++] = (struct sb_pair){"client-ref", m->ref};
    return call(w, p, count, forge, out);
}

static int vn_inbound(const struct sb_world *w, const struct sb_inbound *m, enum sb_forge forge,
                      struct sb_out *out)
{
    char at[WHEN_SIZE], now[24];
    struct sb_pair p[12] = {{"msisdn", m->from},
                            {"to", m->to},
                            {"messageId", m->id},
                            {"text", m->text},
                            {"type", "text"},
                            {"keyword", m->text},
                            {"api-key", sb_setting(w, "api_key")},
                            {"message-timestamp", when_local(sb_now_ms(w), 0, at)},
                            {"timestamp", now},
                            {"nonce", m->id}};

    snprintf(now, sizeof(now), "%lld", (long long)(sb_now_ms(w) / 1000));
    return call(w, p, 10, forge, out);
}

static const struct sb_dialect_route routes[] = {
    {"POST", "/sms/json", NULL, false},
    {"GET", "/v2/reports/records", serve_reports, false},
    {NULL, NULL, NULL, false},
};

const struct sb_dialect sb_dialect_vonage = {
    .name = "vonage",
    .help = "SMS API: errors inside a 200, an id a part; look-up in reports; signed receipts",
    .settings = settings,
    .routes = routes,
    .dedup = SB_DEDUP_NONE,
    .id_per_part = true,
    .read = vn_read,
    .accept = vn_accept,
    .refuse = vn_refuse,
    .make_id = make_id,
    .receipt = vn_receipt,
    .inbound = vn_inbound,
};
