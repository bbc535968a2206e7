/* Africa's Talking: JSON at /version1/messaging/bulk, a form at /version1/messaging. What became
 * of a recipient stands inside the answer 201. Receipts carry the vendor's id alone and no
 * signature. Facts: the vendor's Python client and notes on notifications. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/sandbox/dialect.h"

#define NETWORK "63902"

static int refuse_text(struct sb_reply *reply, int status, const char *text)
{
    int rc = sb_reply_text(reply, status, "text/plain; charset=utf-8", text);

    return rc < 0 ? rc : -EINVAL;
}

static int say(struct sb_reply *reply, int http, const char *message, const char *number, int code,
               const char *status, const char *id)
{
    return sb_reply_json(
        reply, http,
        json_pack("{s:{s:s, s:[{s:i, s:s, s:s, s:s, s:s, s:i}]}}", "SMSMessageData", "Message",
                  message, "Recipients", "statusCode", code, "number", number, "status", status,
                  "cost", code < 200 ? "KES 0.8000" : "0", "messageId", id, "messageParts", 1));
}

/* Nobody was written to. */
static int refuse_empty(struct sb_reply *reply, const char *message)
{
    int rc = sb_reply_json(
        reply, 201,
        json_pack("{s:{s:s, s:[]}}", "SMSMessageData", "Message", message, "Recipients"));

    return rc < 0 ? rc : -EINVAL;
}

/* ---- requests ------------------------------------------------------------------------------- */

static bool is_e164(const char *s)
{
    size_t digits = *s == '+' ? strspn(s + 1, "0123456789") : 0;

    return digits >= 7 && digits <= 15 && s[digits + 1] == '\0' && s[1] != '0';
}

static bool is_sender(const char *s)
{
    size_t len = strlen(s);

    return len >= 1 && (strspn(s, "+0123456789") == len ? len <= 16 : len <= 11);
}

static int read_form(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    const char *enqueue = sb_call_form(c, "enqueue");

    if (!sb_call_type(c, "application/x-www-form-urlencoded"))
        return refuse_text(reply, 415, "Unsupported content type");
    s->to = sb_call_form(c, "to");
    s->text = sb_call_form(c, "message");
    s->from = sb_call_form(c, "from");
    if (!s->to || !*s->to)
        return refuse_text(reply, 400, "Request is missing required form field 'to'");
    if (!s->text || !*s->text)
        return refuse_text(reply, 400, "Request is missing required form field 'message'");
    if (enqueue && strcmp(enqueue, "1") == 0 && !(s->extra = sb_call_keep(c, json_true())))
        return -ENOMEM;
    return 0;
}

static int read_bulk(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    const json_t *numbers = json_path(c->json, "phoneNumbers");

    if (!sb_call_type(c, "application/json") || !json_is_object(c->json))
        return refuse_text(reply, 400, "Request body is not JSON");
    s->text = json_text_at(c->json, "message");
    s->from = json_text_at(c->json, "senderId");
    s->to = json_text_at(c->json, "phoneNumbers/0");
    if (!s->text || !*s->text)
        return refuse_text(reply, 400, "Request is missing required field 'message'");
    if (json_array_size(numbers) != 1 || !s->to) /* the sandbox takes one a request */
        return refuse_text(reply, 400, "Request is missing required field 'phoneNumbers'");
    return 0;
}

static int read_send(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    bool bulk = strcmp(c->path, "/version1/messaging/bulk") == 0;
    const char *key = sb_call_header(c, "apiKey");
    const char *user = bulk ? json_text_at(c->json, "username") : sb_call_form(c, "username");
    int rc;

    if (!key || strcmp(key, sb_setting(c->world, "api_key")) != 0 || !user ||
        strcmp(user, sb_setting(c->world, "username")) != 0)
        return refuse_text(reply, 401, "The supplied authentication is invalid");
    rc = bulk ? read_bulk(c, s, reply) : read_form(c, s, reply);
    if (rc < 0)
        return rc;
    if (s->from && !is_sender(s->from))
        return refuse_empty(reply, "InvalidSenderId");
    if (is_e164(s->to))
        return 0;
    rc = say(reply, 201, "Sent to 0/1 Total Cost: 0", s->to, 403, "InvalidPhoneNumber", "None");
    return rc < 0 ? rc : -EINVAL;
}

static int accept_send(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m,
                       bool replay, struct sb_reply *reply)
{
    const char *accept = sb_call_header(c, "Accept");

    (void)replay;
    if (!accept || !strstr(accept, "application/json"))
        return sb_reply_printf(reply, 201, "application/xml",
                               "<AfricasTalkingResponse><SMSMessageData><Message>Sent to 1/1"
                               "</Message><Recipients><Recipient><number>%s</number>"
                               "<status>Success</status><messageId>%s</messageId></Recipient>"
                               "</Recipients></SMSMessageData></AfricasTalkingResponse>",
                               m->to, m->ids[0]);
    return say(reply, 201, "Sent to 1/1 Total Cost: KES 0.8000", m->to, s->extra ? 102 : 101,
               s->extra ? "Queued" : "Success", m->ids[0]);
}

static int refuse_send(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                       const struct sb_msg *known, struct sb_reply *reply)
{
    static const char nobody[] = "Sent to 0/1 Total Cost: 0";
    const char *to = s && s->to ? s->to : "";

    (void)c;
    (void)known;
    switch (why) {
    case SB_REFUSE_NUMBER:
        return say(reply, 201, nobody, to, 403, "InvalidPhoneNumber", "None");
    case SB_REFUSE_OPT_OUT:
        return say(reply, 201, nobody, to, 406, "UserInBlacklist", "None");
    case SB_REFUSE_LATER:
        return say(reply, 201, nobody, to, 501, "GatewayError", "None");
    case SB_REFUSE_ACCOUNT:
        return say(reply, 201, nobody, to, 405, "InsufficientBalance", "None");
    case SB_REFUSE_ERROR:
        return sb_reply_text(reply, sb_reply_status(reply), "text/plain", "Internal server error");
    default:
        return -ENOTSUP; /* no rate limit is published, hence no answer for it */
    }
}

static void make_id(const struct sb_world *w, const struct sb_msg *m, size_t part,
                    char buf[SB_ID_SIZE])
{
    sb_id_hex(w, m, part, "ATXid_", 32, buf);
}

/* ---- receipts ------------------------------------------------------------------------------- */

static int post(struct sb_out *out, const struct form *f)
{
    int rc = f->error ? f->error : sb_out_call(out, "POST", sb_out_target(out));

    return rc < 0 ? rc : sb_out_body(out, "application/x-www-form-urlencoded", f->text, f->len);
}

static int receipt(const struct sb_world *w, const struct sb_receipt *items, size_t n,
                   enum sb_forge forge, struct sb_out *out)
{
    static const char *const words[] = {
        [SB_ST_QUEUED] = "Buffered",    [SB_ST_SENT] = "Sent",       [SB_ST_DELIVERED] = "Success",
        [SB_ST_UNDELIVERED] = "Failed", [SB_ST_EXPIRED] = "Expired", [SB_ST_REJECTED] = "Rejected",
    };
    const struct sb_msg *m = items->msg;
    struct form f = {0};
    int rc;

    (void)w;
    (void)forge; /* there is no signature to forge */
    if (n > 1)
        return -ENOTSUP;
    form_add(&f, "id", m->ids[items->part]);
    form_add(&f, "status", words[items->state]);
    form_add(&f, "phoneNumber", m->to);
    form_add(&f, "networkCode", NETWORK);
    if (items->state == SB_ST_UNDELIVERED)
        form_add(&f, "failureReason", "DeliveryFailure");
    else if (items->state == SB_ST_REJECTED)
        form_add(&f, "failureReason", "UserInBlackList");
    form_add(&f, "retryCount", "0");
    rc = post(out, &f);
    form_done(&f);
    return rc;
}

static int inbound(const struct sb_world *w, const struct sb_inbound *m, enum sb_forge forge,
                   struct sb_out *out)
{
    struct form f = {0};
    int rc;

    (void)w;
    (void)forge;
    form_add(&f, "from", m->from);
    form_add(&f, "to", m->to);
    form_add(&f, "text", m->text);
    form_add(&f, "id", m->id);
    form_add(&f, "linkId", "sandbox-link");
    form_add(&f, "networkCode", NETWORK);
    rc = post(out, &f);
    form_done(&f);
    return rc;
}

static const struct sb_setting settings[] = {
    {"username", "sandbox", "the user name, in every request"},
    {"api_key", "atsk_sandbox", "the header apiKey"},
    {NULL, NULL, NULL},
};

static const struct sb_dialect_route routes[] = {
    {"POST", "/version1/messaging/bulk", NULL, false},
    {"POST", "/version1/messaging", NULL, false},
    {NULL, NULL, NULL, false},
};

const struct sb_dialect sb_dialect_africastalking = {
    .name = "africastalking",
    .help = "bulk JSON and legacy form; failures inside 201; unsigned receipts by id",
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
