#include "worker/cli/trial.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "worker/cli/mask.h"
#include "worker/cli/vendor_call.h"
#include "worker/core/classify.h"
#include "worker/core/err.h"
#include "worker/engine/config.h"
#include "worker/io/clock.h"

enum { LIFE_MS = 300000, REPLY_SHOWN = 2000, PAGES_MAX = 20 };

static const char dry_token[] = "TOKEN-OF-THE-LOGIN";

/* ---- what may be shown --------------------------------------------------------------------- */

/* New; "" when out of memory, and a note where the bytes are no text. */
static json_t *shown(const struct trial *t, const char *text, size_t len)
{
    char *clean = mask_text(t->mask, text, len);
    json_t *value = clean ? json_string(clean) : NULL;

    if (clean && !value)
        value = json_sprintf("(%zu bytes that are no UTF-8 text)", len);
    free(clean);
    return value ? value : json_string("");
}

static json_t *shown_text(const struct trial *t, const char *text)
{
    return text ? shown(t, text, strlen(text)) : json_null();
}

static json_t *request_doc(const struct trial *t, const struct plugin_request *r)
{
    json_t *headers = json_array();

    for (size_t i = 0; i < r->headers_count; i++) {
        char *value = mask_header(t->mask, r->headers[i].name, r->headers[i].value);

        json_array_append_new(headers, json_pack("{s:s, s:s}", "name", r->headers[i].name, "value",
                                                 value ? value : ""));
        free(value);
    }
    if (r->sigv4)
        json_array_append_new(headers, json_pack("{s:s, s:s}", "name", "Authorization", "value",
                                                 "AWS4-HMAC-SHA256 **** (signed as it leaves)"));
    return json_pack("{s:s, s:o, s:o, s:o}", "method", r->method, "url", shown_text(t, r->url),
                     "headers", headers, "body",
                     r->body ? shown(t, r->body, r->body_len) : json_null());
}

static json_t *reply_doc(const struct trial *t, const struct http_result *r)
{
    size_t len = r->body_len < REPLY_SHOWN ? r->body_len : REPLY_SHOWN;

    while (len > 0 && len < r->body_len && ((unsigned char)r->body[len] & 0xc0) == 0x80)
        len--; /* a character whole or not at all */
    return json_pack("{s:i, s:b, s:s, s:o, s:b, s:o, s:I}", "status", r->status, "complete",
                     r->complete, "phase", http_phase_name(r->phase), "body",
                     r->body_len > 0 ? shown(t, r->body, len) : json_string(""), "cut",
                     len < r->body_len, "error", shown_text(t, r->error), "ms",
                     (json_int_t)(r->total_us / 1000));
}

/* ---- before -------------------------------------------------------------------------------- */

static int make_id(char id[TRIAL_ID])
{
    unsigned char b[16];

    if (getrandom(b, sizeof(b), 0) != (ssize_t)sizeof(b))
        return -EIO;
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    snprintf(id, TRIAL_ID, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
             b[14], b[15]);
    return 0;
}

int trial_open(struct trial *t, const char *path, const struct config_provider *conf,
               struct err *err)
{
    int rc = -ENOMEM;

    t->conf = conf;
    t->mask = mask_new();
    if (t->mask)
        rc = mask_add_settings(t->mask, path, conf, err);
    if (rc == 0)
        rc = mask_add(t->mask, conf->receipt_token);
    if (rc == 0)
        rc = make_id(t->id);
    if (rc == 0)
        rc = plugin_open(NULL, conf->plugin, conf->settings_json, &t->plugin, err);
    if (rc < 0)
        return rc;
    t->doc =
        json_pack("{s:s, s:s, s:b}", "provider", conf->name, "plugin", conf->plugin, "sent", 0);
    return t->doc ? 0 : -ENOMEM;
}

void trial_done(struct trial *t)
{
    vendor_line_close(t->line);
    plugin_request_clear(&t->request);
    plugin_grant_clear(&t->grant);
    plugin_close(t->plugin);
    mask_free(t->mask);
    free(t->vendor_id);
    json_decref(t->doc);
}

static int line_up(struct trial *t, struct err *err)
{
    return t->line ? 0 : vendor_line_open(t->conf, &t->line, err);
}

/* ---- the login ----------------------------------------------------------------------------- */

static void on_login(void *arg, const struct http_result *r)
{
    struct trial *t = arg;
    struct provider_reply reply = vendor_line_reply(r);

    if (r->complete)
        plugin_login_judge(t->plugin, &reply, &t->grant);
    t->login_bad = !t->grant.token;
    if (t->login_bad)
        json_object_set_new(t->doc, "reply", reply_doc(t, r));
}

static int ask_for_token(struct trial *t, const struct plugin_request *built, struct err *err)
{
    int rc = line_up(t, err);

    json_object_set_new(t->doc, "login", request_doc(t, built));
    if (rc == 0)
        rc = vendor_line_call(t->line, built, on_login, t, err);
    if (rc < 0 || !t->login_bad)
        return rc;
    json_object_set_new(t->doc, "code", shown_text(t, t->grant.code));
    json_object_set_new(t->doc, "detail", shown_text(t, t->grant.detail));
    return err_set(err, -EACCES, "provider \"%s\": %s", t->conf->name,
                   t->grant.refused ? "the vendor refused the login"
                                    : "the login brought no token");
}

int trial_login(struct trial *t, bool dry, struct err *err)
{
    struct plugin_request built = {0};
    int rc = 0;

    t->msg.token = NULL;
    if (!plugin_logs_in(t->plugin))
        return 0;
    rc = plugin_login(t->plugin, clock_real_ms(), &built, &t->grant, err);
    if (rc == 0 && !t->grant.token && !dry)
        rc = ask_for_token(t, &built, err);
    plugin_request_clear(&built);
    if (rc < 0)
        return rc;
    t->msg.token = t->grant.token ? t->grant.token : dry_token;
    return mask_add(t->mask, t->msg.token);
}

/* ---- the message --------------------------------------------------------------------------- */

int trial_build(struct trial *t, const char *recipient, const char *text, const char *sender,
                struct err *err)
{
    int rc;

    t->began_ms = clock_real_ms();
    t->msg.id = t->id;
    t->msg.key = t->id;
    t->msg.recipient = recipient;
    t->msg.body = text;
    t->msg.body_len = strlen(text);
    t->msg.sender = sender;
    t->msg.kind = "transactional";
    t->msg.created_ms = t->began_ms;
    t->msg.expires_ms = t->began_ms + LIFE_MS;
    t->msg.validity_ms = LIFE_MS;
    rc = plugin_build(t->plugin, &t->msg, &t->request, err);
    if (rc == 0)
        json_object_set_new(t->doc, "request", request_doc(t, &t->request));
    return rc;
}

static enum outcome word_of(enum provider_outcome word)
{
    static const enum outcome map[PROVIDER_OUTCOME_MAX_] = {
        [PROVIDER_ACCEPTED] = OUTCOME_ACCEPTED,   [PROVIDER_REJECTED] = OUTCOME_REJECTED,
        [PROVIDER_THROTTLED] = OUTCOME_THROTTLED, [PROVIDER_HELD] = OUTCOME_HELD,
        [PROVIDER_REFUSED] = OUTCOME_REFUSED,     [PROVIDER_UNKNOWN] = OUTCOME_UNKNOWN,
    };

    return (unsigned)word < PROVIDER_OUTCOME_MAX_ ? map[word] : OUTCOME_UNKNOWN;
}

static void tell_verdict(struct trial *t, const struct plugin_verdict *v)
{
    json_object_set_new(t->doc, "outcome", json_string(outcome_name(t->outcome)));
    json_object_set_new(t->doc, "id", shown_text(t, v->id));
    json_object_set_new(t->doc, "code", shown_text(t, v->code));
    json_object_set_new(t->doc, "detail", shown_text(t, v->detail));
    if (v->retry_after_ms > 0)
        json_object_set_new(t->doc, "retry_after_ms", json_integer(v->retry_after_ms));
    if (v->opt_out)
        json_object_set_new(t->doc, "opt_out", json_true());
    if (v->fault)
        json_object_set_new(t->doc, "fault", json_string(v->fault));
}

/* As the worker judges a call (R6). */
static void on_sent(void *arg, const struct http_result *r)
{
    struct trial *t = arg;
    struct evidence ev = {.permits = r->permits,
                          .complete = r->complete,
                          .status = r->status,
                          .untrusted = r->tls_untrusted};
    struct plugin_verdict verdict = {.retry_after_ms = -1};

    t->ended_ms = clock_real_ms();
    t->sent = r->permits > 0;
    if (r->permits > 0 && r->complete) {
        struct provider_reply reply = vendor_line_reply(r);

        plugin_judge(t->plugin, &reply, clock_real_ms() / 1000, &verdict);
        ev.judged = true;
        ev.word = word_of(verdict.outcome);
    }
    t->outcome = classify(&ev);
    t->vendor_id = verdict.id ? strdup(verdict.id) : NULL;
    json_object_set_new(t->doc, "sent", json_boolean(t->sent));
    json_object_set_new(t->doc, "reply", reply_doc(t, r));
    tell_verdict(t, &verdict);
    plugin_verdict_clear(&verdict);
}

int trial_send(struct trial *t, struct err *err)
{
    int rc = line_up(t, err);

    return rc == 0 ? vendor_line_call(t->line, &t->request, on_sent, t, err) : rc;
}

/* ---- asking -------------------------------------------------------------------------------- */

struct look {
    struct trial *t;
    const struct provider_question *question;
    struct plugin_answer answer;
};

static const char *finding_name(enum provider_finding finding)
{
    static const char *const names[PROVIDER_FINDING_MAX_] = {
        [PROVIDER_CANNOT_SAY] = "cannot say",
        [PROVIDER_HAS_IT] = "has it",
        [PROVIDER_REFUSED_IT] = "refused it",
        [PROVIDER_NEVER_SEEN] = "never seen",
    };

    return names[(unsigned)finding < PROVIDER_FINDING_MAX_ ? finding : PROVIDER_CANNOT_SAY];
}

static void on_answer(void *arg, const struct http_result *r)
{
    struct look *l = arg;
    struct provider_reply reply = vendor_line_reply(r);

    plugin_ask_judge(l->t->plugin, l->question, &reply, clock_real_ms() / 1000, &l->answer);
}

static void tell_answer(struct trial *t, const struct plugin_answer *a)
{
    json_t *ids = json_array();

    for (size_t i = 0; i < a->ids_n; i++)
        json_array_append_new(ids, shown_text(t, a->ids[i]));
    json_object_set_new(t->doc, "lookup",
                        json_pack("{s:s, s:o, s:o, s:o}", "finding", finding_name(t->finding),
                                  "ids", ids, "code", shown_text(t, a->code), "detail",
                                  shown_text(t, a->detail)));
}

static int ask_page(struct look *l, struct err *err)
{
    struct plugin_request built = {0};
    int rc = plugin_ask(l->t->plugin, l->question, &built, err);

    if (rc == 0)
        rc = vendor_line_call(l->t->line, &built, on_answer, l, err);
    plugin_request_clear(&built);
    return rc;
}

int trial_ask(struct trial *t, struct err *err)
{
    char *cursor = NULL;
    struct provider_question q = {
        .msg = &t->msg, .vendor_id = t->vendor_id, .from_ms = t->began_ms, .to_ms = t->ended_ms};
    struct look l = {.t = t, .question = &q};
    int rc = 0;

    for (int page = 0; rc == 0 && page < PAGES_MAX; page++) {
        rc = ask_page(&l, err);
        free(cursor);
        cursor = l.answer.cursor;
        l.answer.cursor = NULL;
        q.cursor = cursor;
        if (!cursor)
            break;
    }
    t->finding = cursor || l.answer.login ? PROVIDER_CANNOT_SAY : l.answer.finding;
    if (rc == 0)
        tell_answer(t, &l.answer);
    free(cursor);
    plugin_answer_clear(&l.answer);
    return rc;
}
