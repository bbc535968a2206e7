/* Bird's platform API of 2026: platform.bird.com. See README.md. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/callback.h"
#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/sign.h"
#include "providers/kit/verdict.h"
#include "providers/kit/when.h"
#include "providers/messagebird/messagebird.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum { TOLERANCE_S = 300 }; /* Standard Webhooks */
static const char secret_prefix[] = "whsec_";

/* ---- sending -------------------------------------------------------------------------------- */

static const char *category_of(const struct mb_self *self, const char *kind)
{
    static const char *const fixed[] = {NULL, "authentication", "transactional", "marketing"};

    if (self->category > 0)
        return fixed[self->category];
    if (strcmp(kind, "otp") == 0)
        return "authentication";
    return strcmp(kind, "campaign") == 0 ? "marketing" : "transactional";
}

int mb_bird_build(const struct mb_self *self, const struct provider_msg *msg,
                  struct provider_req *req)
{
    json_t *body = json_object();
    int r = 0;

    r |= json_object_set_new(body, "category", json_string(category_of(self, msg->kind)));
    r |= json_object_set_new(body, "from", json_string(msg->sender ? msg->sender : self->from));
    r |= json_object_set_new(body, "to", json_string(msg->recipient));
    r |= json_object_set_new(body, "text", json_stringn(msg->body, msg->body_len));
    r |= json_object_set_new(body, "metadata", json_pack("{s:s}", "message_id", msg->id));
    if (r != 0) {
        json_decref(body);
        body = NULL;
    }
    return mb_post_json(self, req, "/v1/sms/messages", msg->key, body);
}

/* Looked up by code, then by name, then by type, as far as the error gives them. */
static const struct verdict_row rows[] = {
    {"E01001", 4, PROVIDER_REJECTED, VERDICT_PLAIN},  /* ValidationError */
    {"E01003", 0, PROVIDER_THROTTLED, VERDICT_PLAIN}, /* RateLimited */
    {"E01004", 0, PROVIDER_UNKNOWN, VERDICT_PLAIN},   /* the first request is still running */
    {"E01005", 0, PROVIDER_UNKNOWN, VERDICT_PLAIN},   /* other bytes under this key before */
    {"E01033", 503, PROVIDER_REFUSED, VERDICT_PLAIN}, /* "this attempt was not executed" */
    {"E02035", 4, PROVIDER_HELD, VERDICT_PLAIN},      /* InsufficientScope */
    {"SMSNoEligibleSender", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"SMSSenderNotConfigured", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"SMSSenderReserved", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"SenderCategoryNotPermitted", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"SMSInvalidRecipient", 4, PROVIDER_REJECTED, VERDICT_PLAIN},
    {"auth_error", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"permission_error", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"billing_error", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"not_found_error", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"rate_limit_error", 4, PROVIDER_THROTTLED, VERDICT_PLAIN},
    {"validation_error", 4, PROVIDER_REJECTED, VERDICT_PLAIN},
    {"conflict_error", 4, PROVIDER_UNKNOWN, VERDICT_PLAIN},
    {"internal_error", 0, PROVIDER_UNKNOWN, VERDICT_PLAIN},
};

static bool is_country(const char *code, const char *name)
{
    return (code && strcmp(code, "E12020") == 0) ||
           (name && strcmp(name, "SMSDestinationNotEnabled") == 0);
}

static int judge_error(const struct mb_self *self, const struct provider_reply *reply,
                       const json_t *root, struct provider_verdict *v)
{
    /* The catalogue shows the error inside "error"; a client's notes show it bare. */
    const json_t *error = json_path(root, "error");
    const char *word[3], *detail;
    struct verdict_row plain = {.outcome = verdict_of_status(reply->status)};
    const struct verdict_row *row = NULL;

    if (!json_is_object(error))
        error = root;
    word[0] = json_text_at(error, "code");
    word[1] = json_text_at(error, "name");
    word[2] = json_text_at(error, "type");
    detail = json_text_at(error, "message");
    for (size_t i = 0; i < COUNT(word) && !row; i++)
        if (word[i])
            row = verdict_find(rows, COUNT(rows), reply->status, word[i]);
    if (reply->status / 100 == 4 && is_country(word[0], word[1])) {
        plain.outcome = self->hold_country ? PROVIDER_HELD : PROVIDER_REJECTED;
        row = &plain;
    }
    if (!word[0] && !word[2]) {
        row = NULL;
        detail = "the answer is not in Bird's form";
    }
    return verdict_say(self->host, v, row ? row : &plain, word[0], detail);
}

int mb_bird_judge(const struct mb_self *self, const struct provider_reply *reply,
                  struct provider_verdict *v)
{
    static const struct verdict_row accepted = {.outcome = PROVIDER_ACCEPTED};
    json_t *root = json_body(reply->body, reply->body_len);
    const char *id = json_text_at(root, "id");
    int r;

    if (reply->status / 100 == 2 && id && *id && json_text_at(root, "status")) {
        r = self->host->verdict_id(v, id, strlen(id));
        if (r == 0)
            r = verdict_say(self->host, v, &accepted, NULL, NULL);
    } else {
        r = judge_error(self, reply, root, v);
    }
    json_decref(root);
    return r;
}

/* ---- webhooks ------------------------------------------------------------------------------- */

static uint8_t *secret_bytes(const char *secret, size_t *ret_len)
{
    size_t prefix = sizeof(secret_prefix) - 1;

    if (strncmp(secret, secret_prefix, prefix) == 0)
        secret += prefix;
    return sign_unbase64(secret, strlen(secret), ret_len);
}

bool mb_bird_secret_ok(const char *secret)
{
    size_t len = 0;
    uint8_t *bytes = secret_bytes(secret, &len);

    free(bytes);
    return bytes && len > 0;
}

/* The header holds one signature, or several during a rotation: "v1,AAA= v1,BBB=". */
static bool holds(const char *header, const char *expected)
{
    size_t len = strlen(expected);
    bool found = false;

    while (*header) {
        size_t word = strcspn(header, " ");

        if (word > 3 && strncmp(header, "v1,", 3) == 0)
            found |= sign_equal(header + 3, word - 3, expected, len);
        header += word;
        header += strspn(header, " ");
    }
    return found;
}

static bool signed_by(const char *secret, const struct form *text, const char *header)
{
    uint8_t mac[SIGN_MAX];
    size_t key_len = 0, n = 0;
    uint8_t *key = secret_bytes(secret, &key_len);
    char *expected = NULL;
    bool ok;

    if (key)
        n = sign_hmac(SIGN_SHA256, key, key_len, text->text, text->len, mac);
    if (n > 0)
        expected = sign_base64(mac, n);
    ok = expected && holds(header, expected);
    free(expected);
    free(key);
    return ok;
}

static bool is_fresh(const char *stamp, int64_t now_ms)
{
    size_t len = strlen(stamp);
    int64_t at_s;

    if (len == 0 || len > 12 || strspn(stamp, "0123456789") != len)
        return false;
    at_s = strtoll(stamp, NULL, 10);
    return at_s >= now_ms / 1000 - TOLERANCE_S && at_s <= now_ms / 1000 + TOLERANCE_S;
}

static bool signature_ok(const struct mb_self *self, const struct provider_callback *cb)
{
    const char *id = callback_header(cb, "webhook-id");
    const char *stamp = callback_header(cb, "webhook-timestamp");
    const char *header = callback_header(cb, "webhook-signature");
    struct form text = {0};
    bool ok = false;

    if (!id || !stamp || !header || !is_fresh(stamp, cb->now_ms) ||
        memchr(cb->body, '\0', cb->body_len))
        return false;
    form_printf(&text, "%s.%s.", id, stamp);
    form_raw(&text, cb->body);
    for (char **secret = self->secrets; text.error == 0 && *secret && !ok; secret++)
        ok = signed_by(*secret, &text, header);
    form_done(&text);
    return ok;
}

enum { STATUS_IGNORE = PROVIDER_STATUS_MAX_ };

bool mb_status_word(const char *word, uint32_t *ret_status)
{
    static const char *const words[] = {
        [PROVIDER_STATUS_IN_TRANSIT] = "in_transit",   [PROVIDER_STATUS_DELIVERED] = "delivered",
        [PROVIDER_STATUS_UNDELIVERED] = "undelivered", [PROVIDER_STATUS_EXPIRED] = "expired",
        [PROVIDER_STATUS_REJECTED] = "rejected",       [STATUS_IGNORE] = "ignore",
    };

    for (uint32_t i = 0; word && i < COUNT(words); i++)
        if (strcmp(word, words[i]) == 0) {
            *ret_status = i;
            return true;
        }
    return false;
}

/* "undelivered" is not the end: the carrier may go on trying, and `failed` follows if it does
 * not. A final state said too early could not be taken back. */
static uint32_t status_of(const struct mb_self *self, const char *type)
{
    static const struct {
        const char *type;
        uint32_t status;
    } map[] = {
        {"sms.accepted", PROVIDER_STATUS_IN_TRANSIT},
        {"sms.sent", PROVIDER_STATUS_IN_TRANSIT},
        {"sms.undelivered", PROVIDER_STATUS_IN_TRANSIT},
        {"sms.delivered", PROVIDER_STATUS_DELIVERED},
        {"sms.failed", PROVIDER_STATUS_UNDELIVERED},
        {"sms.rejected", PROVIDER_STATUS_REJECTED},
        {"sms.expired", PROVIDER_STATUS_EXPIRED},
    };
    uint32_t status;

    if (mb_status_word(json_string_value(json_object_get(self->events, type)), &status))
        return status;
    for (size_t i = 0; i < COUNT(map); i++)
        if (strcmp(type, map[i].type) == 0)
            return map[i].status;
    return STATUS_IGNORE;
}

static const char *first_text(const json_t *data, const char *a, const char *b)
{
    const char *text = json_text_at(data, a);

    return text ? text : json_text_at(data, b);
}

static int inbound(const struct mb_self *self, const json_t *data, struct provider_events *out)
{
    struct provider_inbound in = {
        .from = json_text_at(data, "from"),
        .to = json_text_at(data, "to"),
        .text = first_text(data, "text", "body"),
        .id = first_text(data, "sms_id", "id"),
    };

    return in.from && in.text ? self->host->inbound(out, &in) : -EBADMSG;
}

/* Event types we do not know are for others: taken, and nothing said. */
static int event(const struct mb_self *self, const json_t *root, struct provider_events *out)
{
    const char *type = json_text_at(root, "type");
    const char *stamp = json_text_at(root, "timestamp");
    const json_t *data = json_path(root, "data");
    struct provider_receipt r = {0};

    if (!type || !json_is_object(data))
        return -EBADMSG;
    if (strcmp(type, "sms.received") == 0)
        return inbound(self, data, out);
    r.status = status_of(self, type);
    if (r.status == STATUS_IGNORE)
        return 0;
    r.ref = json_text_at(data, "metadata/message_id");
    r.vendor_id = first_text(data, "sms_id", "id");
    r.code = first_text(data, "error/code", "error_code");
    r.detail = first_text(data, "error/message", "error_description");
    if (!stamp || !when_parse(stamp, 0, &r.at_ms))
        r.at_ms = 0;
    return r.ref || r.vendor_id ? self->host->receipt(out, &r) : -EBADMSG;
}

int mb_bird_receipt(const struct mb_self *self, const struct provider_callback *cb,
                    struct provider_events *out)
{
    json_t *root;
    int r;

    if (self->secrets && !signature_ok(self, cb))
        return -EACCES;
    root = json_body(cb->body, cb->body_len);
    r = root ? event(self, root, out) : -EBADMSG;
    json_decref(root);
    return r;
}
