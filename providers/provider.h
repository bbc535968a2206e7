/* provider.h - the border between postrider and one vendor's plugin.
 *
 * A plugin is pure: it *builds* a request and *judges* a reply. If the vendor offers more, it
 * also *asks* what became of a message (a look-up, for lost answers), reads the *receipts* the
 * vendor sends, and *logs in* where requests need a token that expires. The worker owns sockets,
 * time, limits, retries and logs, so a plugin cannot block the loop, send twice or leak a
 * connection, and is tested from files. It links to nothing of postrider: what it needs
 * from the host comes as a table of functions.
 *
 * Rules for every function of a plugin:
 *  - no I/O, no clock, no threads, no global mutable state; called on one thread only;
 *  - everything passed in is borrowed until the call returns; nothing the plugin returns
 *    is freed by the host, nothing of the host's is kept or freed by the plugin;
 *  - returns 0, or a negative errno value. A failing `build` ends that one message
 *    (`failed`, reason `plugin_error`): nothing has been sent. A failing `judge`, or a
 *    verdict outside this header, counts as PROVIDER_UNKNOWN: the request did leave.
 *
 * Versioning: a plugin is refused when `abi_major` differs, when its `abi_minor` is newer
 * than the host's or when `size` is smaller than version 1.0 needs. Members are only ever
 * appended (minor) unless the major number moves. */
#ifndef POSTRIDER_PROVIDER_H
#define POSTRIDER_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROVIDER_ABI_MAJOR 1u
#define PROVIDER_ABI_MINOR 1u

/* What one attempt proved. The order is part of the ABI. */
enum provider_outcome {
    PROVIDER_ACCEPTED = 0, /* the vendor took responsibility, now or under an earlier try */
    PROVIDER_REJECTED,     /* this message will never be taken (number, content, opt-out) */
    PROVIDER_THROTTLED,    /* over a limit; surely not taken */
    PROVIDER_HELD,         /* the account or set-up is unusable (auth, balance, sender) */
    PROVIDER_REFUSED,      /* "try later", and the vendor is known not to have taken it */
    PROVIDER_UNKNOWN,      /* anything unproven */
    PROVIDER_OUTCOME_MAX_
};

/* What the vendor does with a second request under the same key. */
enum provider_dedup {
    PROVIDER_DEDUP_NONE = 0, /* sends again; an echoed reference is not de-duplication */
    PROVIDER_DEDUP_REPLAY,   /* repeats the first answer */
    PROVIDER_DEDUP_REJECT,   /* refuses and names the duplicate; judge says ACCEPTED */
};

/* How the vendor can be asked about a message whose answer was lost. */
enum provider_ask {
    PROVIDER_ASK_NONE = 0,
    PROVIDER_ASK_BY_KEY, /* under our own key, or a list that shows it: exact */
    PROVIDER_ASK_BY_ID, /* under the vendor's id only: no help where the id was lost with the answer
                         */
    PROVIDER_ASK_BY_TEXT, /* a list by number and time, compared by text: the host drops
                             candidates that belong to another message of ours */
};

/* How the vendor reports what became of a message. */
enum provider_receipts {
    PROVIDER_RECEIPTS_NONE = 0,
    PROVIDER_RECEIPTS_UNSIGNED, /* guarded by the token in the callback's path alone */
    PROVIDER_RECEIPTS_SIGNED,   /* `receipt` verifies a signature with the present settings */
};

/* In words for people (`postrider check`); they change nothing in the worker. */
enum provider_number {                           /* how the vendor wants a number */
                       PROVIDER_NUMBER_PLUS = 0, /* +998901234567 */
                       PROVIDER_NUMBER_DIGITS,   /* 998901234567 */
};
enum provider_validity {                             /* how a message's lifetime is passed on */
                         PROVIDER_VALIDITY_NONE = 0, /* it is not: a late delivery is possible */
                         PROVIDER_VALIDITY_ABSOLUTE,
                         PROVIDER_VALIDITY_MS,
                         PROVIDER_VALIDITY_S,
                         PROVIDER_VALIDITY_MIN,
};
enum provider_limit { PROVIDER_LIMIT_MESSAGE = 0, PROVIDER_LIMIT_SEGMENT };

/* What this instance of the plugin, with its settings, can prove. Times in milliseconds. */
struct provider_caps {
    uint32_t dedup;          /* enum provider_dedup */
    uint32_t ask;            /* enum provider_ask */
    int64_t dedup_window_ms; /* how long the vendor remembers a key; 0 without dedup */
    int64_t worst_answer_ms; /* longest documented answer time, 0 = not documented */
    bool answers_without_id; /* an accepted answer may lack the vendor's id */
    /* since 1.1 */
    bool absence_proves;  /* "never seen", after ask_delay_ms, proves that it was not taken */
    bool receipts_by_id;  /* receipts name the vendor's id alone: the host keeps ids to find them */
    bool several_ids;     /* a message may get an id a part (verdict_part) */
    uint32_t receipts;    /* enum provider_receipts */
    int64_t ask_delay_ms; /* visibility: how long a taken message may stay unseen by a look-up */
    int64_t ask_window_ms;    /* how long it stays visible; 0: longer than a message's life */
    uint32_t asks_per_minute; /* look-ups the vendor allows the whole account; 0: none published */
    uint32_t number;          /* enum provider_number */
    uint32_t validity;        /* enum provider_validity */
    uint32_t limit;           /* enum provider_limit: what the vendor's rate limit counts */
};

/* One message, ready to be sent. Strings are NUL-terminated UTF-8, never NULL unless noted. */
struct provider_msg {
    const char *key;       /* idempotency key: 36 characters, the same for every attempt */
    const char *recipient; /* E.164 with the leading + */
    const char *body;
    size_t body_len;    /* bytes */
    const char *sender; /* NULL: the provider's default */
    const char *kind;
    const char *meta_json; /* NULL: none; a JSON object otherwise */
    int64_t created_ms;    /* Unix epoch, by the database's clock; frozen */
    int64_t expires_ms;    /* Unix epoch, by the database's clock; frozen */
    /* since 1.1 */
    const char *id;           /* the message's id, 36 characters: what receipts are matched by; it
                                 differs from the key when the application chose its own */
    const char *callback_url; /* where this message's receipts are to go, our id in its query as
                                 `k`; NULL: receipts are not set up. Frozen like the rest */
    const char *token;        /* from `login`; NULL when the plugin has none */
    int64_t validity_ms;      /* life left when it was first claimed; frozen (R2) */
};

struct provider_header {
    const char *name;
    const char *value;
};

/* A reply. `complete` is true only when a final status (>= 200), the end of the headers and
 * the whole body per its framing arrived; an incomplete one can never be ACCEPTED. */
struct provider_reply {
    int status;
    bool complete;
    const struct provider_header *headers; /* names in lower case */
    size_t headers_count;
    const char *body; /* NUL-terminated for convenience; may contain NUL before its end */
    size_t body_len;
};

/* ---- asking (1.1) ---- */

/* A look-up: one message whose last answer is not known. */
struct provider_question {
    const struct provider_msg *msg; /* as it was sent; callback_url may be NULL */
    const char *vendor_id;          /* NULL unless known all the same */
    int64_t from_ms, to_ms;         /* Unix epoch: the attempts in doubt began not before `from`
                                       and were over before `to` */
    const char *cursor;             /* NULL; else what answer_more gave: the next page */
};

enum provider_finding {
    PROVIDER_CANNOT_SAY = 0, /* throttled, refused, unreadable: proves nothing, ask again */
    PROVIDER_HAS_IT,         /* took responsibility: see answer_id */
    PROVIDER_REFUSED_IT,     /* has the request on record, and did not take it */
    PROVIDER_NEVER_SEEN,     /* looked through all that was asked for, and it is not there */
    PROVIDER_FINDING_MAX_
};

/* ---- receipts (1.1) ---- */

struct provider_param { /* decoded; NUL-terminated, a name or value with NUL is dropped */
    const char *name;
    const char *value;
};

/* A call from the vendor. `query` and `form` keep their order. `form` is read only from a body of
 * type application/x-www-form-urlencoded. */
struct provider_callback {
    const char *method; /* "GET" or "POST" */
    const char *url;    /* as the vendor called it: the configured public URL, path, query */
    const struct provider_param *query;
    size_t query_count;
    const struct provider_param *form;
    size_t form_count;
    const struct provider_header *headers; /* names in lower case */
    size_t headers_count;
    const char *body; /* raw; NUL-terminated for convenience */
    size_t body_len;
    int64_t now_ms; /* Unix epoch, the host's clock: for signatures with a time */
};

/* What became of a message the vendor took. REJECTED is the vendor's or network's later refusal. */
enum provider_status {
    PROVIDER_STATUS_IN_TRANSIT = 0,
    PROVIDER_STATUS_DELIVERED,
    PROVIDER_STATUS_UNDELIVERED,
    PROVIDER_STATUS_EXPIRED,
    PROVIDER_STATUS_REJECTED,
    PROVIDER_STATUS_MAX_
};

struct provider_receipt {  /* at least one of ref and vendor_id; zero what is not known */
    uint32_t status;       /* enum provider_status */
    const char *ref;       /* provider_msg.id as the vendor echoes it. Left out where it comes in
                              the callback URL: the host reads `k` itself */
    const char *vendor_id; /* of the message, or of the part this speaks of */
    const char *code;      /* the vendor's error code */
    const char *detail;
    int64_t at_ms; /* Unix epoch, the vendor's time of the event; 0: none */
};

struct provider_inbound { /* a message a person sent to us */
    const char *from;     /* digits, with or without + */
    const char *to;       /* may be NULL */
    const char *text;     /* UTF-8 */
    const char *id;       /* the vendor's, may be NULL */
};

struct provider_req;     /* being built; the host's */
struct provider_verdict; /* being judged; the host's */
struct provider_answer;  /* a look-up being judged; the host's */
struct provider_grant;   /* a login being judged; the host's */
struct provider_events;  /* a callback being read; the host's */
struct provider_report;  /* where `open` says what is wrong; the host's */

/* What the host does for a plugin. Every function copies its arguments. Functions that
 * return int give 0 or a negative errno value the plugin should pass on. */
struct provider_host {
    uint32_t size; /* sizeof(struct provider_host) of the running host */
    /* Request. Method and URL are required. A header name or value with CR, LF or NUL and a
     * URL that is not http or https are refused with -EINVAL. */
    int (*req_method)(struct provider_req *req, const char *method);
    int (*req_url)(struct provider_req *req, const char *url);
    int (*req_header)(struct provider_req *req, const char *name, const char *value);
    int (*req_body)(struct provider_req *req, const char *data, size_t len);
    /* Verdict. `verdict` must be called exactly once per judge; the others are optional.
     * Code and detail are the vendor's own words; the host cleans and shortens them. */
    void (*verdict)(struct provider_verdict *v, enum provider_outcome outcome);
    int (*verdict_id)(struct provider_verdict *v, const char *id, size_t len);
    int (*verdict_code)(struct provider_verdict *v, const char *code, size_t len);
    int (*verdict_detail)(struct provider_verdict *v, const char *text, size_t len);
    void (*verdict_retry_after)(struct provider_verdict *v, int64_t ms);
    void (*verdict_opt_out)(struct provider_verdict *v); /* with REJECTED: suppress number */
    /* Says why settings are refused: `setting` is a path such as "body.to"; `cure` may be
     * NULL. */
    void (*refuse)(struct provider_report *r, const char *setting, const char *why,
                   const char *cure);

    /* ---- since 1.1; a plugin that uses them declares abi_minor 1 ---- */

    /* Signs the request as AWS wants it (SigV4). `session` may be NULL. Body and content type are
     * signed as they stand when the request leaves. */
    int (*req_sigv4)(struct provider_req *req, const char *region, const char *service,
                     const char *access_key, const char *secret_key, const char *session);

    /* One id a part, in order, the first included: where a message gets several (several_ids). */
    int (*verdict_part)(struct provider_verdict *v, const char *id, size_t len);
    /* With ACCEPTED: "I have this key already". The answer may lack an id. */
    void (*verdict_duplicate)(struct provider_verdict *v);
    /* Instead of `verdict`: the token was refused and the message surely not taken. The host logs
     * in again and sends once more; a second refusal of a fresh token holds the provider. */
    void (*verdict_login)(struct provider_verdict *v);

    /* The answer to a question. `answer` exactly once, unless answer_more or answer_login. */
    void (*answer)(struct provider_answer *a, enum provider_finding finding);
    /* With HAS_IT: the vendor's id. Several calls are candidates, best first (BY_TEXT). */
    int (*answer_id)(struct provider_answer *a, const char *id, size_t len);
    /* The list goes on: ask again with this cursor. At most 20 pages. */
    int (*answer_more)(struct provider_answer *a, const char *cursor, size_t len);
    void (*answer_retry_after)(struct provider_answer *a, int64_t ms);
    int (*answer_code)(struct provider_answer *a, const char *code, size_t len);
    int (*answer_detail)(struct provider_answer *a, const char *text, size_t len);
    void (*answer_login)(struct provider_answer *a); /* as verdict_login */

    /* A login. Neither call: unreadable, tried again later. A lifetime of 0 is "until refused". */
    int (*grant_token)(struct provider_grant *g, const char *token, size_t len,
                       int64_t lifetime_ms);
    void (*grant_refuse)(struct provider_grant *g, const char *code, const char *detail);

    /* A callback. Any number of receipts and inbound messages, 1,000 in all; texts are copied,
     * cleaned and shortened by the host, which also refuses what is not UTF-8. */
    int (*receipt)(struct provider_events *out, const struct provider_receipt *r);
    int (*inbound)(struct provider_events *out, const struct provider_inbound *m);
    /* What the vendor wants to read once the events are stored; default: 200, empty body. Not
     * used when storing failed (503) or `receipt` failed. */
    int (*callback_answer)(struct provider_events *out, int status, const char *content_type,
                           const char *body, size_t len);
    /* An operator has to open this URL once to confirm a subscription: shown in the log. */
    int (*callback_confirm)(struct provider_events *out, const char *url);
};

struct provider {
    uint32_t abi_major, abi_minor;
    uint32_t size;    /* sizeof(struct provider) where the plugin was built */
    const char *name; /* as in the config's "plugin" */
    /* Reads the provider's "settings" object (JSON text; secrets are already strings).
     * On failure it has called host->refuse and returns -EINVAL, or returns -ENOMEM. */
    int (*open)(const struct provider_host *host, const char *settings_json,
                struct provider_report *report, void **ret_self);
    void (*close)(void *self);                                     /* NULL is fine */
    void (*describe)(const void *self, struct provider_caps *ret); /* *ret is zeroed before */
    int (*build)(const void *self, const struct provider_msg *msg, struct provider_req *req);
    int (*judge)(const void *self, const struct provider_reply *reply,
                 struct provider_verdict *verdict);
    /* ---- since 1.1, each pair NULL when the vendor has no such thing ---- */
    /* A look-up. -ENODATA from `ask`: nothing to ask by (BY_ID without an id). Only complete
     * replies with a final status are judged. */
    int (*ask)(const void *self, const struct provider_question *q, struct provider_req *req);
    int (*ask_judge)(const void *self, const struct provider_question *q,
                     const struct provider_reply *reply, struct provider_answer *answer);
    /* A token for requests. `login` builds a request, or calls grant_token itself when the token
     * is made here (a signed JWT): then no request leaves. `now_ms`: Unix epoch. */
    int (*login)(const void *self, int64_t now_ms, struct provider_req *req,
                 struct provider_grant *grant);
    int (*login_judge)(const void *self, const struct provider_reply *reply,
                       struct provider_grant *grant);
    /* Reads a callback. 0: its events are with the host. -EACCES: the signature is missing or
     * wrong (403, counted, nothing stored). -EBADMSG: not a callback of this vendor (400). */
    int (*receipt)(const void *self, const struct provider_callback *cb,
                   struct provider_events *out);
};

/* The plugin's one exported symbol; a function, as dlsym promises less for data. */
#define PROVIDER_ENTRY_SYMBOL "provider_entry"
__attribute__((visibility("default"))) const struct provider *provider_entry(void);

#endif
