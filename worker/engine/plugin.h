/* plugin.h - loads a vendor's plugin and stands between it and the engine.
 *
 * providers/provider.h is the border; this is the guard on our side of it. The guard gives
 * the plugin a request to fill and a verdict to fill, and believes neither: what could break
 * framing (a header with a line end, a URL that is not http) is refused before anything is
 * sent, and a verdict that proves less than it claims counts as PROVIDER_UNKNOWN (rule R6).
 *
 * Blocking: plugin_open reads files (dlopen); the others only compute. One thread. */
#ifndef POSTRIDER_ENGINE_PLUGIN_H
#define POSTRIDER_ENGINE_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "providers/provider.h"
#include "worker/core/decide.h"
#include "worker/io/http.h"

struct err;
struct plugin;

/* What a plugin built. Owned by the caller: zero it (`= {0}`), fill it with plugin_build as
 * often as wanted, end with plugin_request_clear. Fits into struct http_request. */
struct plugin_request {
    char *method;
    char *url;
    struct http_header *headers; /* names and values are owned too */
    size_t headers_count;
    char *body; /* NULL: none; NUL-terminated beyond body_len */
    size_t body_len;
    /* AWS SigV4, signed by libcurl when it leaves: "aws:amz:REGION:SERVICE", "KEY:SECRET" and the
     * session token. NULL: not signed, no session. */
    char *sigv4, *sigv4_userpwd, *sigv4_session;
};
void plugin_request_clear(struct plugin_request *request);

/* What a plugin judged, after the guard. Same ownership rules. Texts are NULL when there is
 * none, otherwise clean UTF-8 without control characters. */
struct plugin_verdict {
    enum provider_outcome outcome;
    char *id;               /* the vendor's id, at most 512 bytes, never shortened */
    char *code;             /* the vendor's error code, shortened */
    char *detail;           /* the vendor's or the plugin's words, shortened */
    int64_t retry_after_ms; /* -1: none; at most a week */
    bool opt_out;           /* only with PROVIDER_REJECTED */
    bool login;             /* the token was refused, the message surely not taken; outcome HELD */
    bool duplicate;         /* with PROVIDER_ACCEPTED: "I have this key already" */
    char **parts;           /* ids of the parts, `id` the first; NULL: one id or none */
    size_t parts_n;
    const char *fault; /* static; not NULL: the plugin broke the rules, and how */
};
void plugin_verdict_clear(struct plugin_verdict *verdict);

/* The answer to a look-up, after the guard. Same rules. */
struct plugin_answer {
    enum provider_finding finding;
    char **ids; /* candidates, best first: with HAS_IT */
    size_t ids_n;
    char *cursor; /* not NULL: the list goes on there, and finding means nothing yet */
    char *code, *detail;
    int64_t retry_after_ms; /* -1: none */
    bool login;             /* the token was refused: log in and ask again */
    const char *fault;
};
void plugin_answer_clear(struct plugin_answer *answer);

/* What a login gave. */
struct plugin_grant {
    char *token;         /* NULL: none */
    int64_t lifetime_ms; /* 0: until it is refused */
    bool refused;        /* the vendor does not know us: code and detail say how */
    char *code, *detail;
    const char *fault;
};
void plugin_grant_clear(struct plugin_grant *grant);

/* What a callback held. Owned by the caller; empty it with plugin_events_clear. */
struct plugin_receipt {
    enum provider_status status;
    char *ref;       /* a message id (lower-case UUID), NULL: none */
    char *vendor_id; /* NULL: none; one of the two is there */
    char *code, *detail;
    int64_t at_ms; /* 0: none */
};
struct plugin_inbound {
    char *from, *to, *text, *id; /* to and id may be NULL */
};
struct plugin_events {
    struct plugin_receipt *receipts;
    size_t receipts_n;
    struct plugin_inbound *inbounds;
    size_t inbounds_n;
    int status; /* of the answer */
    char *content_type, *body;
    size_t body_len;
    char *confirm; /* a URL an operator has to open once, NULL */
};
void plugin_events_clear(struct plugin_events *events);

/* Where plugins named without a slash are looked for: $POSTRIDER_PROVIDER_DIR, else "providers"
 * beside the executable if that folder exists, else the folder set at build time. The caller
 * frees; NULL when out of memory. */
char *plugin_dir(void);

/* Loads `name` (a bare name: DIR/NAME.so; with a slash: that file) and opens one instance with
 * its settings. `dir` NULL means plugin_dir(). One file may be opened many times. Errors:
 * -ENOENT no such plugin, -ENOEXEC not a plugin or not for this postrider, -EINVAL settings,
 * -ENOMEM. Messages begin with `plugin "NAME": `; hints name the cure. */
int plugin_open(const char *dir, const char *name, const char *settings_json,
                struct plugin **ret_plugin, struct err *err);

/* NULL is fine. Returns NULL. */
struct plugin *plugin_close(struct plugin *plugin);

/* The plugin's own name, and what it proves with these settings (checked). Borrowed. */
const char *plugin_name(const struct plugin *plugin);
const struct provider_caps *plugin_caps(const struct plugin *plugin);

/* Builds one request into *request (emptied before). 0, or -Exxx with words: the message ends
 * as `plugin_error`, nothing was sent, *request is empty. -ENOMEM is our own trouble, not the
 * message's: try again later. */
int plugin_build(const struct plugin *plugin, const struct provider_msg *msg,
                 struct plugin_request *request, struct err *err);

/* Judges one reply into *verdict (emptied before). Cannot fail: what goes wrong is
 * PROVIDER_UNKNOWN. Everything but UNKNOWN needs a complete reply with a final status;
 * ACCEPTED also needs an id unless the plugin declares answers without. Where the outcome
 * asks for patience (THROTTLED, HELD, REFUSED) and the plugin named none, the reply's
 * Retry-After is read; `now_unix_s` serves its HTTP-date form. */
void plugin_judge(const struct plugin *plugin, const struct provider_reply *reply,
                  int64_t now_unix_s, struct plugin_verdict *verdict);

/* What else the plugin can: each false when it has not the functions, or caps say none. */
bool plugin_asks(const struct plugin *plugin);
bool plugin_logs_in(const struct plugin *plugin);
bool plugin_takes_receipts(const struct plugin *plugin);

/* What its vendor can prove, as decide() wants to know it; a call lasts at most `call_ms`. */
struct capability plugin_capability(const struct plugin *plugin, int64_t call_ms);

/* A look-up. plugin_ask as plugin_build, and -ENODATA: there is nothing to ask by. The answer
 * cannot fail: what goes wrong is PROVIDER_CANNOT_SAY, as is an incomplete reply. */
int plugin_ask(const struct plugin *plugin, const struct provider_question *question,
               struct plugin_request *request, struct err *err);
void plugin_ask_judge(const struct plugin *plugin, const struct provider_question *question,
                      const struct provider_reply *reply, int64_t now_unix_s,
                      struct plugin_answer *answer);

/* A login. After 0 either request->method is set, and its reply goes to plugin_login_judge, or
 * grant->token is. A reply that is no grant and no refusal leaves *grant empty: try later. */
int plugin_login(const struct plugin *plugin, int64_t now_ms, struct plugin_request *request,
                 struct plugin_grant *grant, struct err *err);
void plugin_login_judge(const struct plugin *plugin, const struct provider_reply *reply,
                        struct plugin_grant *grant);

/* Reads a callback. 0, -EACCES (signature), -EBADMSG (none of this vendor's; also a plugin that
 * broke the rules), -ENOMEM, with words in err. Where one receipt came without a ref and the
 * query has a UUID `k`, that is its ref. */
int plugin_read(const struct plugin *plugin, const struct provider_callback *callback,
                struct plugin_events *events, struct err *err);

#endif
