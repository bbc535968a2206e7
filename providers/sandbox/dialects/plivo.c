/* Plivo messages, API v1: JSON in and out, errors without codes, no key and no reference of the
 * customer's. Its list has neither texts nor a filter by recipient. Receipts carry signature V3 and
 * are called as the request's `method` says. Facts: Plivo's documentation and plivo-python. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/sign.h"
#include "providers/kit/when.h"
#include "providers/sandbox/dialect.h"

#define FORGED_SECRET "not the auth token"
#define API_ID        "db342550-7c9d-11e1-8ea7-842b2b096c5d"

enum { LIST_MAX = 20, EXPIRY_MIN_S = 5, EXPIRY_MAX_S = 10800, PAIRS_MAX = 24 };

/* --- answers ---------------------------------------------------------------------------- */

static int say_error(struct sb_reply *reply, int status, const char *error)
{
    return sb_reply_json(reply, status, json_pack("{s:s, s:s}", "api_id", API_ID, "error", error));
}

static int refuse_read(struct sb_reply *reply, int status, const char *error)
{
    int rc = say_error(reply, status, error);

    return rc < 0 ? rc : -EINVAL;
}

static const char *status_word(enum sb_state state)
{
    static const char *const words[] = {
        [SB_ST_QUEUED] = "queued",       [SB_ST_SENT] = "sent",
        [SB_ST_DELIVERED] = "delivered", [SB_ST_UNDELIVERED] = "undelivered",
        [SB_ST_EXPIRED] = "failed",      [SB_ST_REJECTED] = "rejected",
    };

    return words[state];
}

/* NULL: none. */
static const char *error_code(enum sb_state state)
{
    switch (state) {
    case SB_ST_UNDELIVERED:
        return "70";
    case SB_ST_EXPIRED:
        return "420";
    case SB_ST_REJECTED:
        return "50";
    default:
        return NULL;
    }
}

/* "2026-11-30 22:30:00+00:00" */
static const char *time_of(int64_t ms, char buf[WHEN_SIZE + 8])
{
    char when[WHEN_SIZE];

    (void)snprintf(buf, WHEN_SIZE + 8, "%s+00:00", when_local(ms, 0, when));
    return buf;
}

/* The record of a message: no text in it. */
static json_t *record_json(const struct sb_msg *m)
{
    char when[WHEN_SIZE + 8];

    return json_pack("{s:s, s:s?, s:s, s:s, s:s, s:s, s:s, s:s?, s:I}", "message_uuid", m->ids[0],
                     "from_number", m->from, "to_number", m->to + (*m->to == '+'),
                     "message_direction", "outbound", "message_state", status_word(m->state),
                     "message_type", "sms", "message_time", time_of(m->taken_ms, when),
                     "error_code", error_code(m->state), "units", (json_int_t)m->parts);
}

/* --- requests --------------------------------------------------------------------------- */

/* 0, or -EINVAL with the answer. */
static int check_account(const struct sb_call *c, struct sb_reply *reply)
{
    const char *account = sb_setting(c->world, "auth_id");
    int rc;

    if (!sb_call_basic(c, account, sb_setting(c->world, "auth_token"))) {
        rc = sb_reply_text(reply, 401, "text/plain",
                           "Could not verify your access level for that URL. You have to login "
                           "with proper credentials");
        return rc < 0 ? rc : -EINVAL;
    }
    if (strcmp(sb_call_part(c, "account"), account) != 0)
        return refuse_read(reply, 404, "not found");
    return 0;
}

static bool is_number(const char *s)
{
    size_t digits = strspn(s + (*s == '+'), "0123456789");

    s += *s == '+';
    return digits >= 7 && digits <= 15 && s[digits] == '\0' && *s != '0';
}

static bool is_sender(const char *s)
{
    size_t len = strlen(s), digits = strspn(s, "0123456789");

    return is_number(s) || (digits == len && len >= 3 && len <= 8) ||
           (len >= 1 && len <= 11 && digits < len && *s != '+');
}

static int check_sender(const struct sb_send *s, const char *pack, struct sb_reply *reply)
{
    if (s->from && pack)
        return refuse_read(reply, 400, "src and powerpack_uuid cannot be given together");
    if (!s->from && !pack)
        return refuse_read(reply, 400, "src or powerpack_uuid is a mandatory parameter");
    if (s->from && !is_sender(s->from))
        return refuse_read(reply, 400, "src parameter is not valid");
    if (s->from && strcmp(s->from + (*s->from == '+'), s->to + (*s->to == '+')) == 0)
        return refuse_read(reply, 400, "src and dst cannot be the same");
    return 0;
}

static int check_fields(const struct sb_call *c, const struct sb_send *s, struct sb_reply *reply)
{
    const char *type = json_text_at(c->json, "type");

    if (!s->to || !*s->to)
        return refuse_read(reply, 400, "dst is a mandatory parameter");
    if (strchr(s->to, '<'))
        return refuse_read(reply, 400, "the sandbox takes one number in dst");
    if (!is_number(s->to))
        return refuse_read(reply, 400, "dst parameter is not valid");
    if (!s->text || !*s->text)
        return refuse_read(reply, 400, "text is a mandatory parameter");
    if (type && strcmp(type, "sms") != 0)
        return refuse_read(reply, 400, "type must be sms");
    return check_sender(s, json_text_at(c->json, "powerpack_uuid"), reply);
}

static int read_expiry(const struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    const json_t *value = json_path(c->json, "message_expiry");

    if (!value)
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < EXPIRY_MIN_S ||
        json_integer_value(value) > EXPIRY_MAX_S)
        return refuse_read(reply, 400, "message_expiry must be an integer from 5 to 10800");
    s->validity_ms = json_integer_value(value) * 1000;
    return 0;
}

/* The method is kept beside the message: "GET" or nothing. */
static int read_callback(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    const char *method = json_text_at(c->json, "method");

    s->callback = json_text_at(c->json, "url");
    if (s->callback && strncmp(s->callback, "http://", 7) != 0 &&
        strncmp(s->callback, "https://", 8) != 0)
        return refuse_read(reply, 400, "url parameter is not a valid URL");
    if (method && strcmp(method, "GET") != 0 && strcmp(method, "POST") != 0)
        return refuse_read(reply, 400, "method must be GET or POST");
    if (method && strcmp(method, "GET") == 0 && !(s->extra = sb_call_keep(c, json_string(method))))
        return -ENOMEM;
    return 0;
}

static int read_send(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    int rc = check_account(c, reply);

    if (rc < 0)
        return rc;
    if (!c->json || !sb_call_type(c, "application/json"))
        return refuse_read(reply, 400, "the body is not JSON");
    s->to = json_text_at(c->json, "dst");
    s->from = json_text_at(c->json, "src");
    s->text = json_text_at(c->json, "text");
    rc = check_fields(c, s, reply);
    if (rc == 0)
        rc = read_expiry(c, s, reply);
    return rc == 0 ? read_callback(c, s, reply) : rc;
}

static int accept_send(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m,
                       bool replay, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)replay;
    return sb_reply_json(reply, 202,
                         json_pack("{s:s, s:s, s:[s]}", "api_id", API_ID, "message",
                                   "message(s) queued", "message_uuid", m->ids[0]));
}

static int refuse_send(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                       const struct sb_msg *known, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)known;
    switch (why) {
    case SB_REFUSE_NUMBER:
        return say_error(reply, 400, "dst parameter is not valid");
    case SB_REFUSE_THROTTLED:
        return say_error(reply, 429, "Too many requests");
    case SB_REFUSE_ACCOUNT: /* its status is not confirmed */
        return say_error(reply, 402, "Insufficient credit");
    case SB_REFUSE_ERROR:
        return say_error(reply, sb_reply_status(reply), "Internal server error");
    default: /* an opt-out is known after the number was taken: delivery code 200 */
        return -ENOTSUP;
    }
}

/* --- look-ups --------------------------------------------------------------------------- */

static int serve_one(struct sb_call *c, struct sb_reply *reply)
{
    int rc = check_account(c, reply);
    const struct sb_msg *m;
    json_t *record;

    if (rc < 0)
        return rc == -EINVAL ? 0 : rc;
    m = sb_msg_by_id(c->world, sb_call_part(c, "uuid"), NULL);
    if (!m)
        return say_error(reply, 404, "not found");
    record = record_json(m);
    if (json_object_set_new(record, "api_id", json_string(API_ID)) < 0) {
        json_decref(record);
        return -ENOMEM;
    }
    return sb_reply_json(reply, 200, record);
}

static long number_of(const char *text, long fallback, long max)
{
    char *end = NULL;
    long value = text ? strtol(text, &end, 10) : fallback;

    if (text && (end == text || *end || value < 0))
        return fallback;
    return value < max ? value : max;
}

/* limit (20 at most) and offset, by time; no filter by number. */
static int serve_list(struct sb_call *c, struct sb_reply *reply)
{
    const char *from = sb_call_query(c, "message_time__gte");
    const char *to = sb_call_query(c, "message_time__lte");
    long limit = number_of(sb_call_query(c, "limit"), LIST_MAX, LIST_MAX);
    long offset = number_of(sb_call_query(c, "offset"), 0, 1000000), seen = 0;
    struct sb_filter f = {0};
    int rc = check_account(c, reply);
    json_t *list;

    if (rc < 0)
        return rc == -EINVAL ? 0 : rc;
    if ((from && !when_parse(from, 0, &f.from_ms)) || (to && !when_parse(to, 0, &f.to_ms)))
        return say_error(reply, 400, "message_time is not valid");
    list = json_array();
    for (const struct sb_msg *m = sb_msg_next(c->world, &f, NULL); m;
         m = sb_msg_next(c->world, &f, m), seen++)
        if (seen >= offset && seen < offset + limit)
            json_array_append_new(list, record_json(m));
    return sb_reply_json(reply, 200,
                         json_pack("{s:s, s:{s:I, s:I, s:I}, s:o}", "api_id", API_ID, "meta",
                                   "limit", (json_int_t)limit, "offset", (json_int_t)offset,
                                   "total_count", (json_int_t)seen, "objects", list));
}

/* --- receipts --------------------------------------------------------------------------- */

struct pairs {
    struct sb_pair p[PAIRS_MAX];
    size_t n;
};

static void add(struct pairs *list, const char *name, const char *value)
{
    if (value && list->n < PAIRS_MAX)
        list->p[list->n++] = (struct sb_pair){name, value};
}

static int by_name(const void *a, const void *b)
{
    const struct sb_pair *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* The target's own query, decoded into `text` (owned by the caller) and split there. */
static int split_query(char *text, struct pairs *ret)
{
    for (char *name = text; name && *name;) {
        char *next = strchr(name, '&');
        char *value;

        if (next)
            *next++ = '\0';
        value = strchr(name, '=');
        if (value)
            *value++ = '\0';
        if (form_decode(name, 1) < 0 || (value && form_decode(value, 1) < 0))
            return -EINVAL;
        add(ret, name, value ? value : "");
        name = next;
    }
    return 0;
}

/* URL without query, ?, query sorted as k=v, ., form sorted as kv, ., nonce. */
static int sign(struct sb_out *out, const char *secret, const char *base, struct pairs *query,
                struct pairs *form)
{
    static const char nonce[] = "05429567804466091622";
    struct form f = {0};
    uint8_t mac[SIGN_MAX];
    size_t len = 0;
    char *coded = NULL;
    int rc = -ENOMEM;

    qsort(query->p, query->n, sizeof(query->p[0]), by_name);
    qsort(form->p, form->n, sizeof(form->p[0]), by_name);
    form_raw(&f, base);
    form_raw(&f, query->n + form->n > 0 ? "?" : "");
    for (size_t i = 0; i < query->n; i++)
        form_printf(&f, "%s%s=%s", i > 0 ? "&" : "", query->p[i].name, query->p[i].value);
    form_raw(&f, query->n > 0 && form->n > 0 ? "." : "");
    for (size_t i = 0; i < form->n; i++)
        form_printf(&f, "%s%s", form->p[i].name, form->p[i].value);
    form_printf(&f, ".%s", nonce);
    if (f.error == 0)
        len = sign_hmac(SIGN_SHA256, secret, strlen(secret), f.text, f.len, mac);
    coded = len > 0 ? sign_base64(mac, len) : NULL;
    if (coded)
        rc = sb_out_header(out, "X-Plivo-Signature-V3", coded);
    if (rc == 0)
        rc = sb_out_header(out, "X-Plivo-Signature-V3-Nonce", nonce);
    free(coded);
    form_done(&f);
    return rc;
}

static int call(struct sb_out *out, const char *target, bool get, const struct pairs *form)
{
    struct form f = {0};
    int rc;

    if (get)
        form_printf(&f, "%s%s", target, strchr(target, '?') ? "" : "?");
    for (size_t i = 0; i < form->n; i++)
        form_add(&f, form->p[i].name, form->p[i].value);
    rc = f.error ? f.error : sb_out_call(out, get ? "GET" : "POST", get ? f.text : target);
    if (rc == 0 && !get)
        rc = sb_out_body(out, "application/x-www-form-urlencoded", f.text, f.len);
    form_done(&f);
    return rc;
}

/* Under GET the parameters join the query, and are signed there. */
static int send_out(const struct sb_world *w, const struct pairs *form, bool get,
                    enum sb_forge forge, struct sb_out *out)
{
    const char *target = sb_out_target(out);
    size_t base_len = strcspn(target, "?#");
    char *base = strndup(target, base_len);
    char *text = strdup(target[base_len] == '?' ? target + base_len + 1 : "");
    struct pairs query = {.n = 0}, rest = {.n = 0};
    int rc = base && text ? call(out, target, get, form) : -ENOMEM;

    if (rc == 0)
        rc = split_query(text, &query);
    for (size_t i = 0; i < form->n; i++)
        add(get ? &query : &rest, form->p[i].name, form->p[i].value);
    if (rc == 0 && forge != SB_UNSIGNED)
        rc = sign(out, forge == SB_FORGED ? FORGED_SECRET : sb_setting(w, "auth_token"), base,
                  &query, &rest);
    free(text);
    free(base);
    return rc;
}

static int receipt(const struct sb_world *w, const struct sb_receipt *items, size_t n,
                   enum sb_forge forge, struct sb_out *out)
{
    const struct sb_msg *m = items->msg;
    char taken[WHEN_SIZE + 8], at[WHEN_SIZE + 8], units[16];
    struct pairs p = {.n = 0};

    if (n > 1)
        return -ENOTSUP;
    (void)snprintf(units, sizeof(units), "%u", m->parts);
    add(&p, "MessageUUID", m->ids[0]);
    add(&p, "To", m->to + (*m->to == '+'));
    add(&p, "From", m->from ? m->from : "14155550100");
    add(&p, "Type", "sms");
    add(&p, "Status", status_word(items->state));
    add(&p, "Units", units);
    add(&p, "TotalRate", "0.00350");
    add(&p, "TotalAmount", "0.00350");
    add(&p, "MCC", "434");
    add(&p, "MNC", "05");
    add(&p, "ErrorCode", error_code(items->state));
    add(&p, "Sequence", items->state == SB_ST_SENT ? "1" : "2");
    add(&p, "MessageTime", time_of(m->taken_ms, taken));
    add(&p, "QueuedTime", taken);
    add(&p, items->state == SB_ST_SENT ? "SentTime" : "DeliveryReportTime",
        time_of(items->at_ms, at));
    return send_out(w, &p, m->extra != NULL, forge, out);
}

static int inbound(const struct sb_world *w, const struct sb_inbound *m, enum sb_forge forge,
                   struct sb_out *out)
{
    struct pairs p = {.n = 0};

    add(&p, "MessageUUID", m->id);
    add(&p, "From", m->from + (*m->from == '+'));
    add(&p, "To", m->to + (*m->to == '+'));
    add(&p, "Type", "sms");
    add(&p, "Text", m->text);
    return send_out(w, &p, false, forge, out);
}

/* --- the dialect ------------------------------------------------------------------------ */

static const struct sb_setting settings[] = {
    {"auth_id", "MASANDBOX00000000001", "the account, user of Basic"},
    {"auth_token", "sandbox-secret", "its password, and the key of X-Plivo-Signature-V3"},
    {NULL, NULL, NULL},
};

static const struct sb_dialect_route routes[] = {
    {"POST", "/v1/Account/{account}/Message/", NULL, false},
    {"GET", "/v1/Account/{account}/Message/", serve_list, false},
    {"GET", "/v1/Account/{account}/Message/{uuid}/", serve_one, false},
    {NULL, NULL, NULL, false},
};

const struct sb_dialect sb_dialect_plivo = {
    .name = "plivo",
    .help = "Messaging API v1; look-up by UUID and by time; X-Plivo-Signature-V3",
    .settings = settings,
    .routes = routes,
    .dedup = SB_DEDUP_NONE,
    .read = read_send,
    .accept = accept_send,
    .refuse = refuse_send,
    .receipt = receipt,
    .inbound = inbound,
};
