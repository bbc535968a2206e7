/* The look-up: one more request by template, and what its reply says. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/http/http.h"
#include "providers/kit/when.h"

enum {
    DAYS_MAX_S = 31536000,
    PER_MINUTE_MAX = 1000000,
    FULL_MAX = 1000000,
    CANDIDATES_MAX = 100,
    SKEW_MS = 60000, /* as in templates */
};

/* ---- settings ------------------------------------------------------------------------------- */

static const char *const ask_keys[] = {
    "url",      "method",     "found",          "not_found", "refused",
    "list",     "next",       "cursor",         "full",      "id",
    "key",      "text",       "recipient",      "time",      "delay_s",
    "window_s", "per_minute", "absence_proves", NULL};
static const char *const rule_keys[] = {"status", "match", NULL};

static int read_rule(const struct hp_open *open, const json_t *ask, const char *key,
                     const char *path, const json_t **ret)
{
    *ret = json_object_get(ask, key);
    return *ret ? hp_check_rule(open, path, *ret, rule_keys, HP_STATUS_MAX) : 0;
}

static int read_rules(struct hp_ask *a, const struct hp_open *open, const json_t *ask)
{
    int r = read_rule(open, ask, "found", "ask.found", &a->found);

    if (r == 0)
        r = read_rule(open, ask, "not_found", "ask.not_found", &a->not_found);
    if (r == 0)
        r = read_rule(open, ask, "refused", "ask.refused", &a->refused);
    if (r == 0 && !a->found)
        r = hp_refuse(open, "ask.found", "write {\"status\": 200}",
                      "is missing: how does the vendor say that it has a message?");
    return r;
}

static int read_pointers(struct hp_ask *a, const struct hp_open *open, const json_t *ask)
{
    const struct {
        const char *key, *path, **ret;
    } pointers[] = {
        {"list", "ask.list", &a->list}, {"next", "ask.next", &a->next},
        {"id", "ask.id", &a->id},       {"key", "ask.key", &a->key},
        {"text", "ask.text", &a->text}, {"recipient", "ask.recipient", &a->recipient},
        {"time", "ask.time", &a->time},
    };
    int r = 0;

    for (size_t i = 0; i < sizeof(pointers) / sizeof(pointers[0]) && r == 0; i++)
        r = hp_get_pointer(open, pointers[i].path, ask, pointers[i].key, pointers[i].ret);
    if (r == 0)
        r = hp_get_string(open, "ask.cursor", ask, "cursor", &a->cursor);
    if (r == 0 && !a->next != !a->cursor)
        r = hp_refuse(open, a->next ? "ask.cursor" : "ask.next", NULL,
                      "is missing: \"next\" says where the next page is named, \"cursor\" the "
                      "parameter that asks for it");
    if (r == 0 && a->next && !a->list)
        r = hp_refuse(open, "ask.list", NULL, "is missing: only a list has pages");
    return r;
}

static int read_number(const struct hp_open *open, const json_t *ask, const char *key,
                       const char *path, int64_t min, int64_t max, int64_t *io)
{
    const json_t *value = json_object_get(ask, key);

    return value ? hp_get_int(open, path, value, min, max, io) : 0;
}

static int read_numbers(struct hp_ask *a, const struct hp_open *open, const json_t *ask)
{
    int64_t delay_s = 0, window_s = 0;
    int r = read_number(open, ask, "delay_s", "ask.delay_s", 0, DAYS_MAX_S, &delay_s);

    if (r == 0)
        r = read_number(open, ask, "window_s", "ask.window_s", 1, DAYS_MAX_S, &window_s);
    if (r == 0)
        r = read_number(open, ask, "per_minute", "ask.per_minute", 1, PER_MINUTE_MAX,
                        &a->per_minute);
    if (r == 0)
        r = read_number(open, ask, "full", "ask.full", 1, FULL_MAX, &a->full);
    if (r == 0)
        r = hp_get_bool(open, "ask.absence_proves", ask, "absence_proves", &a->absence_proves);
    a->delay_ms = delay_s * 1000;
    a->window_ms = window_s * 1000;
    return r;
}

/* What a message is recognised by. */
static int read_kind(struct hp_ask *a, const struct hp_open *open)
{
    bool named = hp_uses(&a->url, HP_FIELD_KEY) || hp_uses(&a->url, HP_FIELD_ID);

    if (a->text) {
        a->kind = PROVIDER_ASK_BY_TEXT;
        if (a->list && a->id && a->time)
            return 0;
        return hp_refuse(open, "ask.text", "add \"list\", \"id\" and \"time\"",
                         "texts are compared in a list whose entries have an id and a time");
    }
    if (hp_uses(&a->url, HP_FIELD_VENDOR_ID)) {
        a->kind = PROVIDER_ASK_BY_ID;
        return 0;
    }
    a->kind = PROVIDER_ASK_BY_KEY;
    if (named || a->key)
        return 0;
    return hp_refuse(
        open, "ask.url",
        "put {{key}}, {{id}} or {{vendor_id}} into it, or say with \"key\" or \"text\" "
        "how an entry is recognised",
        "does not say which message is asked about");
}

int hp_ask_read(struct hp_self *self, const struct hp_open *parent)
{
    const json_t *ask = json_object_get(self->settings, "ask");
    struct hp_open open = *parent;
    struct hp_ask *a = &self->ask;
    const char *url = NULL;
    int r;

    open.asking = true;
    if (!ask)
        return 0;
    if (!json_is_object(ask))
        return hp_refuse(&open, "ask", NULL, "must be an object");
    r = hp_check_keys(&open, "ask", ask, ask_keys);
    if (r == 0)
        r = hp_get_string(&open, "ask.url", ask, "url", &url);
    if (r == 0)
        r = hp_read_url(&open, "ask.url", url, &a->url);
    if (r == 0)
        r = hp_get_string(&open, "ask.method", ask, "method", &a->method);
    if (r == 0 && !a->method)
        a->method = "GET";
    if (r == 0 && !hp_is_token(a->method))
        r = hp_refuse(&open, "ask.method", NULL, "is not a method");
    if (r == 0)
        r = read_rules(a, &open, ask);
    if (r == 0)
        r = read_pointers(a, &open, ask);
    if (r == 0)
        r = read_numbers(a, &open, ask);
    return r < 0 ? r : read_kind(a, &open);
}

/* ---- the request ---------------------------------------------------------------------------- */

static int build_page(const struct hp_self *self, const struct hp_values *values,
                      struct provider_req *req)
{
    const struct provider_question *q = values->asks;
    struct hp_buf url = {0};
    int r = hp_template_render(&self->ask.url, values, &url);

    if (r == 0 && q->cursor && self->ask.cursor) {
        hp_buf_add(&url, strchr(url.data, '?') ? "&" : "?", 1);
        hp_buf_percent(&url, self->ask.cursor, strlen(self->ask.cursor));
        hp_buf_add(&url, "=", 1);
        hp_buf_percent(&url, q->cursor, strlen(q->cursor));
        r = url.error;
    }
    if (r == 0)
        r = self->host->req_url(req, url.data);
    hp_buf_done(&url);
    return r;
}

int hp_ask(const struct hp_self *self, const struct provider_question *q, struct provider_req *req)
{
    struct hp_values values = {.msg = q->msg, .asks = q};
    int r;

    if (hp_uses(&self->ask.url, HP_FIELD_VENDOR_ID) && !q->vendor_id)
        return -ENODATA;
    r = hp_read_meta(self, q->msg, &values.meta);
    if (r < 0)
        return r;
    r = self->host->req_method(req, self->ask.method);
    if (r == 0)
        r = build_page(self, &values, req);
    if (r == 0)
        r = hp_build_headers(self, &values, true, req);
    json_decref(values.meta);
    return r;
}

/* ---- the reply ------------------------------------------------------------------------------ */

struct search {
    const struct hp_self *self;
    const struct provider_question *q;
    struct provider_answer *answer;
};

struct candidate {
    const json_t *entry;
    int64_t distance_ms; /* from the beginning of the doubt */
};

static bool text_is(const json_t *entry, const char *pointer, const char *wanted, size_t len)
{
    char digits[24];
    const char *text;
    size_t n;

    return hp_text_at(entry, pointer, digits, &text, &n) && n == len &&
           memcmp(text, wanted, n) == 0;
}

/* Numbers are compared by their digits: vendors write them with a plus and without. */
static bool is_number_of(const json_t *entry, const char *pointer, const char *recipient)
{
    char digits[24];
    const char *text;
    size_t n;

    recipient += recipient[0] == '+';
    if (!hp_text_at(entry, pointer, digits, &text, &n))
        return false;
    if (n > 0 && text[0] == '+')
        text++, n--;
    return n == strlen(recipient) && memcmp(text, recipient, n) == 0;
}

/* Seconds, milliseconds or a date. */
static bool time_at(const json_t *entry, const char *pointer, int64_t *ret_ms)
{
    const json_t *value = hp_pointer_get(entry, pointer);
    json_int_t number = json_integer_value(value);

    if (!json_is_integer(value))
        return json_is_string(value) && when_parse(json_string_value(value), 0, ret_ms);
    if (number <= 0 || number > INT64_C(100000000000000))
        return false;
    *ret_ms = number < INT64_C(100000000000) ? number * 1000 : number;
    return true;
}

static bool is_ours(const struct search *s, const json_t *entry, int64_t *ret_distance_ms)
{
    const struct hp_ask *a = &s->self->ask;
    const struct provider_msg *m = s->q->msg;
    int64_t at = s->q->from_ms;

    if (a->key && !text_is(entry, a->key, m->key, strlen(m->key)) &&
        !(m->id && text_is(entry, a->key, m->id, strlen(m->id))))
        return false;
    if (a->recipient && !is_number_of(entry, a->recipient, m->recipient))
        return false;
    if (a->text && !text_is(entry, a->text, m->body, m->body_len))
        return false;
    if (a->time && (!time_at(entry, a->time, &at) || at < s->q->from_ms - SKEW_MS ||
                    at > s->q->to_ms + SKEW_MS))
        return false;
    *ret_distance_ms = at > s->q->from_ms ? at - s->q->from_ms : s->q->from_ms - at;
    return true;
}

static int tell_id(const struct search *s, const json_t *entry)
{
    char digits[24];
    const char *id;
    size_t len;

    if (!s->self->ask.id || !hp_text_at(entry, s->self->ask.id, digits, &id, &len))
        return 0; /* the host decides whether that is enough */
    return s->self->host->answer_id(s->answer, id, len);
}

static int say(const struct search *s, enum provider_finding finding, const char *why)
{
    s->self->host->answer(s->answer, finding);
    return why ? s->self->host->answer_detail(s->answer, why, strlen(why)) : 0;
}

static int by_distance(const void *a, const void *b)
{
    int64_t x = ((const struct candidate *)a)->distance_ms;
    int64_t y = ((const struct candidate *)b)->distance_ms;

    return (x > y) - (x < y);
}

/* The end of a page: on to the next, or what the whole list says. */
static int end_page(const struct search *s, const json_t *body, size_t entries, size_t found)
{
    const struct hp_ask *a = &s->self->ask;
    char digits[24];
    const char *cursor;
    size_t len;

    if (found > 0 && a->kind != PROVIDER_ASK_BY_TEXT)
        return say(s, PROVIDER_HAS_IT, NULL);
    if (a->next && hp_text_at(body, a->next, digits, &cursor, &len))
        return s->self->host->answer_more(s->answer, cursor, len);
    if (found > 0)
        return say(s, PROVIDER_HAS_IT, NULL);
    if (a->full > 0 && entries >= (size_t)a->full)
        return say(s, PROVIDER_CANNOT_SAY, "the list may have been cut");
    return say(s, PROVIDER_NEVER_SEEN, NULL);
}

static int read_list(const struct search *s, const json_t *body)
{
    const json_t *list = hp_pointer_get(body, s->self->ask.list);
    struct candidate found[CANDIDATES_MAX];
    size_t n = 0;
    int r = 0;

    if (!json_is_array(list))
        return say(s, PROVIDER_CANNOT_SAY, "the list is missing");
    for (size_t i = 0; i < json_array_size(list) && n < CANDIDATES_MAX; i++) {
        found[n].entry = json_array_get(list, i);
        if (is_ours(s, found[n].entry, &found[n].distance_ms))
            n++;
    }
    qsort(found, n, sizeof(found[0]), by_distance);
    for (size_t i = 0; i < n && r == 0; i++)
        r = tell_id(s, found[i].entry);
    return r == -ENOMEM ? r : end_page(s, body, json_array_size(list), n);
}

static int read_found(const struct search *s, const json_t *body)
{
    int64_t distance;
    int r;

    if (s->self->ask.list)
        return read_list(s, body);
    if (!is_ours(s, body, &distance))
        return say(s, PROVIDER_CANNOT_SAY, "the answer is about another message");
    r = tell_id(s, body);
    return r == -ENOMEM ? r : say(s, PROVIDER_HAS_IT, NULL);
}

static int tell_error(const struct search *s, const json_t *body)
{
    const struct hp_self *self = s->self;
    char digits[24];
    const char *text;
    size_t len;
    int r = 0;

    self->host->answer(s->answer, PROVIDER_CANNOT_SAY);
    if (hp_text_at(body, self->error, digits, &text, &len))
        r = self->host->answer_code(s->answer, text, len);
    if (r == 0 && hp_text_at(body, self->detail, digits, &text, &len))
        r = self->host->answer_detail(s->answer, text, len);
    return r;
}

int hp_ask_judge(const struct hp_self *self, const struct provider_question *q,
                 const struct provider_reply *reply, struct provider_answer *answer)
{
    const struct search s = {.self = self, .q = q, .answer = answer};
    const struct hp_ask *a = &self->ask;
    json_t *body = hp_read_json(reply->body, reply->body_len);
    int r;

    if (a->refused && hp_rule_matches(a->refused, reply->status, body))
        r = say(&s, PROVIDER_REFUSED_IT, NULL);
    else if (a->not_found && hp_rule_matches(a->not_found, reply->status, body))
        r = say(&s, PROVIDER_NEVER_SEEN, NULL);
    else if (hp_rule_matches(a->found, reply->status, body))
        r = read_found(&s, body);
    else
        r = tell_error(&s, body);
    json_decref(body);
    return r;
}
