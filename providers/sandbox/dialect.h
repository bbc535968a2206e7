/* dialect.h - how the sandbox imitates one vendor: `postrider sandbox --dialect NAME`.
 *
 * A dialect knows a vendor's words; the sandbox knows what happens. For each request the dialect
 * checks what the vendor would check and says who gets which text (`read`); the sandbox then
 * decides by its knobs and by the recipient's last four digits (magic endings, see README.md),
 * counts the delivery in the ledger, and lets the dialect word the answer (`accept`, `refuse`).
 * Look-ups and logins are plain routes that answer from what the sandbox stored. Receipts are
 * worded by the dialect (`receipt`) and sent, repeated and shuffled by the sandbox.
 *
 * A dialect imitates the vendor from the vendor's documentation, never from our plugin: what one
 * gets wrong the other must not. providers/kit/{sign,form,json,when}.h are fine, verdicts are not.
 *
 * To add one: write `dialects/NAME.c` that defines `const struct sb_dialect sb_dialect_NAME`
 * ('-' in the name becomes '_' in both), and give it its line in dialects.c. For vendors already
 * listed there a stub file exists: overwrite it. dialects/twilio.c is the model.
 *
 * Rules: no I/O, no clock (sb_now_ms), no state of its own (all is in the world). Functions that
 * can fail return 0 or a negative errno. Times are Unix epoch ms. All texts are NUL-terminated
 * UTF-8. Everything handed in is borrowed until the call returns. One thread. */
#ifndef POSTRIDER_SANDBOX_DIALECT_H
#define POSTRIDER_SANDBOX_DIALECT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sb_world; /* the running sandbox as a dialect may see it */
struct sb_reply; /* an answer being worded */
struct sb_out;   /* a call to the customer (a receipt) being worded */

/* ---- settings: accounts and secrets, from --dialect-set NAME=VALUE ---- */

struct sb_setting { /* ends with a NULL name */
    const char *name, *value /* the default, documented by --help */, *help;
};

/* Present value of a setting of the dialect. Besides its own every dialect has
 *     callback_url   where receipts go for a message that names no URL itself ("": nowhere)
 *     inbound_url    where inbound messages go ("": callback_url)
 * Never NULL; asking for a name that is in no table ends the process: a typo. */
const char *sb_setting(const struct sb_world *w, const char *name);

int64_t sb_now_ms(const struct sb_world *w);

/* ---- a request ---- */

struct sb_pair {
    const char *name, *value; /* decoded; the value of "a" in "?a" is "" */
};

struct sb_call {
    struct sb_world *world;
    const char *method; /* "GET", "POST", … */
    const char *path;   /* without the query, percent-decoded */
    const struct sb_pair *query;
    size_t query_n;
    const struct sb_pair
        *form; /* of a body application/x-www-form-urlencoded or multipart/form-data
                  (texts only); order kept, '+' read as a blank */
    size_t form_n;
    bool form_broken;   /* a body of such a type that cannot be taken apart */
    const json_t *json; /* the body where it is JSON (whatever its type says), or NULL */
    const char *body;   /* raw; NUL-terminated for convenience */
    size_t len;
    void *priv_; /* the sandbox's own */
};

/* The first value of that name, or NULL. Header names in any case; query and form names exact. */
const char *sb_call_header(const struct sb_call *c, const char *name);
const char *sb_call_query(const struct sb_call *c, const char *name);
const char *sb_call_form(const struct sb_call *c, const char *name);
/* Either, form first. */
const char *sb_call_param(const struct sb_call *c, const char *name);
/* What stood in the route's path for `{name}`; "" when the route has no such part. */
const char *sb_call_part(const struct sb_call *c, const char *name);
/* The i-th header, for signatures over all of them; false when there are no more. */
bool sb_call_header_at(const struct sb_call *c, size_t i, struct sb_pair *ret);

/* Whether the request has `Authorization: Basic` with this user and password (NULL: any). */
bool sb_call_basic(const struct sb_call *c, const char *user, const char *password);
/* The token of `Authorization: SCHEME token` ("Bearer", "App", "AccessKey"; any case), or NULL. */
const char *sb_call_bearer(const struct sb_call *c, const char *scheme);
/* Whether the body's Content-Type is this one, parameters aside. */
bool sb_call_type(const struct sb_call *c, const char *type);

/* Texts a dialect makes while reading: they live until the answer was worded. NULL: out of memory
 * (or, for utf16, not UTF-16). */
const char *sb_call_printf(struct sb_call *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
const char *sb_call_copy(struct sb_call *c, const char *text, size_t len);
const char *sb_call_utf16be(struct sb_call *c, const void *units, size_t len); /* as UTF-8 */
const char *sb_call_utf16be_hex(struct sb_call *c, const char *hex);           /* "00480069" */
/* Takes a JSON value and keeps it as long; returns it. */
json_t *sb_call_keep(struct sb_call *c, json_t *take);

/* ---- a message ---- */

/* What `read` found in a request: one recipient, one text. All borrowed (from the call), zeroed
 * before. */
struct sb_send {
    const char *to;       /* required; as written, with or without '+' */
    const char *text;     /* required (may be "" if the vendor takes that) */
    const char *from;     /* NULL: none */
    const char *key;      /* what the vendor de-duplicates by (see sb_dialect.dedup), or NULL */
    const char *ref;      /* an echo-only client reference, or NULL */
    const char *callback; /* URL for this message's receipts, or NULL: the setting callback_url */
    int64_t validity_ms;  /* life the request gives it; 0: none given */
    unsigned parts;       /* 0: the sandbox counts segments (GSM-7 160/153, UCS-2 70/67) */
    bool no_receipt;      /* the request asked for none (or not in the way the vendor wants) */
    json_t *extra; /* whatever else has to be known at look-up and receipt; borrowed, the stored
                      message takes a reference. NULL: nothing */
};

enum sb_state {                   /* of a stored message */
                SB_ST_QUEUED = 0, /* taken, nothing else known */
                SB_ST_SENT,       /* handed to the network (an intermediate receipt says so) */
                SB_ST_DELIVERED,
                SB_ST_UNDELIVERED,
                SB_ST_EXPIRED,
                SB_ST_REJECTED,
};

/* A message the sandbox took, once per delivery. Read only. */
struct sb_msg {
    uint64_t no;                                         /* from 1, never twice in a process */
    const char *to, *text, *from, *key, *ref, *callback; /* as in sb_send; from … callback may be
                                                            NULL */
    const char *const *ids; /* the vendor's: one, or one per part (sb_dialect.id_per_part) */
    size_t ids_n;
    unsigned parts;
    int64_t taken_ms, validity_ms;
    int64_t changed_ms; /* of the present state */
    enum sb_state state;
    bool no_receipt;
    const json_t *extra;
};

/* Ids: `make_id` builds them from (message, part), unique in every run. `hex` takes n (1 to 32)
 * hexadecimal digits; `digits` n (1 to 19) decimal ones, the first not 0. */
enum { SB_ID_SIZE = 96 };
void sb_id_hex(const struct sb_world *w, const struct sb_msg *m, size_t part, const char *prefix,
               unsigned n, char buf[SB_ID_SIZE]);
void sb_id_uuid(const struct sb_world *w, const struct sb_msg *m, size_t part,
                char buf[SB_ID_SIZE]);
void sb_id_digits(const struct sb_world *w, const struct sb_msg *m, size_t part, unsigned n,
                  char buf[SB_ID_SIZE]);

/* Stored messages, newest first; `after` NULL: from the newest. A filter's NULL or 0 members match
 * all; numbers match with or without '+'. Messages younger than the knob `lookup_delay_ms` do not
 * show: a vendor's index lags. For paging skip as many as the cursor says. Borrowed until the call
 * ends. NULL: no more. */
struct sb_filter {
    const char *to, *from, *key, *ref;
    int64_t from_ms, to_ms; /* taken_ms in [from_ms, to_ms) */
};
const struct sb_msg *sb_msg_next(const struct sb_world *w, const struct sb_filter *f,
                                 const struct sb_msg *after);
/* By any of its ids; *ret_part (may be NULL) is the part it names. NULL: unknown or not to be seen
 * yet. */
const struct sb_msg *sb_msg_by_id(const struct sb_world *w, const char *id, size_t *ret_part);

/* ---- an answer ---- */

/* Each replaces status and body. Content-Type comes from here; more headers by sb_reply_header. */
int sb_reply_json(struct sb_reply *r, int status, json_t *take);
int sb_reply_text(struct sb_reply *r, int status, const char *type, const char *text);
int sb_reply_printf(struct sb_reply *r, int status, const char *type, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int sb_reply_header(struct sb_reply *r, const char *name, const char *value);
/* What `refuse(SB_REFUSE_ERROR)` should use as its status: the knob error_status (503). */
int sb_reply_status(const struct sb_reply *r);

/* ---- logins ---- */

/* A new token that sb_token_ok knows until the dialect's token_s (or the knob token_s, if set) is
 * over, or until `{"expire_tokens": true}` is PUT to /api/knobs. Borrowed until the call ends;
 * NULL: out of memory. *ret_lifetime_s may be NULL. `claims` (may be NULL, borrowed): the token is
 * then a JWT signed HS256 with a secret of the sandbox, with these claims and iat, exp. */
const char *sb_token_issue(struct sb_call *c, const json_t *claims, int64_t *ret_lifetime_s);
bool sb_token_ok(const struct sb_world *w, const char *token); /* NULL is not ok */
/* For tokens customers make themselves (JWT): false when one of this `iat` (Unix epoch, s) was made
 * before tokens were last expired by the knob. */
bool sb_token_age_ok(const struct sb_world *w, int64_t iat_s);

/* ---- receipts ---- */

enum sb_forge { /* how the test wants the signature */
                SB_GENUINE = 0,
                SB_FORGED,   /* made with another key: well-formed, and wrong */
                SB_UNSIGNED, /* left out */
};

struct sb_receipt {
    const struct sb_msg *msg;
    size_t part;         /* 0 … ids_n - 1 */
    enum sb_state state; /* what to report; msg->state may have moved on */
    int64_t at_ms;
};

struct sb_inbound { /* a person's message to us */
    const char *from, *to, *text, *id /* made by the sandbox: 32 hex digits */;
};

/* Method, URL (http or https) and headers of a call to the customer. The URL is usually
 * sb_out_target: the message's callback or the setting. Body: empty unless given. */
const char *sb_out_target(const struct sb_out *o);
int sb_out_call(struct sb_out *o, const char *method, const char *url);
int sb_out_header(struct sb_out *o, const char *name, const char *value);
int sb_out_body(struct sb_out *o, const char *type, const char *data, size_t len);
int sb_out_json(struct sb_out *o, json_t *take); /* compact; see sb_out_text to sign it */
const char *sb_out_text(const struct sb_out *o); /* the body so far, "" while empty */

/* ---- the dialect ---- */

enum sb_dedup {
    SB_DEDUP_NONE = 0, /* a repeat is delivered again */
    SB_DEDUP_REPLAY,   /* a known key gets the first answer again: accept(…, replay = true) */
    SB_DEDUP_REJECT,   /* a known key is refused as a duplicate: SB_REFUSE_DUPLICATE */
};

/* Why a well-formed request is not taken. `refuse` returns -ENOTSUP where the vendor has no such
 * answer; what happens then stands behind each. */
enum sb_refusal {
    SB_REFUSE_NUMBER = 0, /* this number can never get it (required) */
    SB_REFUSE_THROTTLED,  /* over a rate; surely not taken. Then: 429 without a body */
    SB_REFUSE_OPT_OUT,    /* the number said STOP. Then: as SB_REFUSE_NUMBER */
    SB_REFUSE_LATER,      /* surely not taken, may work later. Then: SB_REFUSE_ERROR */
    SB_REFUSE_ACCOUNT,    /* balance, suspension: the account's trouble (required) */
    SB_REFUSE_DUPLICATE,  /* required with SB_DEDUP_REJECT */
    SB_REFUSE_MISMATCH,   /* a known key with other bytes. Then: like any known key */
    SB_REFUSE_RUNNING,    /* a known key whose first answer is still due. Then: like any */
    SB_REFUSE_ERROR,      /* the vendor's own trouble, an HTTP 5xx that must prove nothing: the
                             message may have been taken (required) */
    SB_REFUSALS_
};

struct sb_dialect_route { /* ends with a NULL method */
    const char *method;
    const char *path; /* "/v1/Accounts/{account}/Messages.json": {name} is one or more characters
                         but '/', up to the text that follows it */
    /* NULL: the route takes messages (sb_dialect.read). Otherwise: answers at once. */
    int (*serve)(struct sb_call *c, struct sb_reply *reply);
    bool login; /* with `serve`: counted as a login, otherwise as a look-up */
};

struct sb_dialect {
    const char *name; /* as in --dialect: "vonage-messages" */
    const char *help; /* one line: which API, what is special */
    const struct sb_setting *settings;
    const struct sb_dialect_route *routes; /* the first that fits; tried before /api/… */

    enum sb_dedup dedup;
    int64_t dedup_s;        /* how long a key is known; 0: the knob dedup_window */
    int64_t token_s;        /* life of a token; 0: 3,600 */
    bool id_per_part;       /* a message gets an id for each of its parts, and a receipt for each */
    unsigned receipt_tries; /* how often the vendor calls until it is answered; 0: the knob */

    /* Reads a request that takes messages. 0: *ret holds the message. -EINVAL: the request is
     * refused (auth, fields, encoding, sender) and `reply` says it as the vendor would. */
    int (*read)(struct sb_call *c, struct sb_send *ret, struct sb_reply *reply);
    /* Words the answer for a message taken now, or (`replay`) under the same key before. */
    int (*accept)(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m, bool replay,
                  struct sb_reply *reply);
    /* Words a refusal. `s` may be NULL: the vendor refused before it read. `known` is the message
     * taken under that key for DUPLICATE, MISMATCH and RUNNING, NULL otherwise. */
    int (*refuse)(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                  const struct sb_msg *known, struct sb_reply *reply);
    /* The vendor's id of a part (0 unless id_per_part); NULL: a UUID. */
    void (*make_id)(const struct sb_world *w, const struct sb_msg *m, size_t part,
                    char buf[SB_ID_SIZE]);
    /* Words one call that reports `n` (1 or more, same target) receipts; n > 1 comes only when a
     * test asks for a batch: -ENOTSUP where the vendor has none. NULL: the vendor sends none. */
    int (*receipt)(const struct sb_world *w, const struct sb_receipt *items, size_t n,
                   enum sb_forge forge, struct sb_out *out);
    /* Words an inbound message. NULL: the vendor has none. */
    int (*inbound)(const struct sb_world *w, const struct sb_inbound *m, enum sb_forge forge,
                   struct sb_out *out);
    /* Whether the customer's answer to a receipt satisfies the vendor; NULL: any 2xx. */
    bool (*receipt_ok)(int status, const char *body, size_t len);
};

/* The table of dialects.c. i-th, or NULL when there are no more; a stub (nothing built yet) has no
 * `read`. */
const struct sb_dialect *sb_dialect_at(size_t i);
/* By name; NULL: none or a stub. */
const struct sb_dialect *sb_dialect_find(const char *name);

#endif
