/* plugin_host.h - what the files behind plugin.h share. Private to worker/engine/plugin*.c and to
 * tests that link a plugin instead of loading it.
 *
 *   plugin.c          finds, loads, opens
 *   plugin_check.c    believes neither version, table nor capabilities
 *   plugin_guard.c    the table of functions every plugin gets; texts
 *   plugin_request.c  requests: build
 *   plugin_verdict.c  verdicts: judge
 *   plugin_ask.c      look-ups: ask, ask_judge
 *   plugin_login.c    tokens: login, login_judge
 *   plugin_events.c   callbacks: receipt */
#ifndef POSTRIDER_ENGINE_PLUGIN_HOST_H
#define POSTRIDER_ENGINE_PLUGIN_HOST_H

#include "worker/engine/plugin.h"

struct plugin {
    void *so; /* dlopen's handle */
    const struct provider *api;
    struct provider table; /* what `api` points to once loaded: members an older plugin does not
                              have are NULL */
    void *self;
    char *name; /* as it was asked for */
    struct provider_caps caps;
};

/* What `open` said; first word wins. Owned strings, NULL if nothing was said. */
struct provider_report {
    char *setting;
    char *why;
    char *cure;
};

/* The table every plugin gets. */
extern const struct provider_host plugin_host;

/* ---- loading (plugin_check.c) ---- */

/* 0 and the table with what it lacks as NULL, or -ENOEXEC. `api` is what provider_entry gave. */
int plugin_check_table(const char *name, const struct provider *api, struct provider *ret_table,
                       struct err *err);
int plugin_check_caps(const char *name, const struct provider *table,
                      const struct provider_caps *caps, struct err *err);

/* ---- texts (plugin_guard.c) ---- */

enum {
    PLUGIN_CODE_SIZE = 65,
    PLUGIN_DETAIL_SIZE = 257,
};

/* An id is compared and looked up later: as it is (1 to 512 bytes of UTF-8 without control
 * characters), or not at all. */
bool plugin_id_ok(const char *id, size_t len);
bool plugin_is_token(const char *s);        /* of RFC 9110: methods and header names */
bool plugin_is_header_value(const char *s); /* no line end, no control character */
bool plugin_is_url(const char *s);          /* http or https, every byte one a URL may hold */

/* Puts cleaned words of at most size - 1 bytes into *field. Empty words change nothing. */
int plugin_set_clean(char **field, const char *text, size_t len, size_t size, unsigned flags);
/* Code and detail as records keep them; in details runs of digits are masked. */
int plugin_set_code(char **field, const char *text, size_t len);
int plugin_set_detail(char **field, const char *text, size_t len);

/* A list of owned ids. -EINVAL: no id; -E2BIG: `max` are there. */
int plugin_ids_add(char ***ids, size_t *n, size_t max, const char *id, size_t len);
void plugin_ids_free(char ***ids, size_t *n);

/* A wait, kept within a week; negative ones are not heard. */
void plugin_set_wait(int64_t *field, int64_t ms);
/* The longest Retry-After of a reply into *field, when there is one. */
void plugin_read_wait(const struct provider_reply *reply, int64_t now_unix_s, int64_t *field);

/* ---- requests (plugin_request.c) ---- */

struct provider_req {
    struct plugin_request *out;
    int error; /* the first failure; a plugin that ignores it does not get away with it */
    char *why;
};

/* Ends what `what` (build, ask, login) began and answered with `r`: 0 and a whole request, or
 * -Exxx with words and an empty one. */
int plugin_req_end(const struct plugin *plugin, struct provider_req *req, int r, const char *what,
                   struct err *err);

/* ---- the functions of plugin_host ---- */

int plugin_host_req_method(struct provider_req *req, const char *method);
int plugin_host_req_url(struct provider_req *req, const char *url);
int plugin_host_req_header(struct provider_req *req, const char *name, const char *value);
int plugin_host_req_body(struct provider_req *req, const char *data, size_t len);
int plugin_host_req_sigv4(struct provider_req *req, const char *region, const char *service,
                          const char *access_key, const char *secret_key, const char *session);

void plugin_host_verdict(struct provider_verdict *v, enum provider_outcome outcome);
int plugin_host_verdict_id(struct provider_verdict *v, const char *id, size_t len);
int plugin_host_verdict_code(struct provider_verdict *v, const char *code, size_t len);
int plugin_host_verdict_detail(struct provider_verdict *v, const char *text, size_t len);
void plugin_host_verdict_retry_after(struct provider_verdict *v, int64_t ms);
void plugin_host_verdict_opt_out(struct provider_verdict *v);
int plugin_host_verdict_part(struct provider_verdict *v, const char *id, size_t len);
void plugin_host_verdict_duplicate(struct provider_verdict *v);
void plugin_host_verdict_login(struct provider_verdict *v);

void plugin_host_answer(struct provider_answer *a, enum provider_finding finding);
int plugin_host_answer_id(struct provider_answer *a, const char *id, size_t len);
int plugin_host_answer_more(struct provider_answer *a, const char *cursor, size_t len);
void plugin_host_answer_retry_after(struct provider_answer *a, int64_t ms);
int plugin_host_answer_code(struct provider_answer *a, const char *code, size_t len);
int plugin_host_answer_detail(struct provider_answer *a, const char *text, size_t len);
void plugin_host_answer_login(struct provider_answer *a);

int plugin_host_grant_token(struct provider_grant *g, const char *token, size_t len,
                            int64_t lifetime_ms);
void plugin_host_grant_refuse(struct provider_grant *g, const char *code, const char *detail);

int plugin_host_receipt(struct provider_events *out, const struct provider_receipt *r);
int plugin_host_inbound(struct provider_events *out, const struct provider_inbound *m);
int plugin_host_callback_answer(struct provider_events *out, int status, const char *content_type,
                                const char *body, size_t len);
int plugin_host_callback_confirm(struct provider_events *out, const char *url);

#endif
