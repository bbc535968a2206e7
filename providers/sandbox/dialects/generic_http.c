/* The generic vendor: JSON or form in, JSON out, replays under Idempotency-Key as the IETF draft
 * says, a look-up by key, and JSON receipts under an HMAC. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/json.h"
#include "providers/kit/sign.h"
#include "providers/sandbox/dialect.h"

#define FORGED_SECRET "not the secret"

static int say_error(struct sb_reply *reply, int status, const char *error)
{
    return sb_reply_json(reply, status, json_pack("{s:s}", "error", error));
}

static int refuse_read(struct sb_reply *reply, int status, const char *error)
{
    int rc = say_error(reply, status, error);

    return rc < 0 ? rc : -EINVAL;
}

static bool may(const struct sb_call *c)
{
    const char *token = sb_setting(c->world, "token");
    const char *given = sb_call_bearer(c, "Bearer");

    return !*token || (given && strcmp(given, token) == 0);
}

/* --- messages --------------------------------------------------------------------------- */

static const char *field(const struct sb_call *c, const char *name)
{
    return c->json ? json_text_at(c->json, name) : sb_call_form(c, name);
}

/* The header first; a structured-field string loses its quotes. */
static const char *read_key(struct sb_call *c)
{
    const char *s = sb_call_header(c, "Idempotency-Key");
    size_t len = s ? strlen(s) : 0;

    if (len > 2 && s[0] == '"' && s[len - 1] == '"')
        return sb_call_copy(c, s + 1, len - 2);
    return s && *s ? s : field(c, "key");
}

static int read_send(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    int64_t validity_s = 0;

    if (!may(c))
        return refuse_read(reply, 401, "unauthorized");
    s->to = field(c, "to");
    s->text = field(c, "text");
    s->from = field(c, "from");
    s->callback = field(c, "callback_url");
    s->ref = field(c, "ref");
    s->key = read_key(c);
    if (c->json && json_i64_at(c->json, "validity_s", &validity_s))
        s->validity_ms = validity_s * 1000;
    if (!s->to || !*s->to || !s->text)
        return refuse_read(reply, 400, "invalid_request");
    if (strspn(s->to, "+0123456789") != strlen(s->to))
        return refuse_read(reply, 400, "invalid_number");
    return 0;
}

static int accept_send(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m,
                       bool replay, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    if (replay)
        sb_reply_header(reply, "Idempotency-Replay", "true");
    return sb_reply_json(reply, replay ? 200 : 202,
                         json_pack("{s:s, s:s}", "id", m->ids[0], "status", "accepted"));
}

static int refuse_send(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                       const struct sb_msg *known, struct sb_reply *reply)
{
    static const struct {
        int status; /* 0: the knob's */
        const char *error;
    } rows[SB_REFUSALS_] = {
        [SB_REFUSE_NUMBER] = {400, "invalid_number"},
        [SB_REFUSE_THROTTLED] = {429, "too_many_requests"},
        [SB_REFUSE_OPT_OUT] = {422, "opted_out"},
        [SB_REFUSE_LATER] = {503, "try_later"},
        [SB_REFUSE_ACCOUNT] = {402, "no_balance"},
        [SB_REFUSE_MISMATCH] = {422, "key_reused"},
        [SB_REFUSE_RUNNING] = {409, "in_progress"},
        [SB_REFUSE_ERROR] = {0, "internal"},
    };

    (void)c;
    (void)s;
    (void)known;
    if (!rows[why].error)
        return -ENOTSUP;
    if (why == SB_REFUSE_THROTTLED || why == SB_REFUSE_LATER)
        sb_reply_header(reply, "Retry-After", "1");
    return say_error(reply, rows[why].status ? rows[why].status : sb_reply_status(reply),
                     rows[why].error);
}

/* --- look-ups --------------------------------------------------------------------------- */

static const char *status_word(enum sb_state state)
{
    static const char *const words[] = {
        [SB_ST_QUEUED] = "accepted",     [SB_ST_SENT] = "sent",
        [SB_ST_DELIVERED] = "delivered", [SB_ST_UNDELIVERED] = "undelivered",
        [SB_ST_EXPIRED] = "expired",     [SB_ST_REJECTED] = "rejected",
    };

    return words[state];
}

static json_t *message_json(const struct sb_msg *m, enum sb_state state, int64_t at_ms)
{
    return json_pack("{s:s, s:s?, s:s?, s:s, s:s, s:I}", "id", m->ids[0], "key", m->key, "ref",
                     m->ref, "to", m->to, "status", status_word(state), "at_ms", (json_int_t)at_ms);
}

static int serve_list(struct sb_call *c, struct sb_reply *reply)
{
    const struct sb_filter f = {.key = sb_call_query(c, "key"),
                                .to = sb_call_query(c, "to"),
                                .ref = sb_call_query(c, "ref")};
    const struct sb_msg *m = NULL;

    if (!may(c))
        return say_error(reply, 401, "unauthorized");
    json_t *list = json_array();
    while (json_array_size(list) < 100 && (m = sb_msg_next(c->world, &f, m)))
        json_array_append_new(list, message_json(m, m->state, m->changed_ms));
    return sb_reply_json(reply, 200, json_pack("{s:o}", "messages", list));
}

/* --- receipts --------------------------------------------------------------------------- */

/* "sha256=" and the body's HMAC-SHA256 in hexadecimal digits. */
static int post(const struct sb_world *w, json_t *take, enum sb_forge forge, struct sb_out *out)
{
    const char *secret = forge == SB_FORGED ? FORGED_SECRET : sb_setting(w, "secret");
    uint8_t mac[SIGN_MAX];
    char *header = NULL;
    int rc = sb_out_call(out, "POST", sb_out_target(out));
    int filled = sb_out_json(out, take);

    if (rc < 0 || filled < 0)
        return -ENOMEM;
    if (forge == SB_UNSIGNED)
        return 0;
    const char *body = sb_out_text(out);
    size_t len = sign_hmac(SIGN_SHA256, secret, strlen(secret), body, strlen(body), mac);
    char *hex = len > 0 ? sign_hex(mac, len) : NULL;
    if (hex && asprintf(&header, "sha256=%s", hex) > 0)
        rc = sb_out_header(out, "X-Signature", header);
    else
        rc = -ENOMEM;
    free(header);
    free(hex);
    return rc;
}

static int receipt(const struct sb_world *w, const struct sb_receipt *items, size_t n,
                   enum sb_forge forge, struct sb_out *out)
{
    json_t *body = NULL;

    if (n == 1)
        return post(w, message_json(items->msg, items->state, items->at_ms), forge, out);
    body = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(body, message_json(items[i].msg, items[i].state, items[i].at_ms));
    return post(w, json_pack("{s:o}", "receipts", body), forge, out);
}

static int inbound(const struct sb_world *w, const struct sb_inbound *m, enum sb_forge forge,
                   struct sb_out *out)
{
    return post(w,
                json_pack("{s:s, s:s, s:s, s:s, s:s}", "type", "inbound", "id", m->id, "from",
                          m->from, "to", m->to, "text", m->text),
                forge, out);
}

static const struct sb_setting settings[] = {
    {"token", "", "wanted as Authorization: Bearer TOKEN; empty: nothing is checked"},
    {"secret", "sandbox-secret", "the key of X-Signature"},
    {NULL, NULL, NULL},
};

static const struct sb_dialect_route routes[] = {
    {"POST", "/messages", NULL, false},
    {"GET", "/messages", serve_list, false},
    {NULL, NULL, NULL, false},
};

const struct sb_dialect sb_dialect_http = {
    .name = "http",
    .help = "JSON POST /messages as without a dialect, with look-up by key and signed receipts",
    .settings = settings,
    .routes = routes,
    .dedup = SB_DEDUP_REPLAY,
    .read = read_send,
    .accept = accept_send,
    .refuse = refuse_send,
    .receipt = receipt,
    .inbound = inbound,
};
