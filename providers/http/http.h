/* http.h - inside of the generic HTTP plugin: settings, templates, judgement.
 *
 * Everything is worked out at `open`: templates become lists of pieces, so that building a
 * request only fills gaps, and a mistake in the settings shows before the first message. */
#ifndef POSTRIDER_PROVIDERS_HTTP_HTTP_H
#define POSTRIDER_PROVIDERS_HTTP_HTTP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "providers/provider.h"

/* ---- refusing settings ---------------------------------------------------------------------- */

struct hp_open {
    const struct provider_host *host;
    struct provider_report *report;
};

/* Tells the host and returns -EINVAL. `cure` may be NULL. */
int hp_refuse(const struct hp_open *open, const char *setting, const char *cure, const char *fmt,
              ...) __attribute__((format(printf, 4, 5)));

/* ---- templates ------------------------------------------------------------------------------ */

enum hp_field {
    HP_FIELD_NONE = 0,
    HP_FIELD_RECIPIENT,
    HP_FIELD_RECIPIENT_DIGITS,
    HP_FIELD_BODY,
    HP_FIELD_KEY,
    HP_FIELD_KIND,
    HP_FIELD_SENDER,
    HP_FIELD_CREATED_MS,
    HP_FIELD_EXPIRES_MS,
    HP_FIELD_META, /* with a name */
};

/* How a value is written where it stands. */
enum hp_form {
    HP_PLAIN,       /* header: as it is; the host refuses line ends */
    HP_PERCENT,     /* URL and form: everything but A-Z a-z 0-9 - . _ ~ as %XX */
    HP_JSON_INSIDE, /* within a JSON string */
    HP_JSON_WHOLE,  /* a JSON value of its own type */
};

enum hp_piece_kind { HP_LITERAL, HP_VALUE, HP_MEMBER };

/* A member is left out, up to piece `skip`, when its whole value is a placeholder without a
 * value (no sender, no such meta). */
struct hp_piece {
    enum hp_piece_kind kind;
    enum hp_field field;
    enum hp_form form;
    char *text; /* literal, or what begins a member */
    size_t text_len;
    char *meta; /* HP_FIELD_META: its name */
    size_t skip;
};

struct hp_template {
    struct hp_piece *pieces;
    size_t count;
    size_t barrier; /* literals before this piece are not continued: a skip ends here */
    char separator; /* between members: ',' or '&' */
    bool has_key;   /* {{key}} occurs */
    bool has_meta;
};

void hp_template_done(struct hp_template *t);

/* Compilers. `setting` is the path for refusals. 0, -EINVAL (refused) or -ENOMEM. */
int hp_template_text(struct hp_template *t, const struct hp_open *open, const char *setting,
                     const char *text, enum hp_form form);
int hp_template_json(struct hp_template *t, const struct hp_open *open, const char *setting,
                     const json_t *value);
int hp_template_form(struct hp_template *t, const struct hp_open *open, const char *setting,
                     const json_t *value);

struct hp_values {
    const struct provider_msg *msg;
    json_t *meta; /* object or NULL */
};

/* Growing text; `error` is sticky. Always NUL-terminated once something was added. */
struct hp_buf {
    char *data;
    size_t len, size;
    int error;
};
void hp_buf_done(struct hp_buf *buf);
void hp_buf_add(struct hp_buf *buf, const char *data, size_t len);
void hp_buf_percent(struct hp_buf *buf, const char *text, size_t len);
/* jansson escapes; for the inside of a longer string its quotes are taken off again. */
void hp_buf_json_string(struct hp_buf *buf, const char *text, size_t len, bool quotes);

/* Appends the rendered template. 0, -EINVAL (a value that is not UTF-8) or -ENOMEM. */
int hp_template_render(const struct hp_template *t, const struct hp_values *values,
                       struct hp_buf *buf);

/* Whether the template is one placeholder and that has no value. */
bool hp_template_missing(const struct hp_template *t, const struct hp_values *values);

/* ---- settings ------------------------------------------------------------------------------- */

struct hp_header {
    char *name;
    struct hp_template value;
};

/* Lists of statuses, in the order they are tried. */
enum hp_list {
    HP_OPTED_OUT,
    HP_REJECTED,
    HP_THROTTLED,
    HP_HELD,
    HP_NOT_TAKEN,
    HP_LIST_MAX_,
};

struct hp_self {
    const struct provider_host *host;
    json_t *settings; /* everything below that is json_t or const char * lies in here */
    const char *method;
    struct hp_template url;
    struct hp_template body;
    const char *content_type; /* NULL: the headers have their own, or no body */
    bool has_body;
    struct hp_header *headers;
    size_t headers_count;
    const char *dedup_header; /* NULL: the key travels in a template */
    const char *key_header;
    int64_t dedup_window_ms; /* 0: none */
    const json_t *duplicate; /* rule, or NULL */
    const json_t *accepted;  /* rule */
    const char *id;          /* JSON pointer, NULL: there is none */
    bool id_optional;
    const char *error, *detail;        /* JSON pointers or NULL */
    const json_t *lists[HP_LIST_MAX_]; /* arrays of numbers and rules, or NULL */
    int64_t worst_answer_ms;
};

extern const char *const hp_list_names[HP_LIST_MAX_];

/* Fills *self (zeroed, with host) from its settings. */
int hp_settings_read(struct hp_self *self, const struct hp_open *open);

/* ---- judgement ------------------------------------------------------------------------------ */

/* RFC 6901. NULL when the document has no such place. */
bool hp_pointer_ok(const char *pointer);
json_t *hp_pointer_get(json_t *document, const char *pointer);

int hp_judge(const struct hp_self *self, const struct provider_reply *reply,
             struct provider_verdict *verdict);

#endif
