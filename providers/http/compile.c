/* From settings to templates: every mistake is found here, before the first message. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "providers/http/http.h"
#include "worker/core/near.h"

static const struct {
    const char *name;
    enum hp_field field;
    bool asking; /* known in a look-up alone */
} fields[] = {
    {"recipient", HP_FIELD_RECIPIENT, false},
    {"recipient_digits", HP_FIELD_RECIPIENT_DIGITS, false},
    {"body", HP_FIELD_BODY, false},
    {"key", HP_FIELD_KEY, false},
    {"id", HP_FIELD_ID, false},
    {"kind", HP_FIELD_KIND, false},
    {"sender", HP_FIELD_SENDER, false},
    {"created_ms", HP_FIELD_CREATED_MS, false},
    {"expires_ms", HP_FIELD_EXPIRES_MS, false},
    {"validity_s", HP_FIELD_VALIDITY_S, false},
    {"callback_url", HP_FIELD_CALLBACK_URL, false},
    {"vendor_id", HP_FIELD_VENDOR_ID, true},
    {"from_ms", HP_FIELD_FROM_MS, true},
    {"to_ms", HP_FIELD_TO_MS, true},
    {"from_time", HP_FIELD_FROM_TIME, true},
    {"to_time", HP_FIELD_TO_TIME, true},
};
static const char meta_prefix[] = "meta.";

/* ---- compiling ------------------------------------------------------------------------------ */

void hp_template_done(struct hp_template *t)
{
    for (size_t i = 0; i < t->count; i++) {
        free(t->pieces[i].text);
        free(t->pieces[i].meta);
    }
    free(t->pieces);
    *t = (struct hp_template){0};
}

static struct hp_piece *add_piece(struct hp_template *t, enum hp_piece_kind kind)
{
    struct hp_piece *grown = realloc(t->pieces, (t->count + 1) * sizeof(*grown));

    if (!grown)
        return NULL;
    t->pieces = grown;
    grown += t->count++;
    *grown = (struct hp_piece){.kind = kind};
    return grown;
}

static int add_literal(struct hp_template *t, const char *text, size_t len)
{
    struct hp_piece *p = t->count > t->barrier ? &t->pieces[t->count - 1] : NULL;
    char *grown;

    if (len == 0)
        return 0;
    if (!p || p->kind != HP_LITERAL)
        p = add_piece(t, HP_LITERAL);
    grown = p ? realloc(p->text, p->text_len + len + 1) : NULL;
    if (!grown)
        return -ENOMEM;
    memcpy(grown + p->text_len, text, len);
    p->text = grown;
    p->text_len += len;
    p->text[p->text_len] = '\0';
    return 0;
}

/* A literal in the form of its place. */
static int add_formed(struct hp_template *t, const char *text, size_t len, enum hp_form form)
{
    struct hp_buf buf = {0};
    int r;

    if (form == HP_JSON_INSIDE)
        hp_buf_json_string(&buf, text, len, false);
    else if (form == HP_PERCENT && t->separator == '&') /* in a URL literals are URL already */
        hp_buf_percent(&buf, text, len);
    else
        hp_buf_add(&buf, text, len);
    r = buf.error ? buf.error : add_literal(t, buf.data, buf.len);
    hp_buf_done(&buf);
    return r;
}

static int refuse_unknown(const struct hp_open *open, const char *setting, const char *name)
{
    struct near near;
    char *cure = NULL;
    int r;

    near_init(&near, name);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (open->asking || !fields[i].asking)
            near_try(&near, fields[i].name);
    if (near_best(&near) && asprintf(&cure, "did you mean {{%s}}?", near_best(&near)) < 0)
        cure = NULL;
    r = hp_refuse(open, setting,
                  cure ? cure
                       : "known are recipient, recipient_digits, body, key, id, kind, sender, "
                         "created_ms, expires_ms, validity_s, callback_url and meta.NAME",
                  "unknown placeholder {{%s}}", name);
    free(cure);
    return r;
}

static int look_up(const struct hp_open *open, const char *setting, const char *name,
                   enum hp_field *ret_field, char **ret_meta)
{
    *ret_meta = NULL;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if ((open->asking || !fields[i].asking) && strcmp(fields[i].name, name) == 0) {
            *ret_field = fields[i].field;
            return 0;
        }
    if (strncmp(name, meta_prefix, strlen(meta_prefix)) != 0 || !name[strlen(meta_prefix)])
        return refuse_unknown(open, setting, name);
    *ret_field = HP_FIELD_META;
    *ret_meta = strdup(name + strlen(meta_prefix));
    return *ret_meta ? 0 : -ENOMEM;
}

/* The name between the braces, blanks around it dropped. */
static char *placeholder_name(const char *begin, const char *end)
{
    while (begin < end && *begin == ' ')
        begin++;
    while (end > begin && end[-1] == ' ')
        end--;
    return strndup(begin, (size_t)(end - begin));
}

static int add_value(struct hp_template *t, const struct hp_open *open, const char *setting,
                     const char *begin, const char *end, enum hp_form form)
{
    char *name = placeholder_name(begin, end), *meta = NULL;
    enum hp_field field = HP_FIELD_NONE;
    struct hp_piece *p;
    int r = name ? look_up(open, setting, name, &field, &meta) : -ENOMEM;

    free(name);
    if (r < 0)
        return r;
    p = add_piece(t, HP_VALUE);
    if (!p) {
        free(meta);
        return -ENOMEM;
    }
    p->field = field;
    p->form = form;
    p->meta = meta;
    t->uses |= 1u << field;
    return 0;
}

int hp_template_text(struct hp_template *t, const struct hp_open *open, const char *setting,
                     const char *text, enum hp_form form)
{
    for (const char *p = text; *p;) {
        const char *open_at = strstr(p, "{{");
        const char *close_at = open_at ? strstr(open_at, "}}") : NULL;
        size_t literal = open_at ? (size_t)(open_at - p) : strlen(p);
        int r;

        if (open_at && !close_at)
            return hp_refuse(open, setting, "close it with }}", "a placeholder is not closed");
        r = add_formed(t, p, literal, form);
        if (r == 0 && open_at)
            r = add_value(t, open, setting, open_at + 2, close_at, form);
        if (r < 0)
            return r;
        p = open_at ? close_at + 2 : p + literal;
    }
    return 0;
}

/* "{{name}}" and nothing else. */
static bool is_whole(const char *text)
{
    const char *close_at = strncmp(text, "{{", 2) == 0 ? strstr(text, "}}") : NULL;

    return close_at && close_at[2] == '\0';
}

/* Begins a member; its index, or -ENOMEM. */
static ssize_t member_begin(struct hp_template *t, const char *name, enum hp_form form)
{
    struct hp_buf buf = {0};
    struct hp_piece *p = NULL;

    if (form == HP_PERCENT) {
        hp_buf_percent(&buf, name, strlen(name));
        hp_buf_add(&buf, "=", 1);
    } else {
        hp_buf_json_string(&buf, name, strlen(name), true);
        hp_buf_add(&buf, ":", 1);
    }
    if (!buf.error)
        p = add_piece(t, HP_MEMBER);
    if (!p) {
        hp_buf_done(&buf);
        return -ENOMEM;
    }
    p->text = buf.data;
    p->text_len = buf.len;
    return (ssize_t)t->count - 1;
}

static int member_end(struct hp_template *t, size_t member, bool whole)
{
    struct hp_piece *p = &t->pieces[member];

    p->skip = t->barrier = t->count;
    if (!whole)
        return 0;
    p->field = t->pieces[member + 1].field;
    if (!t->pieces[member + 1].meta)
        return 0;
    p->meta = strdup(t->pieces[member + 1].meta);
    return p->meta ? 0 : -ENOMEM;
}

static int json_node(struct hp_template *t, const struct hp_open *open, const char *setting,
                     const json_t *value);

static int json_member(struct hp_template *t, const struct hp_open *open, const char *setting,
                       const char *key, const json_t *value)
{
    char *path = NULL;
    ssize_t member;
    int r;

    if (asprintf(&path, "%s.%s", setting, key) < 0)
        return -ENOMEM;
    if (strstr(key, "{{"))
        r = hp_refuse(open, path, NULL, "a key cannot hold a placeholder");
    else if ((member = member_begin(t, key, HP_JSON_WHOLE)) < 0)
        r = (int)member;
    else if ((r = json_node(t, open, path, value)) == 0)
        r = member_end(t, (size_t)member,
                       json_is_string(value) && is_whole(json_string_value(value)));
    free(path);
    return r;
}

static int json_array_node(struct hp_template *t, const struct hp_open *open, const char *setting,
                           const json_t *array)
{
    int r = add_literal(t, "[", 1);

    for (size_t i = 0; i < json_array_size(array) && r == 0; i++) {
        char *path = NULL;

        if (i > 0)
            r = add_literal(t, ",", 1);
        if (asprintf(&path, "%s[%zu]", setting, i) < 0)
            return -ENOMEM;
        if (r == 0)
            r = json_node(t, open, path, json_array_get(array, i));
        free(path);
    }
    return r < 0 ? r : add_literal(t, "]", 1);
}

static int json_string_node(struct hp_template *t, const struct hp_open *open, const char *setting,
                            const char *text)
{
    int r;

    if (is_whole(text))
        return hp_template_text(t, open, setting, text, HP_JSON_WHOLE);
    r = add_literal(t, "\"", 1);
    if (r == 0)
        r = hp_template_text(t, open, setting, text, HP_JSON_INSIDE);
    return r < 0 ? r : add_literal(t, "\"", 1);
}

static int json_node(struct hp_template *t, const struct hp_open *open, const char *setting,
                     const json_t *value)
{
    const char *key;
    json_t *member;
    char *text;
    int r;

    if (json_is_string(value))
        return json_string_node(t, open, setting, json_string_value(value));
    if (json_is_array(value))
        return json_array_node(t, open, setting, value);
    if (json_is_object(value)) {
        r = add_literal(t, "{", 1);
        json_object_foreach ((json_t *)value, key, member) {
            if (r == 0)
                r = json_member(t, open, setting, key, member);
        }
        return r < 0 ? r : add_literal(t, "}", 1);
    }
    text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    r = text ? add_literal(t, text, strlen(text)) : -ENOMEM;
    free(text);
    return r;
}

int hp_template_json(struct hp_template *t, const struct hp_open *open, const char *setting,
                     const json_t *value)
{
    t->separator = ',';
    return json_node(t, open, setting, value);
}

static int form_member(struct hp_template *t, const struct hp_open *open, const char *setting,
                       const char *key, const json_t *value)
{
    char *text = NULL;
    ssize_t member;
    int r;

    if (strstr(key, "{{"))
        return hp_refuse(open, setting, NULL, "a key cannot hold a placeholder");
    if (json_is_object(value) || json_is_array(value) || json_is_null(value))
        return hp_refuse(open, setting, "write a string, a number, true or false",
                         "a form has no nested values");
    if ((member = member_begin(t, key, HP_PERCENT)) < 0)
        return (int)member;
    if (json_is_string(value))
        r = hp_template_text(t, open, setting, json_string_value(value), HP_PERCENT);
    else if ((text = json_dumps(value, JSON_ENCODE_ANY)))
        r = add_literal(t, text, strlen(text));
    else
        r = -ENOMEM;
    free(text);
    return r < 0 ? r
                 : member_end(t, (size_t)member,
                              json_is_string(value) && is_whole(json_string_value(value)));
}

int hp_template_form(struct hp_template *t, const struct hp_open *open, const char *setting,
                     const json_t *value)
{
    const char *key;
    json_t *member;

    t->separator = '&';
    json_object_foreach ((json_t *)value, key, member) {
        char *path = NULL;
        int r;

        if (asprintf(&path, "%s.%s", setting, key) < 0)
            return -ENOMEM;
        r = form_member(t, open, path, key, member);
        free(path);
        if (r < 0)
            return r;
    }
    return 0;
}
