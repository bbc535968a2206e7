/* provider.h - the border between postrider and one vendor's plugin.
 *
 * A plugin is pure: it *builds* a request and *judges* a reply. The worker owns sockets,
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
#define PROVIDER_ABI_MINOR 0u

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

/* How the vendor can be asked about a message. Shapes other than NONE come with ABI 1.1. */
enum provider_ask { PROVIDER_ASK_NONE = 0 };

/* What this instance of the plugin, with its settings, can prove. Times in milliseconds. */
struct provider_caps {
    uint32_t dedup;          /* enum provider_dedup */
    uint32_t ask;            /* enum provider_ask */
    int64_t dedup_window_ms; /* how long the vendor remembers a key; 0 without dedup */
    int64_t worst_answer_ms; /* longest documented answer time, 0 = not documented */
    bool answers_without_id; /* an accepted answer may lack the vendor's id */
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

struct provider_req;     /* being built; the host's */
struct provider_verdict; /* being judged; the host's */
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
};

/* The plugin's one exported symbol; a function, as dlsym promises less for data. */
#define PROVIDER_ENTRY_SYMBOL "provider_entry"
__attribute__((visibility("default"))) const struct provider *provider_entry(void);

#endif
