/* Twilio Messages, 2010-04-01: form in, JSON out, no de-duplication. A lost answer can be looked
 * up in the list of messages by number and day. Facts: Twilio's OpenAPI file and error pages. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "providers/kit/form.h"
#include "providers/kit/sign.h"
#include "providers/sandbox/dialect.h"
#include "worker/core/text.h"

#define VERSION       "2010-04-01"
#define BODY_MAX      1600
#define VALIDITY_MAX  36000
#define PAGE_MAX      1000
#define QUEUE_STATUS  429
#define FORGED_SECRET "not the auth token"

/* --- answers ---------------------------------------------------------------------------- */

static int say_error(struct sb_reply *reply, int status, int code, const char *message)
{
    json_t *more = json_sprintf("https://www.twilio.com/docs/errors/%d", code);

    return sb_reply_json(reply, status,
                         json_pack("{s:i, s:s, s:o, s:i}", "code", code, "message", message,
                                   "more_info", more, "status", status));
}

static int refuse_read(struct sb_reply *reply, int status, int code, const char *message)
{
    int rc = say_error(reply, status, code, message);

    return rc < 0 ? rc : -EINVAL;
}

/* RFC 2822, or null. */
static json_t *date_json(int64_t ms)
{
    time_t s = (time_t)(ms / 1000);
    struct tm tm;
    char buf[64];

    if (ms == 0 || !gmtime_r(&s, &tm) ||
        strftime(buf, sizeof(buf), "%a, %d %b %Y %H:%M:%S +0000", &tm) == 0)
        return json_null();
    return json_string(buf);
}

static const char *status_word(const struct sb_msg *m, enum sb_state state)
{
    static const char *const words[] = {
        [SB_ST_QUEUED] = "queued",       [SB_ST_SENT] = "sent",
        [SB_ST_DELIVERED] = "delivered", [SB_ST_UNDELIVERED] = "undelivered",
        [SB_ST_EXPIRED] = "failed",      [SB_ST_REJECTED] = "failed",
    };

    return state == SB_ST_QUEUED && m->extra ? "accepted" : words[state];
}

/* Twilio has no status of its own for what ran out of time: a failure with a code. 0: none. */
static int error_code(enum sb_state state)
{
    switch (state) {
    case SB_ST_UNDELIVERED:
        return 30003;
    case SB_ST_EXPIRED:
        return 30036;
    case SB_ST_REJECTED:
        return 30007;
    default:
        return 0;
    }
}

/* `extra` of a message is its MessagingServiceSid. */
static json_t *message_json(const struct sb_world *w, const struct sb_msg *m)
{
    const char *account = sb_setting(w, "account_sid");
    int code = error_code(m->state);
    json_t *parts = json_sprintf("%u", m->state == SB_ST_QUEUED && m->extra ? 0 : m->parts);
    json_t *uri = json_sprintf("/" VERSION "/Accounts/%s/Messages/%s.json", account, m->ids[0]);
    json_t *sent = date_json(m->state == SB_ST_QUEUED ? 0 : m->changed_ms);
    json_t *error = code ? json_integer(code) : json_null();

    return json_pack(
        "{s:s, s:s, s:s, s:s?, s:s, s:s, s:s, s:o, s:s, s:n, s:s, s:o, s:n, s:o, s:o, s:o, s:O?, "
        "s:o}",
        "sid", m->ids[0], "account_sid", account, "to", m->to, "from", m->from, "body", m->text,
        "status", status_word(m, m->state), "direction", "outbound-api", "num_segments", parts,
        "num_media", "0", "price", "price_unit", "USD", "error_code", error, "error_message",
        "date_created", date_json(m->taken_ms), "date_updated", date_json(m->changed_ms),
        "date_sent", sent, "messaging_service_sid", m->extra, "uri", uri);
}

/* --- requests --------------------------------------------------------------------------- */

/* 0, or -EINVAL with the answer. */
static int check_account(const struct sb_call *c, struct sb_reply *reply)
{
    const char *account = sb_setting(c->world, "account_sid");

    if (!sb_call_basic(c, account, sb_setting(c->world, "auth_token")))
        return refuse_read(reply, 401, 20003, "Authenticate");
    if (strcmp(sb_call_part(c, "account"), account) != 0)
        return refuse_read(reply, 404, 20404, "The requested resource was not found");
    return 0;
}

static bool is_e164(const char *s)
{
    size_t digits = *s == '+' ? strspn(s + 1, "0123456789") : 0;

    return digits >= 7 && digits <= 15 && s[digits + 1] == '\0' && s[1] != '0';
}

/* A number, a short code, or up to eleven letters, digits and blanks with a letter in it. */
static bool is_sender(const char *s)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    size_t len = strlen(s);
    size_t digits = strspn(s, "0123456789");

    if (is_e164(s) || (digits == len && len >= 3 && len <= 8))
        return true;
    return len >= 1 && len <= 11 && strpbrk(s, letters) &&
           strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 &-_+") == len;
}

static int check_fields(struct sb_call *c, const struct sb_send *s, const char *service,
                        struct sb_reply *reply)
{
    struct text_measure m;

    if (!s->to || !*s->to)
        return refuse_read(reply, 400, 21604, "A 'To' phone number is required.");
    if (!is_e164(s->to))
        return refuse_read(reply, 400, 21211,
                           sb_call_printf(c, "Invalid 'To' Phone Number: %s", s->to));
    if (!s->from && !service)
        return refuse_read(reply, 400, 21603, "A 'From' phone number is required.");
    if (s->from && !is_sender(s->from))
        return refuse_read(reply, 400, 21606,
                           "The 'From' phone number provided is not a valid, message-capable "
                           "Twilio phone number for this destination");
    if (!s->text || !*s->text)
        return refuse_read(reply, 400, 21602, "Message body is required.");
    if (text_measure(s->text, strlen(s->text), &m) < 0 || m.characters > BODY_MAX)
        return refuse_read(reply, 400, 21617,
                           "The concatenated message body exceeds the 1600 character limit.");
    return 0;
}

static int read_validity(const struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    const char *text = sb_call_form(c, "ValidityPeriod");
    char *end = NULL;

    if (!text)
        return 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < 1 || value > VALIDITY_MAX)
        return refuse_read(reply, 400, 20001, "Invalid ValidityPeriod"); /* code not confirmed */
    s->validity_ms = value * 1000L;
    return 0;
}

/* A host name with an underscore is refused. */
static int read_callback(const struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    const char *url = sb_call_form(c, "StatusCallback");
    const char *host = url ? strstr(url, "://") : NULL;

    if (!url)
        return 0;
    if (!host || (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) ||
        memchr(host + 3, '_', strcspn(host + 3, "/?#:")))
        return refuse_read(reply, 400, 21609, "The StatusCallback URL is not a valid URL.");
    s->callback = url;
    return 0;
}

static int read_send(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    const char *service = sb_call_form(c, "MessagingServiceSid");
    int rc = check_account(c, reply);

    if (rc < 0)
        return rc;
    s->to = sb_call_form(c, "To"); /* names count upper and lower case */
    s->from = sb_call_form(c, "From");
    s->text = sb_call_form(c, "Body");
    rc = check_fields(c, s, service, reply);
    if (rc == 0)
        rc = read_validity(c, s, reply);
    if (rc == 0)
        rc = read_callback(c, s, reply);
    if (rc == 0 && service && !(s->extra = sb_call_keep(c, json_string(service))))
        rc = -ENOMEM;
    return rc;
}

static int accept_send(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m,
                       bool replay, struct sb_reply *reply)
{
    (void)s;
    (void)replay;
    return sb_reply_json(reply, 201, message_json(c->world, m));
}

static int refuse_send(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                       const struct sb_msg *known, struct sb_reply *reply)
{
    (void)known;
    switch (why) {
    case SB_REFUSE_NUMBER:
        return say_error(reply, 400, 21211,
                         sb_call_printf(c, "Invalid 'To' Phone Number: %s", s ? s->to : ""));
    case SB_REFUSE_THROTTLED:
        sb_reply_header(reply, "Twilio-Concurrent-Requests", "100");
        return say_error(reply, 429, 20429, "Too Many Requests");
    case SB_REFUSE_OPT_OUT:
        return say_error(reply, 400, 21610, "Attempt to send to unsubscribed recipient");
    case SB_REFUSE_LATER:
        return say_error(reply, QUEUE_STATUS, 21611,
                         "This 'From' number has exceeded the maximum number of queued messages");
    case SB_REFUSE_ACCOUNT:
        return say_error(reply, 401, 20003, "Authenticate");
    case SB_REFUSE_ERROR:
        return say_error(reply, sb_reply_status(reply), 20500, "Internal Server Error");
    default:
        return -ENOTSUP;
    }
}

static void make_id(const struct sb_world *w, const struct sb_msg *m, size_t part,
                    char buf[SB_ID_SIZE])
{
    sb_id_hex(w, m, part, "SM", 32, buf);
}

/* --- look-ups --------------------------------------------------------------------------- */

static int serve_one(struct sb_call *c, struct sb_reply *reply)
{
    int rc = check_account(c, reply);

    if (rc < 0)
        return rc == -EINVAL ? 0 : rc;
    const struct sb_msg *m = sb_msg_by_id(c->world, sb_call_part(c, "sid"), NULL);
    if (!m)
        return say_error(reply, 404, 20404, "The requested resource was not found");
    return sb_reply_json(reply, 200, message_json(c->world, m));
}

static long number_of(const char *text, long fallback, long max)
{
    char *end = NULL;
    long value = text ? strtol(text, &end, 10) : fallback;

    if (text && (end == text || *end || value < 0))
        return fallback;
    return value < max ? value : max;
}

/* "2026-11-30" of the day (UTC) a message was sent on; "" while it was not. */
static void sent_day(const struct sb_msg *m, char buf[16])
{
    time_t s = (time_t)(m->changed_ms / 1000);
    struct tm tm;

    buf[0] = '\0';
    if (m->state != SB_ST_QUEUED && gmtime_r(&s, &tm))
        strftime(buf, 16, "%Y-%m-%d", &tm);
}

/* DateSent, DateSent<, DateSent> compare days; what has no date fits none of them. */
static bool day_fits(const struct sb_call *c, const struct sb_msg *m)
{
    const char *on = sb_call_query(c, "DateSent");
    const char *before = sb_call_query(c, "DateSent<");
    const char *after = sb_call_query(c, "DateSent>");
    char day[16];

    if (!on && !before && !after)
        return true;
    sent_day(m, day);
    return day[0] && (!on || strncmp(day, on, 10) == 0) &&
           (!before || strncmp(day, before, 10) <= 0) && (!after || strncmp(day, after, 10) >= 0);
}

static json_t *next_page(struct sb_call *c, long page, long size, const char *last)
{
    struct form f = {0};
    json_t *uri = NULL;

    form_printf(&f, "/" VERSION "/Accounts/%s/Messages.json?", sb_call_part(c, "account"));
    for (size_t i = 0; i < c->query_n; i++)
        if (strncmp(c->query[i].name, "Page", 4) != 0)
            form_add(&f, c->query[i].name, c->query[i].value);
    form_add_i64(&f, "PageSize", size);
    form_add_i64(&f, "Page", page + 1);
    form_raw(&f, "&PageToken=PA");
    form_raw(&f, last);
    if (f.error == 0)
        uri = json_string(f.text);
    form_done(&f);
    return uri;
}

/* A page token is "PA" and the last id of the page before. */
static int serve_list(struct sb_call *c, struct sb_reply *reply)
{
    const struct sb_filter f = {.to = sb_call_query(c, "To"), .from = sb_call_query(c, "From")};
    const char *token = sb_call_query(c, "PageToken");
    long size = number_of(sb_call_query(c, "PageSize"), 50, PAGE_MAX);
    long page = number_of(sb_call_query(c, "Page"), 0, 1000000);
    const struct sb_msg *m = NULL;
    json_t *next = json_null();
    int rc = check_account(c, reply);

    if (rc < 0)
        return rc == -EINVAL ? 0 : rc;
    if (token && (strncmp(token, "PA", 2) != 0 || !(m = sb_msg_by_id(c->world, token + 2, NULL))))
        return say_error(reply, 400, 20006, "Invalid PageToken");
    json_t *list = json_array();
    while ((m = sb_msg_next(c->world, &f, m))) {
        if (!day_fits(c, m))
            continue;
        if ((long)json_array_size(list) == size) {
            json_t *last = json_object_get(json_array_get(list, (size_t)size - 1), "sid");
            next = next_page(c, page, size, json_string_value(last));
            break;
        }
        json_array_append_new(list, message_json(c->world, m));
    }
    return sb_reply_json(reply, 200,
                         json_pack("{s:o, s:I, s:I, s:I, s:o}", "messages", list, "page",
                                   (json_int_t)page, "page_size", (json_int_t)size, "start",
                                   (json_int_t)page * size, "next_page_uri", next));
}

/* --- receipts --------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const struct sb_pair *x = a;
    const struct sb_pair *y = b;

    return strcmp(x->name, y->name);
}

/* base64(HMAC-SHA1(token, URL and all parameters' names and values, by name)). */
static int sign(struct sb_out *out, const char *secret, const char *url, const struct sb_pair *p,
                size_t n)
{
    struct form f = {0};
    uint8_t mac[SIGN_MAX];
    int rc = -ENOMEM;

    form_raw(&f, url);
    for (size_t i = 0; i < n; i++) {
        form_raw(&f, p[i].name);
        form_raw(&f, p[i].value);
    }
    size_t len =
        f.error == 0 ? sign_hmac(SIGN_SHA1, secret, strlen(secret), f.text, f.len, mac) : 0;
    char *text = len > 0 ? sign_base64(mac, len) : NULL;
    if (text)
        rc = sb_out_header(out, "X-Twilio-Signature", text);
    free(text);
    form_done(&f);
    return rc;
}

/* POST of the parameters (put in order here) to the target, whose fragment is Twilio's own. */
static int post(const struct sb_world *w, struct sb_pair *p, size_t n, enum sb_forge forge,
                struct sb_out *out)
{
    const char *target = sb_out_target(out);
    char *url = strndup(target, strcspn(target, "#"));
    struct form f = {0};
    int rc = url ? sb_out_call(out, "POST", url) : -ENOMEM;

    qsort(p, n, sizeof(*p), by_name);
    for (size_t i = 0; i < n; i++)
        form_add(&f, p[i].name, p[i].value);
    if (rc == 0)
        rc = f.error;
    if (rc == 0)
        rc = sb_out_body(out, "application/x-www-form-urlencoded; charset=utf-8", f.text, f.len);
    if (rc == 0 && forge != SB_UNSIGNED)
        rc = sign(out, forge == SB_FORGED ? FORGED_SECRET : sb_setting(w, "auth_token"), url, p, n);
    form_done(&f);
    free(url);
    return rc;
}

static int receipt(const struct sb_world *w, const struct sb_receipt *items, size_t n,
                   enum sb_forge forge, struct sb_out *out)
{
    const struct sb_msg *m = items->msg;
    const char *status = status_word(m, items->state);
    int code = error_code(items->state);
    struct sb_pair p[10];
    size_t count = 0;
    char code_text[16];

    if (n > 1)
        return -ENOTSUP;
    p[count++] = (struct sb_pair){"MessageSid", m->ids[0]};
    p[count++] = (struct sb_pair){"MessageStatus", status};
    p[count++] = (struct sb_pair){"SmsSid", m->ids[0]};
    p[count++] = (struct sb_pair){"SmsStatus", status};
    p[count++] = (struct sb_pair){"To", m->to};
    p[count++] = (struct sb_pair){"AccountSid", sb_setting(w, "account_sid")};
    p[count++] = (struct sb_pair){"ApiVersion", VERSION};
    if (m->from)
        p[count++] = (struct sb_pair){"From", m->from};
    if (m->extra)
        p[count++] = (struct sb_pair){"MessagingServiceSid", json_string_value(m->extra)};
    if (code) {
        snprintf(code_text, sizeof(code_text), "%d", code);
        p[count++] = (struct sb_pair){"ErrorCode", code_text};
    }
    return post(w, p, count, forge, out);
}

static int inbound(const struct sb_world *w, const struct sb_inbound *m, enum sb_forge forge,
                   struct sb_out *out)
{
    char sid[SB_ID_SIZE];

    snprintf(sid, sizeof(sid), "SM%s", m->id);
    struct sb_pair p[] = {{"MessageSid", sid},
                          {"SmsSid", sid},
                          {"SmsMessageSid", sid},
                          {"SmsStatus", "received"},
                          {"AccountSid", sb_setting(w, "account_sid")},
                          {"ApiVersion", VERSION},
                          {"From", m->from},
                          {"To", m->to},
                          {"Body", m->text},
                          {"NumMedia", "0"},
                          {"NumSegments", "1"}};

    return post(w, p, sizeof(p) / sizeof(p[0]), forge, out);
}

/* --- the dialect ------------------------------------------------------------------------ */

static const struct sb_setting settings[] = {
    {"account_sid", "AC00000000000000000000000000000001", "the account, user of Basic"},
    {"auth_token", "sandbox-secret", "its password, and the key of X-Twilio-Signature"},
    {NULL, NULL, NULL},
};

static const struct sb_dialect_route routes[] = {
    {"POST", "/" VERSION "/Accounts/{account}/Messages.json", NULL, false},
    {"GET", "/" VERSION "/Accounts/{account}/Messages.json", serve_list, false},
    {"GET", "/" VERSION "/Accounts/{account}/Messages/{sid}.json", serve_one, false},
    {NULL, NULL, NULL, false},
};

const struct sb_dialect sb_dialect_twilio = {
    .name = "twilio",
    .help = "Messages API; look-up by SID and by number; X-Twilio-Signature",
    .settings = settings,
    .routes = routes,
    .dedup = SB_DEDUP_NONE,
    .read = read_send,
    .accept = accept_send,
    .refuse = refuse_send,
    .make_id = make_id,
    .receipt = receipt,
    .inbound = inbound,
};
