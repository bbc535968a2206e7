/* world.h - a sandbox that speaks a dialect: what stands behind dialect.h. Internal to this folder.
 *
 * dialect_call.c takes requests apart, dialect_words.c puts answers and receipts together,
 * dialect_store.c remembers messages, dialect_tokens.c logins, dialect_serve.c decides,
 * dialect_receipts.c calls the customer, dialect_api.c shows and steers it. */
#ifndef POSTRIDER_SANDBOX_WORLD_H
#define POSTRIDER_SANDBOX_WORLD_H

#include <stdio.h>

#include "providers/sandbox/dialect.h"
#include "providers/sandbox/server.h"
#include "providers/sandbox/state.h"
#include "worker/core/err.h"

struct sb_store;
struct sb_receipts;
struct sb_tokens;

struct sb_world {
    struct sandbox *sb;
    const struct sb_dialect *d;
    char **values; /* of settings, in the order of the two tables */
    struct sb_store *store;
    struct sb_receipts *receipts;
    struct sb_tokens *tokens;
    uint64_t lookups, logins; /* answered by the dialect */
};

/* `sets` are NAME=VALUE texts. The caller owns *ret_world. -EINVAL with words for an unknown
 * dialect or setting. Needs sb->loop. */
int sb_world_new(struct sandbox *sb, const char *dialect, const char *const *sets, size_t sets_n,
                 struct sb_world **ret_world, struct err *err);
/* Before the loop goes. NULL is fine; returns NULL. */
struct sb_world *sb_world_free(struct sb_world *w);
void sb_world_reset(struct sb_world *w); /* forgets messages; tokens and settings stay */
/* The part of --help about dialects. */
void sb_world_help(FILE *out);

/* ---- lists of pairs that own their texts ---- */
struct sb_pairs {
    struct sb_pair *v;
    size_t n;
};
int sb_pairs_add(struct sb_pairs *p, const char *name, const char *value);
int sb_pairs_add_n(struct sb_pairs *p, const char *name, size_t name_len, const char *value,
                   size_t value_len);
const char *sb_pairs_get(const struct sb_pairs *p, const char *name); /* exact */
void sb_pairs_done(struct sb_pairs *p);

/* ---- calls ---- */
struct sb_call_priv {
    struct sb_pairs headers, query, form, parts;
    char **texts; /* kept until the end */
    size_t texts_n;
    json_t *jsons; /* an array, made when needed */
    json_t *json;
};
/* Takes `r` apart. 0 or -ENOMEM; sb_call_done in either case. */
int sb_call_init(struct sb_call *c, struct sb_call_priv *p, struct sb_world *w, struct sb_req *r);
void sb_call_done(struct sb_call *c);
/* Whether `path` is of the form `pattern`; adds the parts (parts may be NULL). */
bool sb_path_fits(const char *pattern, const char *path, struct sb_pairs *parts);

/* ---- answers and receipts ---- */
struct sb_reply {
    int status;
    char *type, *body;
    size_t len;
    struct sb_pairs headers;
};
struct sb_reply *sb_reply_free(struct sb_reply *r);

struct sb_out {
    char *target, *method, *url, *body;
    size_t len;
    struct sb_pairs headers;
};
int sb_out_init(struct sb_out *o, const char *target);
void sb_out_done(struct sb_out *o);

/* ---- stored messages ---- */
int sb_store_new(size_t max, struct sb_store **ret_store);
struct sb_store *sb_store_free(struct sb_store *s);
void sb_store_clear(struct sb_store *s);
size_t sb_store_count(const struct sb_store *s);
bool sb_store_full(const struct sb_store *s);
/* Copies a message in. 0 or -ENOMEM. Borrowed until clear. */
int sb_store_add(struct sb_world *w, const struct sb_send *send, uint64_t body_hash,
                 struct sb_msg **ret_msg);
/* NULL: never there, or cleared since. */
struct sb_msg *sb_store_at(const struct sb_store *s, uint64_t no);
struct sb_msg *sb_store_latest(const struct sb_store *s);
/* The latest message under that key, whether a look-up would show it or not. */
struct sb_msg *sb_store_by_key(const struct sb_store *s, const char *key);
struct sb_msg *sb_store_by_id(const struct sb_store *s, const char *id, size_t *ret_part);
/* What sb_store_add was given, and whether the answer is out. */
uint64_t sb_msg_body_hash(const struct sb_msg *m);
bool sb_msg_answered(const struct sb_msg *m);
void sb_msg_set_answered(struct sb_msg *m);

/* ---- logins ---- */
int sb_tokens_new(struct sb_tokens **ret_tokens);
struct sb_tokens *sb_tokens_free(struct sb_tokens *t);
void sb_tokens_expire(struct sb_tokens *t, int64_t now_ms); /* all, now */

/* ---- receipts ---- */
int sb_receipts_new(struct sb_world *w, struct sb_receipts **ret_receipts, struct err *err);
struct sb_receipts *sb_receipts_free(struct sb_receipts *rs);
/* Plans what a newly taken message will report, `final` in the end. */
enum sb_when { SB_WHEN_USUAL, SB_WHEN_LATE, SB_WHEN_NEVER };
/* With `hold` (may be NULL) everything is sent at once, and the request, put to sleep by the
 * caller, is woken when the last of it was answered. True when there is something to wait for. */
bool sb_receipts_plan(struct sb_receipts *rs, const struct sb_msg *m, enum sb_state final,
                      enum sb_when when, struct sb_req *hold);
/* The request goes away: nobody is to be woken. */
void sb_receipts_forget(const struct sb_req *r);
json_t *sb_receipts_stats(const struct sb_receipts *rs);
void sb_receipts_clear_stats(struct sb_receipts *rs);

struct sb_shot { /* one call made for a test, tried once */
    struct sb_req *req;
    bool done;
    int status; /* 0: no answer */
    char *body; /* owned */
};
/* Sends `out` and wakes shot->req when done. 0 or -errno (nothing was sent then). The shot has to
 * live until it is done or sb_receipts_unshoot was called. */
int sb_receipts_shoot(struct sb_receipts *rs, const struct sb_out *out, struct sb_shot *shot);
void sb_receipts_unshoot(struct sb_receipts *rs, const struct sb_shot *shot);

/* ---- routes ---- */
/* The dialect's own route for a request; NULL: none. *ret_other: another method would do. */
const struct sb_dialect_route *sb_dialect_route_find(const struct sb_world *w, const char *method,
                                                     const char *path, bool *ret_other);
enum MHD_Result sb_dialect_serve(struct sb_req *r);
void sb_dialect_done(struct sb_req *r);
enum MHD_Result sb_messages_serve(struct sb_req *r);
enum MHD_Result sb_receipt_serve(struct sb_req *r);
enum MHD_Result sb_inbound_serve(struct sb_req *r);
void sb_shot_done(struct sb_req *r);
const char *sb_state_name(enum sb_state state);
json_t *sb_world_stats(const struct sb_world *w);

/* ---- magic endings ---- */
enum sb_magic {
    SB_MAGIC_NONE = 0, /* as 9901 */
    SB_MAGIC_DELIVERED,
    SB_MAGIC_UNDELIVERED,
    SB_MAGIC_NO_ANSWER,
    SB_MAGIC_REFUSED,
    SB_MAGIC_NO_RECEIPT,
    SB_MAGIC_LATE_RECEIPT,
    SB_MAGIC_THROTTLED_ONCE,
    SB_MAGIC_OPTED_OUT,
    SB_MAGIC_LATER_ONCE,
    SB_MAGIC_ACCOUNT_ONCE,
    SB_MAGIC_EXPIRED,
};
struct sb_magic_row {
    const char *digits;
    enum sb_magic magic;
    const char *help;
};
const struct sb_magic_row *sb_magic_table(size_t *ret_count);
enum sb_magic sb_magic_of(const char *number);

#endif
