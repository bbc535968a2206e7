/* Reads "settings". Whatever is odd is refused: a typing mistake here costs money later. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "providers/http/http.h"

enum {
    WINDOW_MAX_S = 31536000,
    WORST_MAX_MS = 600000,
};

const char *const hp_list_names[HP_LIST_MAX_] = {
    [HP_OPTED_OUT] = "opted_out", [HP_REJECTED] = "rejected",   [HP_THROTTLED] = "throttled",
    [HP_HELD] = "held",           [HP_NOT_TAKEN] = "not_taken",
};

static const char *const top_keys[] = {
    "url",      "method",          "headers",    "body",      "encoding", "dedup",     "key_header",
    "accepted", "opted_out",       "rejected",   "throttled", "held",     "not_taken", "error",
    "detail",   "worst_answer_ms", "key_quoted", "ask",       "receipt",  NULL};
static const char *const accepted_keys[] = {"status", "match", "id", "id_optional", NULL};
static const char *const dedup_keys[] = {"header", "window_s", "duplicate", NULL};
static const char *const duplicate_keys[] = {"status", "match", "id", NULL};
static const char *const rule_keys[] = {"status", "match", NULL};

/* ---- rules ---------------------------------------------------------------------------------- */

static bool in_list(const json_t *list, json_int_t status)
{
    if (json_is_integer(list))
        return json_integer_value(list) == status;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);

        if (json_is_integer(item) && json_integer_value(item) == status)
            return true;
    }
    return false;
}

/* A bare status means one thing only. */
static int check_claimed(const struct hp_self *self, const struct hp_open *open, enum hp_list list,
                         json_int_t status)
{
    const char *by = NULL;

    if (in_list(json_object_get(self->accepted, "status"), status))
        by = "accepted";
    for (int i = 0; i < (int)list && !by; i++)
        if (in_list(self->lists[i], status))
            by = hp_list_names[i];
    if (!by)
        return 0;
    return hp_refuse(open, hp_list_names[list], "tell them apart with {\"status\", \"match\"}",
                     "status %d is in \"%s\" too", (int)status, by);
}

static int read_list(struct hp_self *self, const struct hp_open *open, enum hp_list list)
{
    const char *name = hp_list_names[list];
    const json_t *array = json_object_get(self->settings, name);
    int r = 0;

    if (!array)
        return 0;
    if (!json_is_array(array))
        return hp_refuse(open, name, "write [503] or [{\"status\": 200, \"match\": {...}}]",
                         "must be a list of statuses and rules");
    for (size_t i = 0; i < json_array_size(array) && r == 0; i++) {
        const json_t *item = json_array_get(array, i);

        if (!json_is_integer(item)) {
            r = hp_check_rule(open, name, item, rule_keys, HP_STATUS_MAX);
            continue;
        }
        r = hp_check_status(open, name, item, HP_STATUS_MAX);
        if (r == 0)
            r = check_claimed(self, open, list, json_integer_value(item));
    }
    self->lists[list] = array;
    return r;
}

static int read_accepted(struct hp_self *self, const struct hp_open *open)
{
    const json_t *rule = json_object_get(self->settings, "accepted");
    int r;

    if (!rule)
        return hp_refuse(open, "accepted", "write {\"status\": [200], \"id\": \"/id\"}",
                         "is missing: how does the vendor say that it took a message?");
    r = hp_check_rule(open, "accepted", rule, accepted_keys, 299);
    if (r == 0)
        r = hp_get_pointer(open, "accepted.id", rule, "id", &self->id);
    if (r < 0)
        return r;
    r = hp_get_bool(open, "accepted.id_optional", rule, "id_optional", &self->id_optional);
    if (r < 0)
        return r;
    self->accepted = rule;
    if (!self->id && !self->id_optional)
        return hp_refuse(open, "accepted.id",
                         "say where the vendor's id is, or that there may be none: "
                         "\"id_optional\": true",
                         "is missing");
    return 0;
}

/* ---- request -------------------------------------------------------------------------------- */

bool hp_is_token(const char *s)
{
    size_t len = strlen(s);

    return len > 0 && strspn(s, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == len;
}

static bool is_url_text(const char *text)
{
    for (const char *p = text; *p; p++)
        if (*p <= ' ' || *p >= 0x7f || strchr("\"<>\\^`{|}", *p))
            return false;
    return true;
}

/* A message must not choose where it goes. */
int hp_read_url(const struct hp_open *open, const char *setting, const char *text,
                struct hp_template *ret)
{
    const char *rest, *placeholder;
    int r;

    if (!text)
        return hp_refuse(open, setting, NULL, "is missing");
    if (strncasecmp(text, "http://", 7) == 0)
        rest = text + 7;
    else if (strncasecmp(text, "https://", 8) == 0)
        rest = text + 8;
    else
        return hp_refuse(open, setting, NULL, "must begin with http:// or https://");
    placeholder = strstr(rest, "{{");
    if (strcspn(rest, "/?#") == 0 || (placeholder && placeholder < rest + strcspn(rest, "/?#")))
        return hp_refuse(open, setting, "placeholders may stand in the path and the query",
                         "the host is missing or holds a placeholder");
    r = hp_template_text(ret, open, setting, text, HP_PERCENT);
    for (size_t i = 0; i < ret->count && r == 0; i++)
        if (ret->pieces[i].kind == HP_LITERAL && !is_url_text(ret->pieces[i].text))
            r = hp_refuse(open, setting, "percent-encode it", "holds a byte a URL cannot hold");
    return r;
}

static int read_url(struct hp_self *self, const struct hp_open *open)
{
    const char *url;
    int r = hp_get_string(open, "url", self->settings, "url", &url);

    return r < 0 ? r : hp_read_url(open, "url", url, &self->url);
}

static bool is_workers_header(const char *name)
{
    static const char *const own[] = {
        "content-length", "transfer-encoding", "connection", "expect",         "te",
        "trailer",        "upgrade",           "keep-alive", "accept-encoding"};

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (strcasecmp(name, own[i]) == 0)
            return true;
    return false;
}

static int check_header_name(const struct hp_self *self, const struct hp_open *open,
                             const char *path, const char *name)
{
    if (!hp_is_token(name))
        return hp_refuse(open, path, NULL, "is not the name of a header");
    if (is_workers_header(name))
        return hp_refuse(open, path, "leave it out", "this header is the worker's to set");
    for (size_t i = 0; i < self->headers_count; i++)
        if (self->headers[i].name && strcasecmp(self->headers[i].name, name) == 0)
            return hp_refuse(open, path, NULL, "this header is set twice");
    return 0;
}

static int read_header(struct hp_self *self, const struct hp_open *open, const char *path,
                       const char *name, const json_t *value)
{
    const char *text = json_string_value(value);
    struct hp_header *h;
    int r = check_header_name(self, open, path, name);

    if (r < 0)
        return r;
    if (!text)
        return hp_refuse(open, path, NULL, "must be a string");
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if ((*p < ' ' && *p != '\t') || *p == 0x7f)
            return hp_refuse(open, path, NULL, "holds a line end or control byte");
    h = &self->headers[self->headers_count++];
    h->name = strdup(name);
    if (!h->name)
        return -ENOMEM;
    return hp_template_text(&h->value, open, path, text, HP_PLAIN);
}

static int read_headers(struct hp_self *self, const struct hp_open *open)
{
    const json_t *headers = json_object_get(self->settings, "headers");
    const char *name;
    json_t *value;

    if (!headers)
        return 0;
    if (!json_is_object(headers))
        return hp_refuse(open, "headers", NULL, "must be an object");
    self->headers = calloc(json_object_size(headers) + 1, sizeof(*self->headers));
    if (!self->headers)
        return -ENOMEM;
    json_object_foreach ((json_t *)headers, name, value) {
        char *path = NULL;
        int r;

        if (asprintf(&path, "headers.%s", name) < 0)
            return -ENOMEM;
        r = read_header(self, open, path, name, value);
        free(path);
        if (r < 0)
            return r;
    }
    return 0;
}

static bool has_header(const struct hp_self *self, const char *name)
{
    for (size_t i = 0; i < self->headers_count; i++)
        if (strcasecmp(self->headers[i].name, name) == 0)
            return true;
    return false;
}

static int read_body(struct hp_self *self, const struct hp_open *open)
{
    const json_t *body = json_object_get(self->settings, "body");
    const char *encoding;
    bool form;
    int r = hp_get_string(open, "encoding", self->settings, "encoding", &encoding);

    if (r < 0)
        return r;
    form = encoding && strcmp(encoding, "form") == 0;
    if (encoding && !form && strcmp(encoding, "json") != 0)
        return hp_refuse(open, "encoding", NULL, "must be \"json\" or \"form\"");
    if (!body)
        return encoding ? hp_refuse(open, "encoding", NULL, "there is no body to encode") : 0;
    if (!json_is_object(body) && (form || !json_is_array(body)))
        return hp_refuse(open, "body", NULL,
                         form ? "must be an object" : "must be an object or an array");
    self->has_body = true;
    if (!has_header(self, "content-type"))
        self->content_type = form ? "application/x-www-form-urlencoded" : "application/json";
    return form ? hp_template_form(&self->body, open, "body", body)
                : hp_template_json(&self->body, open, "body", body);
}

/* ---- key ------------------------------------------------------------------------------------ */

static int read_key_headers(struct hp_self *self, const struct hp_open *open, const json_t *dedup)
{
    int r = hp_get_string(open, "key_header", self->settings, "key_header", &self->key_header);

    if (r == 0 && self->key_header)
        r = check_header_name(self, open, "key_header", self->key_header);
    if (r == 0)
        r = hp_get_string(open, "dedup.header", dedup, "header", &self->dedup_header);
    if (r == 0 && self->dedup_header)
        r = check_header_name(self, open, "dedup.header", self->dedup_header);
    if (r == 0 && self->dedup_header && self->key_header &&
        strcasecmp(self->dedup_header, self->key_header) == 0)
        r = hp_refuse(open, "key_header", "leave it out", "dedup.header sends the key already");
    if (r == 0)
        r = hp_get_bool(open, "key_quoted", self->settings, "key_quoted", &self->key_quoted);
    if (r == 0 && self->key_quoted && !self->dedup_header && !self->key_header)
        r = hp_refuse(open, "key_quoted", "name it in dedup.header or key_header",
                      "no header carries the key");
    return r;
}

static bool key_is_sent(const struct hp_self *self)
{
    bool sent = self->dedup_header || self->key_header || hp_uses(&self->url, HP_FIELD_KEY) ||
                hp_uses(&self->body, HP_FIELD_KEY);

    for (size_t i = 0; i < self->headers_count; i++)
        sent |= hp_uses(&self->headers[i].value, HP_FIELD_KEY);
    return sent;
}

static int read_dedup(struct hp_self *self, const struct hp_open *open)
{
    const json_t *dedup = json_object_get(self->settings, "dedup");
    const char *id;
    int64_t window_s;
    int r;

    if (dedup && !json_is_object(dedup))
        return hp_refuse(open, "dedup", NULL, "must be an object");
    r = dedup ? hp_check_keys(open, "dedup", dedup, dedup_keys) : 0;
    if (r == 0)
        r = read_key_headers(self, open, dedup);
    if (r < 0 || !dedup)
        return r;
    r = hp_get_int(open, "dedup.window_s", json_object_get(dedup, "window_s"), 1, WINDOW_MAX_S,
                   &window_s);
    if (r < 0)
        return r;
    self->dedup_window_ms = window_s * 1000;
    if (!key_is_sent(self))
        return hp_refuse(open, "dedup", "name the \"header\", or put {{key}} into the request",
                         "the vendor cannot recognise a repeat: the key is not sent");
    self->duplicate = json_object_get(dedup, "duplicate");
    if (!self->duplicate)
        return 0;
    r = hp_check_rule(open, "dedup.duplicate", self->duplicate, duplicate_keys, HP_STATUS_MAX);
    return r < 0 ? r : hp_get_pointer(open, "dedup.duplicate.id", self->duplicate, "id", &id);
}

static int read_method(struct hp_self *self, const struct hp_open *open)
{
    int r = hp_get_string(open, "method", self->settings, "method", &self->method);

    if (r < 0)
        return r;
    if (!self->method)
        self->method = "POST";
    return hp_is_token(self->method) ? 0 : hp_refuse(open, "method", NULL, "is not a method");
}

int hp_settings_read(struct hp_self *self, const struct hp_open *open)
{
    const json_t *worst = json_object_get(self->settings, "worst_answer_ms");
    int r = hp_check_keys(open, "", self->settings, top_keys);

    if (r == 0)
        r = read_method(self, open);
    if (r == 0)
        r = read_url(self, open);
    if (r == 0)
        r = read_headers(self, open);
    if (r == 0)
        r = read_body(self, open);
    if (r == 0)
        r = read_dedup(self, open);
    if (r == 0)
        r = read_accepted(self, open);
    for (int i = 0; i < HP_LIST_MAX_ && r == 0; i++)
        r = read_list(self, open, (enum hp_list)i);
    if (r == 0)
        r = hp_get_pointer(open, "error", self->settings, "error", &self->error);
    if (r == 0)
        r = hp_get_pointer(open, "detail", self->settings, "detail", &self->detail);
    if (r == 0 && worst)
        r = hp_get_int(open, "worst_answer_ms", worst, 1, WORST_MAX_MS, &self->worst_answer_ms);
    if (r == 0)
        r = hp_ask_read(self, open);
    return r < 0 ? r : hp_receipt_read(self, open);
}
