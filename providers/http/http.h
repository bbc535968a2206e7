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
    bool asking; /* compiling a look-up: placeholders of the question are known */
};

/* Tells the host and returns -EINVAL. `cure` may be NULL. */
int hp_refuse(const struct hp_open *open, const char *setting, const char *cure, const char *fmt,
              ...) __attribute__((format(printf, 4, 5)));

/* Checked access. `path` names the setting in a refusal, "" stands for the settings themselves.
 * Each returns 0 or what hp_refuse did; *ret is NULL where the member is absent. */
enum { HP_STATUS_MIN = 200, HP_STATUS_MAX = 599 };
int hp_check_keys(const struct hp_open *open, const char *path, const json_t *object,
                  const char *const *known);
int hp_get_string(const struct hp_open *open, const char *path, const json_t *object,
                  const char *key, const char **ret);
int hp_get_pointer(const struct hp_open *open, const char *path, const json_t *object,
                   const char *key, const char **ret);
int hp_get_int(const struct hp_open *open, const char *path, const json_t *value, int64_t min,
               int64_t max, int64_t *ret);
int hp_get_bool(const struct hp_open *open, const char *path, const json_t *object, const char *key,
                bool *io);
int hp_check_status(const struct hp_open *open, const char *path, const json_t *value, int max);
/* {"status": 200 | [200, 202], "match": {...}} with members `known`. */
int hp_check_rule(const struct hp_open *open, const char *path, const json_t *rule,
                  const char *const *known, int max);

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
    HP_FIELD_VALIDITY_S,
    HP_FIELD_ID,
    HP_FIELD_CALLBACK_URL,
    HP_FIELD_META, /* with a name */
    /* of a question, in a look-up alone */
    HP_FIELD_VENDOR_ID,
    HP_FIELD_FROM_MS,
    HP_FIELD_TO_MS,
    HP_FIELD_FROM_TIME,
    HP_FIELD_TO_TIME,
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
    uint32_t uses;  /* which fields occur, a bit each */
};

static inline bool hp_uses(const struct hp_template *t, enum hp_field field)
{
    return t->uses >> field & 1;
}

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
    json_t *meta;                         /* object or NULL */
    const struct provider_question *asks; /* NULL unless asking */
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

/* A look-up. Pointers lead into the reply, or into an entry of its list. */
struct hp_ask {
    uint32_t kind; /* enum provider_ask; NONE: not set */
    const char *method;
    struct hp_template url;
    const json_t *found, *not_found, *refused; /* rules, the last two may be NULL */
    const char *list, *next;                   /* NULL: one message, one page */
    const char *cursor;                        /* name of the parameter `next` is sent back in */
    const char *id, *key, *recipient, *text, *time;
    int64_t full; /* an array as long as this may have been cut; 0: none is */
    int64_t delay_ms, window_ms, per_minute;
    bool absence_proves;
};

enum hp_scheme { HP_UNSIGNED = 0, HP_HMAC_SHA1, HP_HMAC_SHA256, HP_STANDARD_WEBHOOKS };

struct hp_secret {
    uint8_t *data;
    size_t len;
};

/* Callbacks. A name that begins with / is a JSON pointer into the body, or into an entry of its
 * list; any other is a parameter, of the form or else of the query. NULL: not set. */
struct hp_receipt {
    bool on;
    const char *list;
    const char *ref, *id, *status, *code, *time;
    const json_t *statuses; /* the vendor's word → ours */
    const char *from, *to, *text, *inbound_id;
    enum hp_scheme scheme;
    const char *header, *prefix; /* header in lower case: owned, below */
    char *header_lower;
    bool base64;
    struct hp_secret *secrets;
    size_t secrets_n;
    int64_t tolerance_ms;
    int64_t answer_status;
    const char *answer_type, *answer_body;
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
    bool key_quoted;                   /* the key's headers are structured fields: "KEY" */
    const char *error, *detail;        /* JSON pointers or NULL */
    const json_t *lists[HP_LIST_MAX_]; /* arrays of numbers and rules, or NULL */
    int64_t worst_answer_ms;
    struct hp_ask ask;
    struct hp_receipt receipt;
};

extern const char *const hp_list_names[HP_LIST_MAX_];

/* Fills *self (zeroed, with host) from its settings. */
int hp_settings_read(struct hp_self *self, const struct hp_open *open);
int hp_ask_read(struct hp_self *self, const struct hp_open *open);
int hp_receipt_read(struct hp_self *self, const struct hp_open *open);
void hp_receipt_done(struct hp_receipt *receipt);

/* A URL whose host is fixed; placeholders may stand in its path and query. */
int hp_read_url(const struct hp_open *open, const char *setting, const char *text,
                struct hp_template *ret);
bool hp_is_token(const char *s);

/* Whether a message's own request has this placeholder anywhere. */
bool hp_sends(const struct hp_self *self, enum hp_field field);

/* ---- requests ------------------------------------------------------------------------------- */

int hp_build_url(const struct hp_self *self, const struct hp_template *url,
                 const struct hp_values *values, struct provider_req *req);
/* The settings' headers, those with the key left out when `asking`. */
int hp_build_headers(const struct hp_self *self, const struct hp_values *values, bool asking,
                     struct provider_req *req);
/* Reads msg->meta_json into *ret where a template wants it. 0 or -EINVAL. */
int hp_read_meta(const struct hp_self *self, const struct provider_msg *msg, json_t **ret);

/* ---- judgement ------------------------------------------------------------------------------ */

/* RFC 6901. NULL when the document has no such place. */
bool hp_pointer_ok(const char *pointer);
json_t *hp_pointer_get(const json_t *document, const char *pointer);
/* A string or whole number there, digits in `digits`; false when there is none, or it is empty. */
bool hp_text_at(const json_t *document, const char *pointer, char digits[static 24],
                const char **ret_text, size_t *ret_len);
bool hp_rule_matches(const json_t *rule, int status, const json_t *body);
/* The reply's body as JSON, NULL when it is not. */
json_t *hp_read_json(const char *body, size_t len);

int hp_judge(const struct hp_self *self, const struct provider_reply *reply,
             struct provider_verdict *verdict);
int hp_ask(const struct hp_self *self, const struct provider_question *q, struct provider_req *req);
int hp_ask_judge(const struct hp_self *self, const struct provider_question *q,
                 const struct provider_reply *reply, struct provider_answer *answer);
int hp_receive(const struct hp_self *self, const struct provider_callback *cb,
               struct provider_events *out);
bool hp_signature_ok(const struct hp_receipt *r, const struct provider_callback *cb);

#endif
