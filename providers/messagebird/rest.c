/* MessageBird's REST API: rest.messagebird.com. See README.md. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/callback.h"
#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/request.h"
#include "providers/kit/sign.h"
#include "providers/kit/verdict.h"
#include "providers/kit/when.h"
#include "providers/messagebird/messagebird.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum {
    PAGE = 100,
    /* Our clock and theirs may differ, and the list is by their time of creation. */
    LOOK_BEFORE_MS = 120 * 1000,
    LOOK_AFTER_MS = 300 * 1000,
    VALIDITY_MAX_S = 7 * 24 * 3600,
    JWT_LEEWAY_S = 1,
};

/* ---- sending -------------------------------------------------------------------------------- */

int mb_rest_build(const struct mb_self *self, const struct provider_msg *msg,
                  struct provider_req *req)
{
    static const char *const datacoding[] = {"auto", "plain", "unicode"};
    json_t *body = json_object();
    int r = 0;

    r |= json_object_set_new(body, "originator",
                             json_string(msg->sender ? msg->sender : self->from));
    r |= json_object_set_new(body, "recipients", json_pack("[s]", msg->recipient + 1));
    r |= json_object_set_new(body, "body", json_stringn(msg->body, msg->body_len));
    r |= json_object_set_new(body, "datacoding", json_string(datacoding[self->datacoding]));
    /* Without a reference no report is sent, and nothing could be found again. */
    r |= json_object_set_new(body, "reference", json_string(msg->id));
    if (msg->callback_url)
        r |= json_object_set_new(body, "reportUrl", json_string(msg->callback_url));
    if (msg->validity_ms > 0)
        r |= json_object_set_new(
            body, "validity",
            json_integer(when_validity(msg->validity_ms, 1000, 1, VALIDITY_MAX_S)));
    if (r != 0) {
        json_decref(body);
        body = NULL;
    }
    return mb_post_json(self, req, "/messages", NULL, body);
}

/* 98, 99 and 101 are known by number only; nothing says that the message was not taken. */
static const struct verdict_row rows[] = {
    {"2", 4, PROVIDER_HELD, VERDICT_PLAIN},      /* access key */
    {"9", 4, PROVIDER_REJECTED, VERDICT_PLAIN},  /* missing or bad parameter */
    {"20", 4, PROVIDER_HELD, VERDICT_PLAIN},     /* not found: the address is wrong */
    {"21", 4, PROVIDER_REJECTED, VERDICT_PLAIN}, /* bad request */
    {"25", 4, PROVIDER_HELD, VERDICT_PLAIN},     /* balance */
    {"98", 0, PROVIDER_UNKNOWN, VERDICT_PLAIN},  /* internal */
    {"99", 0, PROVIDER_UNKNOWN, VERDICT_PLAIN},  /* internal */
    {"101", 0, PROVIDER_UNKNOWN, VERDICT_PLAIN}, /* duplicate entry: of what, is not said */
};

static int judge_error(const struct mb_self *self, const struct provider_reply *reply,
                       const json_t *root, struct provider_verdict *v)
{
    char buf[24];
    const char *code = json_word_at(root, "errors/0/code", buf, sizeof(buf));
    const char *parameter = json_text_at(root, "errors/0/parameter");
    struct verdict_row by_status = {.outcome = verdict_of_status(reply->status)};
    const struct verdict_row *row = verdict_find(rows, COUNT(rows), reply->status, code);
    const char *detail = json_text_at(root, "errors/0/description");

    /* The sender is a matter of set-up: it would fail every message alike. */
    if (code && strcmp(code, "9") == 0 && parameter && strcmp(parameter, "originator") == 0)
        by_status.outcome = PROVIDER_HELD, row = &by_status;
    if (!code)
        detail = "the answer is not in MessageBird's form";
    return verdict_say(self->host, v, row ? row : &by_status, code, detail);
}

int mb_rest_judge(const struct mb_self *self, const struct provider_reply *reply,
                  struct provider_verdict *v)
{
    static const struct verdict_row accepted = {.outcome = PROVIDER_ACCEPTED};
    json_t *root = json_body(reply->body, reply->body_len);
    const char *id = json_text_at(root, "id");
    int r;

    if (reply->status / 100 == 2 && id && *id && json_is_object(json_path(root, "recipients"))) {
        r = self->host->verdict_id(v, id, strlen(id));
        if (r == 0)
            r = verdict_say(self->host, v, &accepted, NULL, NULL);
    } else {
        r = judge_error(self, reply, root, v);
    }
    json_decref(root);
    return r;
}

/* ---- asking --------------------------------------------------------------------------------- */

/* Only what we gave ourselves as a cursor: digits. */
static bool read_offset(const char *cursor, int64_t *ret)
{
    char *end;

    *ret = 0;
    if (!cursor)
        return true;
    if (strspn(cursor, "0123456789") != strlen(cursor) || !*cursor || strlen(cursor) > 9)
        return false;
    *ret = strtoll(cursor, &end, 10);
    return true;
}

int mb_rest_ask(const struct mb_self *self, const struct provider_question *q,
                struct provider_req *req)
{
    char from[WHEN_SIZE], until[WHEN_SIZE];
    struct form url = {0};
    int64_t offset;
    int r;

    if (!read_offset(q->cursor, &offset))
        return -EINVAL;
    form_printf(&url, "%s/messages?", self->url);
    form_add(&url, "recipient", q->msg->recipient + 1);
    form_add(&url, "direction", "mt");
    form_add(&url, "from", when_rfc3339(q->from_ms - LOOK_BEFORE_MS, from));
    form_add(&url, "until", when_rfc3339(q->to_ms + LOOK_AFTER_MS, until));
    form_add_i64(&url, "limit", PAGE);
    form_add_i64(&url, "offset", offset);
    r = url.error;
    if (r == 0)
        r = request_get(self->host, req, url.text, self->authorization);
    form_done(&url);
    return r;
}

static int cannot_say(const struct mb_self *self, const json_t *root, struct provider_answer *a)
{
    char buf[24];
    const char *code = json_word_at(root, "errors/0/code", buf, sizeof(buf));
    const char *words = json_text_at(root, "errors/0/description");
    int r = 0;

    if (code)
        r = self->host->answer_code(a, code, strlen(code));
    if (r == 0 && words)
        r = self->host->answer_detail(a, words, strlen(words));
    self->host->answer(a, PROVIDER_CANNOT_SAY);
    return r;
}

/* Absence is only said at the list's true end, after every page before it was looked through. */
static int judge_end(const struct mb_self *self, const json_t *root, int64_t asked, size_t n,
                     struct provider_answer *a)
{
    int64_t offset, total;
    struct form next = {0};
    int r;

    if (!json_i64_at(root, "offset", &offset) || !json_i64_at(root, "totalCount", &total) ||
        offset != asked || total < 0 || (int64_t)n > total - offset || (n == 0 && offset < total))
        return cannot_say(self, root, a);
    if (offset + (int64_t)n == total) {
        self->host->answer(a, PROVIDER_NEVER_SEEN);
        return 0;
    }
    form_printf(&next, "%" PRId64, offset + (int64_t)n);
    r = next.error ? next.error : self->host->answer_more(a, next.text, next.len);
    form_done(&next);
    return r;
}

static int judge_list(const struct mb_self *self, const struct provider_question *q,
                      const json_t *root, struct provider_answer *a)
{
    const json_t *items = json_path(root, "items");
    const json_t *item;
    int64_t asked;
    size_t i;

    if (!json_is_array(items) || !read_offset(q->cursor, &asked))
        return cannot_say(self, root, a);
    json_array_foreach ((json_t *)items, i, item) {
        const char *reference = json_text_at(item, "reference");
        const char *id = json_text_at(item, "id");

        if (!json_is_object(item) || !id || !*id)
            return cannot_say(self, root, a);
        if (!reference || strcmp(reference, q->msg->id) != 0)
            continue;
        self->host->answer(a, PROVIDER_HAS_IT);
        return self->host->answer_id(a, id, strlen(id));
    }
    return judge_end(self, root, asked, json_array_size(items), a);
}

int mb_rest_ask_judge(const struct mb_self *self, const struct provider_question *q,
                      const struct provider_reply *reply, struct provider_answer *a)
{
    json_t *root = json_body(reply->body, reply->body_len);
    int r;

    if (reply->status == 200 && root)
        r = judge_list(self, q, root, a);
    else
        r = cannot_say(self, root, a);
    json_decref(root);
    return r;
}

/* ---- reports -------------------------------------------------------------------------------- */

static bool hash_fits(const json_t *claims, const char *name, const char *data, size_t len)
{
    uint8_t digest[SIGN_MAX];
    size_t n = sign_digest(SIGN_SHA256, data, len, digest);
    char *hex = n > 0 ? sign_hex(digest, n) : NULL;
    bool fits = hex && sign_equal_text(hex, json_text_at(claims, name));

    free(hex);
    return fits;
}

static bool claims_fit(const json_t *claims, const struct provider_callback *cb)
{
    const char *issuer = json_text_at(claims, "iss");
    const json_t *payload = json_path(claims, "payload_hash");

    if (!issuer || strcmp(issuer, "MessageBird") != 0 || !json_path(claims, "nbf") ||
        !json_path(claims, "exp") || !hash_fits(claims, "url_hash", cb->url, strlen(cb->url)))
        return false;
    if (cb->body_len == 0)
        return !payload || json_is_null(payload);
    return hash_fits(claims, "payload_hash", cb->body, cb->body_len);
}

static bool signature_ok(const struct mb_self *self, const struct provider_callback *cb)
{
    const char *token = callback_header(cb, "messagebird-signature-jwt");
    bool ok = false;

    for (char **key = self->secrets; token && *key && !ok; key++) {
        json_t *claims = sign_jwt_hs_verify(token, strlen(token), *key, strlen(*key),
                                            cb->now_ms / 1000, JWT_LEEWAY_S);

        ok = claims && claims_fit(claims, cb);
        json_decref(claims);
    }
    return ok;
}

/* "2026-11-30T22:30:00+00:00" stands in a query, where a plus is a blank to most readers. */
static int64_t query_time(const char *text)
{
    int64_t ms;
    char *mended;
    size_t len = text ? strlen(text) : 0;

    if (!text)
        return 0;
    if (when_parse(text, 0, &ms))
        return ms;
    if (len < 7 || text[len - 6] != ' ' || !(mended = strdup(text)))
        return 0;
    mended[len - 6] = '+';
    if (!when_parse(mended, 0, &ms))
        ms = 0;
    free(mended);
    return ms;
}

static int report(const struct mb_self *self, const struct provider_callback *cb,
                  const char *status, struct provider_events *out)
{
    static const struct {
        const char *name;
        uint32_t status;
    } map[] = {
        {"delivered", PROVIDER_STATUS_DELIVERED}, {"delivery_failed", PROVIDER_STATUS_UNDELIVERED},
        {"expired", PROVIDER_STATUS_EXPIRED},     {"scheduled", PROVIDER_STATUS_IN_TRANSIT},
        {"sent", PROVIDER_STATUS_IN_TRANSIT},     {"buffered", PROVIDER_STATUS_IN_TRANSIT},
    };
    struct provider_receipt r = {
        .ref = callback_param(cb, "reference"),
        .vendor_id = callback_param(cb, "id"),
        .code = callback_param(cb, "statusErrorCode"),
        .detail = callback_param(cb, "statusReason"),
        .at_ms = query_time(callback_param(cb, "statusDatetime")),
    };

    if (!r.ref && !r.vendor_id)
        return -EBADMSG;
    for (size_t i = 0; i < COUNT(map); i++)
        if (strcmp(status, map[i].name) == 0) {
            r.status = map[i].status;
            return self->host->receipt(out, &r);
        }
    return -EBADMSG;
}

int mb_rest_receipt(const struct mb_self *self, const struct provider_callback *cb,
                    struct provider_events *out)
{
    const char *status = callback_param(cb, "status");
    struct provider_inbound in = {
        .from = callback_param(cb, "originator"),
        .to = callback_param(cb, "recipient"),
        .text = callback_param(cb, "body"),
        .id = callback_param(cb, "id"),
    };

    if (self->secrets && !signature_ok(self, cb))
        return -EACCES;
    if (status)
        return report(self, cb, status, out);
    if (!in.text)
        in.text = callback_param(cb, "message");
    return in.from && in.text ? self->host->inbound(out, &in) : -EBADMSG;
}
