/* Text that grows, and templates filled with a message's values. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/http/http.h"
#include "providers/kit/when.h"

/* ---- growing text --------------------------------------------------------------------------- */

void hp_buf_done(struct hp_buf *buf)
{
    free(buf->data);
    *buf = (struct hp_buf){0};
}

void hp_buf_add(struct hp_buf *buf, const char *data, size_t len)
{
    if (buf->error)
        return;
    if (buf->size - buf->len <= len) {
        size_t size = (buf->len + len + 1) * 2;
        char *grown = realloc(buf->data, size);

        if (!grown) {
            buf->error = -ENOMEM;
            return;
        }
        buf->data = grown;
        buf->size = size;
    }
    if (len > 0)
        memcpy(buf->data + buf->len, data, len);
    buf->len += len;
    buf->data[buf->len] = '\0';
}

void hp_buf_percent(struct hp_buf *buf, const char *text, size_t len)
{
    static const char hex[] = "0123456789ABCDEF";

    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '.' || c == '_' || c == '~';
        char escaped[3] = {'%', hex[c >> 4], hex[c & 15]};

        if (plain)
            hp_buf_add(buf, text + i, 1);
        else
            hp_buf_add(buf, escaped, sizeof(escaped));
    }
}

static int dump_to_buf(const char *data, size_t len, void *arg)
{
    struct hp_buf *buf = arg;

    hp_buf_add(buf, data, len);
    return buf->error ? -1 : 0;
}

static void add_json(struct hp_buf *buf, const json_t *value)
{
    if (json_dump_callback(value, dump_to_buf, buf, JSON_ENCODE_ANY | JSON_COMPACT) != 0 &&
        !buf->error)
        buf->error = -ENOMEM;
}

void hp_buf_json_string(struct hp_buf *buf, const char *text, size_t len, bool quotes)
{
    json_t *string = json_stringn(text, len);
    size_t start = buf->len;

    if (!string) {
        buf->error = buf->error ? buf->error : -EINVAL; /* not UTF-8 */
        return;
    }
    add_json(buf, string);
    json_decref(string);
    if (quotes || buf->error)
        return;
    buf->len -= 2;
    memmove(buf->data + start, buf->data + start + 1, buf->len - start);
    buf->data[buf->len] = '\0';
}

/* ---- rendering ------------------------------------------------------------------------------ */

/* A resolved placeholder: text, or a meta value that is not a string. All borrowed. */
struct value {
    bool missing;
    const char *text;
    size_t len;
    const json_t *json;
    char digits[24];
    char when[WHEN_SIZE];
};

static void value_text(struct value *v, const char *text, size_t len)
{
    v->missing = !text;
    v->text = text ? text : "";
    v->len = text ? len : 0;
}

static void value_number(struct value *v, int64_t number)
{
    int n = snprintf(v->digits, sizeof(v->digits), "%" PRId64, number);

    value_text(v, v->digits, (size_t)n);
}

static void value_time(struct value *v, int64_t unix_ms)
{
    when_rfc3339(unix_ms, v->when);
    value_text(v, v->when, strlen(v->when));
}

static void value_meta(struct value *v, const json_t *meta, const char *name)
{
    const json_t *found = json_object_get(meta, name);

    if (json_is_string(found)) {
        value_text(v, json_string_value(found), json_string_length(found));
        return;
    }
    value_text(v, NULL, 0);
    if (found && !json_is_null(found)) {
        v->missing = false;
        v->json = found;
    }
}

/* A clock at the vendor's is not ours: questions look this much further, both ways. */
enum { SKEW_MS = 60000 };

static void resolve_asked(enum hp_field field, const struct provider_question *q, struct value *v)
{
    int64_t from = q ? q->from_ms - SKEW_MS : 0, to = q ? q->to_ms + SKEW_MS : 0;

    if (!q)
        value_text(v, NULL, 0);
    else if (field == HP_FIELD_VENDOR_ID)
        value_text(v, q->vendor_id, q->vendor_id ? strlen(q->vendor_id) : 0);
    else if (field == HP_FIELD_FROM_MS || field == HP_FIELD_TO_MS)
        value_number(v, field == HP_FIELD_FROM_MS ? from : to);
    else
        value_time(v, field == HP_FIELD_FROM_TIME ? from : to);
}

static const char *text_of(enum hp_field field, const struct provider_msg *m)
{
    switch (field) {
    case HP_FIELD_RECIPIENT:
        return m->recipient;
    case HP_FIELD_RECIPIENT_DIGITS:
        return m->recipient + (m->recipient[0] == '+');
    case HP_FIELD_KEY:
        return m->key;
    case HP_FIELD_ID:
        return m->id;
    case HP_FIELD_KIND:
        return m->kind;
    case HP_FIELD_SENDER:
        return m->sender;
    case HP_FIELD_CALLBACK_URL:
        return m->callback_url;
    default:
        return NULL;
    }
}

static void resolve(const struct hp_piece *p, const struct hp_values *values, struct value *v)
{
    const struct provider_msg *m = values->msg;
    const char *text;

    *v = (struct value){0};
    switch (p->field) {
    case HP_FIELD_BODY:
        value_text(v, m->body, m->body_len);
        return;
    case HP_FIELD_CREATED_MS:
        value_number(v, m->created_ms);
        return;
    case HP_FIELD_EXPIRES_MS:
        value_number(v, m->expires_ms);
        return;
    case HP_FIELD_VALIDITY_S:
        value_number(v, when_validity(m->validity_ms, 1000, 1, INT32_MAX));
        return;
    case HP_FIELD_META:
        value_meta(v, values->meta, p->meta);
        return;
    case HP_FIELD_VENDOR_ID:
    case HP_FIELD_FROM_MS:
    case HP_FIELD_TO_MS:
    case HP_FIELD_FROM_TIME:
    case HP_FIELD_TO_TIME:
        resolve_asked(p->field, values->asks, v);
        return;
    default:
        text = text_of(p->field, m);
        value_text(v, text, text ? strlen(text) : 0);
    }
}

static bool is_number(enum hp_field field)
{
    return field == HP_FIELD_CREATED_MS || field == HP_FIELD_EXPIRES_MS ||
           field == HP_FIELD_VALIDITY_S;
}

static void render_text(struct hp_buf *buf, enum hp_form form, const char *text, size_t len)
{
    if (form == HP_PERCENT)
        hp_buf_percent(buf, text, len);
    else if (form == HP_PLAIN)
        hp_buf_add(buf, text, len);
    else
        hp_buf_json_string(buf, text, len, form == HP_JSON_WHOLE);
}

static void render_value(const struct hp_piece *p, const struct hp_values *values,
                         struct hp_buf *buf)
{
    struct hp_buf dumped = {0};
    struct value v;

    resolve(p, values, &v);
    if (p->form == HP_JSON_WHOLE && v.missing) {
        hp_buf_add(buf, "null", 4); /* an array's element; members are left out */
    } else if (p->form == HP_JSON_WHOLE && v.json) {
        add_json(buf, v.json);
    } else if (p->form == HP_JSON_WHOLE && is_number(p->field)) {
        hp_buf_add(buf, v.text, v.len);
    } else if (v.json) {
        add_json(&dumped, v.json);
        if (dumped.error)
            buf->error = dumped.error;
        else
            render_text(buf, p->form, dumped.data, dumped.len);
        hp_buf_done(&dumped);
    } else {
        render_text(buf, p->form, v.text, v.len);
    }
}

static bool is_missing(const struct hp_piece *p, const struct hp_values *values)
{
    struct value v;

    if (p->field == HP_FIELD_NONE)
        return false;
    resolve(p, values, &v);
    return v.missing;
}

static void begin_member(const struct hp_template *t, const struct hp_piece *p, size_t start,
                         struct hp_buf *buf)
{
    /* A value never ends in an opening brace outside quotes, so the first is recognisable. */
    if (buf->len > start && buf->data[buf->len - 1] != '{')
        hp_buf_add(buf, &t->separator, 1);
    hp_buf_add(buf, p->text, p->text_len);
}

int hp_template_render(const struct hp_template *t, const struct hp_values *values,
                       struct hp_buf *buf)
{
    size_t start = buf->len;

    hp_buf_add(buf, "", 0);
    for (size_t i = 0; i < t->count && !buf->error; i++) {
        const struct hp_piece *p = &t->pieces[i];

        if (p->kind == HP_LITERAL)
            hp_buf_add(buf, p->text, p->text_len);
        else if (p->kind == HP_VALUE)
            render_value(p, values, buf);
        else if (is_missing(p, values))
            i = p->skip - 1;
        else
            begin_member(t, p, start, buf);
    }
    return buf->error;
}

bool hp_template_missing(const struct hp_template *t, const struct hp_values *values)
{
    return t->count == 1 && t->pieces[0].kind == HP_VALUE && is_missing(&t->pieces[0], values);
}
