/* internal.h - what the engine's own files share. Nothing outside worker/engine includes it.
 *
 * Ownership: a `struct msg` is owned by the list it is on (ready, waiting, in the air, ending,
 * a settle under way) and moves from one to the next; a `struct batch` lives until its last
 * message is settled. Times are CLOCK_BOOTTIME milliseconds unless the name says otherwise. */
#ifndef POSTRIDER_ENGINE_INTERNAL_H
#define POSTRIDER_ENGINE_INTERNAL_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/core/breaker.h"
#include "worker/core/decide.h"
#include "worker/core/err.h"
#include "worker/core/lease.h"
#include "worker/engine/config.h"
#include "worker/engine/engine.h"
#include "worker/engine/plugin.h"
#include "worker/engine/report.h"
#include "worker/io/http.h"
#include "worker/io/pg.h"
#include "worker/io/serve.h"

enum { UUID_LEN = 36, LANES_MAX = 10, BATCH_MAX = 500 };

/* ---- first in, first out ---- */

struct msg;
struct queue {
    struct msg *head, **tail;
    size_t n;
};
void queue_init(struct queue *q);
void queue_push(struct queue *q, struct msg *m);
void queue_push_front(struct queue *q, struct msg *m);
struct msg *queue_pop(struct queue *q);

/* ---- rules and vendors ---- */

struct kind {
    char *name;
    int lane;
    double reserved;
    char **route; /* NULL: all providers in file order; else NULL-terminated */
    struct policy policy;
    bool wake;
};

struct login {   /* a vendor's token, where it wants one */
    char *token; /* NULL: none */
    uint64_t generation;
    int64_t expires, renew; /* boot; 0: not by time */
    int64_t again;          /* boot: not before */
    unsigned fails;
    bool proven; /* accepted at least once since it was granted */
    bool busy;
    struct engine *engine;
};

/* One provider of one configuration. A reload makes new ones; the old live on until their last
 * call has ended, so that a message in the air keeps the rules it left with. */
struct vendor {
    const struct config_provider *conf; /* in the config of its generation */
    struct plugin *plugin;
    struct http_pool *pool;
    struct capability cap;
    struct breaker breaker;
    struct queue waiting; /* claimed, no slot yet */
    unsigned in_air;
    unsigned claimed; /* waiting, ready and in the air together */
    struct report_outcomes outcomes;
    struct histogram call;
    int64_t possible_duplicates;
    struct login login;
    unsigned asking; /* look-ups under way */
    struct report_findings findings;
    struct vendor *next;    /* in the list of the retired */
    struct config *last_of; /* the first of a retired generation frees its config */
};

/* A configuration in force, and what was opened for it. */
struct setup {
    struct config *config;
    struct vendor **vendors; /* in file order */
    size_t n;
};

/* ---- messages in hand ---- */

struct batch { /* one claim */
    int64_t token;
    int64_t t0;  /* before the claim was sent */
    int64_t end; /* our end of the lease (lease.h) */
    unsigned total;
    unsigned settled; /* stored, or found to be another's */
    unsigned here;    /* scratch of collect_done */
    bool done_sent;   /* its lease row goes with a settle under way */
    struct batch *prev, *next;
};

struct msg {
    struct msg *next;
    struct batch *batch;
    struct vendor *vendor;
    struct http_call *call; /* while in the air */
    struct msg *air_prev, *air_next;
    struct engine *engine;
    char id[UUID_LEN + 1], key[UUID_LEN + 1];
    char *texts; /* one allocation for the six below */
    const char *recipient, *body, *sender, *meta, *kind_name, *due;
    size_t body_len;
    struct policy policy; /* as it was when claimed */
    int lane;
    int attempts, calls, doubts;
    int64_t expires, doubt_since;   /* boot */
    int64_t created_ms, expires_ms; /* epoch, the database's */
    int64_t validity_ms;            /* life left when it was first claimed: frozen (R2) */
    bool asked;                     /* about every doubt: not seen by the vendor */
    uint64_t token_generation;      /* of the login its request was built with */
    bool gate_shut;                 /* our own gate said no: not the vendor's fault */
    /* how it ended */
    bool called;      /* a request left */
    bool has_outcome; /* false: never tried; attempt and due time go back */
    bool duplicate;   /* the vendor said so, and no attempt in doubt explains it */
    bool swept;       /* found by the sweeper: the batch is not ours */
    unsigned tries;   /* of storing it */
    enum outcome outcome;
    struct decision decision;
    char *vendor_id, *code, *detail;
    char *parts; /* ids of its parts, a line each; NULL: one id or none */
    const char *phase;
};

/* Late news: what became of an attempt that is no longer ours. */
struct late {
    struct late *next;
    struct engine *engine;
    char id[UUID_LEN + 1];
    int64_t token;
    enum outcome outcome;
    char *vendor_id, *code, *detail;
    const char *phase;
    unsigned tries;
};

struct lane {
    int no;
    bool used;       /* some kind maps to it */
    bool wake;       /* some kind of it wants to leave at once */
    double reserved; /* share of slots kept for it */
    bool asking;     /* a claim is under way */
    unsigned asked;  /* rows it asked for */
    bool more;       /* the last claim was full */
    bool hint;       /* NOTIFY, or work given back */
    int64_t poll_at;
    int64_t full_at; /* last claim over the whole range */
    unsigned turn;   /* which provider's kinds go first */
    char *after_due, *after_id;
    struct queue ready;
};

/* ---- the worker ---- */

struct door { /* a connection claims may go over */
    struct engine *engine;
    struct pg *pg;
    const char *name;
    bool checked; /* this database was looked at since the connection came up */
    bool told_down;
    int64_t check_at;
};

enum { DOOR_URGENT = 0, DOOR_BULK, DOOR_SETTLE, DOOR_HOUSE, DOORS };

struct seen_id { /* vendor ids lately accepted, to notice one given twice */
    uint64_t hash;
    char id[UUID_LEN + 1];
};
enum { SEEN_IDS = 1 << 15 };

struct engine {
    struct ev_loop *loop;
    const struct engine_options *options;
    struct setup setup;
    struct vendor *retired;
    struct kind *kinds;
    size_t kinds_n;
    struct lane lanes[LANES_MAX];
    struct door doors[DOORS];
    struct serve *serve;
    struct report report;

    /* house */
    int64_t worker_id;
    bool hello_done, adopted, durable, schema_ok;
    bool kinds_ok, refused, cautious, told_durable;
    unsigned seconds;
    int64_t sweep_at;
    int64_t clock_skew_ms;

    /* claims */
    int64_t *tokens;
    size_t tokens_n, tokens_cap;
    bool tokens_asked;
    int64_t *lost_tokens; /* claims whose COMMIT answer was lost: to be released */
    size_t lost_n, lost_cap;
    int64_t claim_pause_until;
    struct batch *batches;
    unsigned in_hand; /* messages claimed and not ended */
    unsigned in_air;
    struct msg *air; /* all calls under way */

    /* ends */
    struct queue sent, ended; /* waiting to be stored: the common end, and all others */
    struct storing *settling; /* settles under way */
    size_t storing;           /* in settles under way */
    unsigned settles_open;    /* settles under way */
    int64_t *done; /* claims whose last row is stored and whose lease row is still there */
    size_t done_n, done_cap;
    bool settle_urgent;
    int64_t looked_us; /* at the urgent connection */
    int64_t unsettled_since;
    int64_t settle_pause_until;
    struct late *late_head, **late_tail;
    struct late *doubted; /* id given twice, and the database does not know yet */
    unsigned doubts_open; /* being told to it */
    bool late_busy;
    struct reading *late_reading; /* under way */
    struct seen_id *seen;

    /* asking */
    bool asks_busy;            /* being fetched, or stored */
    unsigned asks_open;        /* look-ups under way */
    struct inquiry *inquiries; /* all of them, and those waiting to be stored */

    struct receipts *receipts;

    /* sweeping */
    struct sweep_guard guard;
    bool sweep_busy;

    /* end of life */
    bool draining, leaving;
    int64_t drain_until;
    unsigned cut_off; /* calls ended early, answers not stored */

    struct ev_check check;
    struct ev_idle idle;
    struct ev_timer tick, settle_timer, second;
    struct ev_timer watchdog;
    struct ev_signal on_term, on_int, on_hup;
};

/* engine.c */
int64_t engine_lease_ms(const struct engine *e);
bool engine_may_claim(const struct engine *e);
double engine_jitter(void);
struct kind *engine_kind(const struct engine *e, const char *name);
void engine_between(void *arg);     /* a look at what is urgent, in the midst of a turn */
void engine_wake(struct engine *e); /* something changed: look for work in this turn */
void engine_begin_drain(struct engine *e, const char *why);
void msg_free(struct msg *m);
struct late *late_free(struct late *l);
int list_push(int64_t **list, size_t *n, size_t *cap, int64_t value); /* 0 or -ENOMEM */

/* setup.c */
int setup_open(struct engine *e, const char *path, struct setup *ret, struct err *err);
void setup_close(struct setup *s);
void setup_replace(struct engine *e, struct setup *next);
void setup_reap(struct engine *e); /* frees retired vendors without calls */
struct vendor *setup_find(const struct engine *e, const char *name);
struct vendor *setup_route(const struct engine *e, const struct kind *k, int64_t now);
void engine_reload(struct engine *e);

/* vendor.c */
int vendor_open(struct engine *e, const struct config *config, const struct config_provider *conf,
                struct vendor **ret, struct err *err);
struct vendor *vendor_free(struct vendor *v);
void vendor_inherit(struct vendor *v, const struct vendor *old);
unsigned vendor_allowed(const struct vendor *v, int64_t now); /* calls that may be in the air */
unsigned vendor_slots(const struct vendor *v);                /* for sends */
bool vendor_keeps_ids(const struct vendor *v); /* its message ids have to be found again */
enum report_door vendor_door(const struct vendor *v, int64_t now);
const char *vendor_shut_why(const struct vendor *v, int64_t now); /* static; while not open */
struct http_request vendor_request(const struct vendor *v, const struct plugin_request *built);
struct provider_reply vendor_reply(const struct http_result *r);

/* login.c */
void login_turn(struct engine *e);
void login_done(struct login *l);
bool login_ready(const struct vendor *v, int64_t now);
/* The vendor refused the token of that generation. True: a fresh one is on its way, so the message
 * may be sent again; false: it is the fresh one that was refused. */
bool login_refused(struct engine *e, struct vendor *v, uint64_t generation);
void login_proven(struct vendor *v, uint64_t generation);

/* kinds.c */
void kinds_load(struct engine *e);
int kinds_check(const struct engine *e, struct err *err);
void kinds_free(struct engine *e);

/* claim.c */
void claim_turn(struct engine *e); /* starts what claims may start now */
bool claim_wanted(struct engine *e);
int64_t uuid_created_ms(const char *id); /* of a version 7 UUID: Unix epoch */
void batch_settled(struct engine *e, struct batch *b, unsigned n);

/* token.c */
void claim_tokens(struct engine *e);              /* keeps tokens in stock */
void token_used(struct engine *e);                /* the first of them */
void token_back(struct engine *e, int64_t token); /* its claim found nothing: use it again */

/* release.c */
void claim_lost(struct engine *e, int64_t token); /* not ours, whatever became of it */
void claim_release_lost(struct engine *e);

/* dispatch.c */
void dispatch_turn(struct engine *e, unsigned most);
void dispatch_urgent(struct engine *e, struct lane *lane); /* what it has ready, at once */
bool dispatch_idle(const struct engine *e);                /* nothing is ready to start */
void dispatch_abort_all(struct engine *e);

/* settle.c */
void settle_push(struct engine *e, struct msg *m);
void settle_flush(struct engine *e);
void settle_log_unstored(struct engine *e);
void settle_done(struct engine *e, int64_t token);

/* late.c */
void late_push(struct engine *e, const struct msg *m);
/* News of an attempt from elsewhere: a look-up, a receipt. Texts are copied, NULL: none. */
void late_news(struct engine *e, const char *id, int64_t token, enum outcome outcome,
               const char *vendor_id, const char *code, const char *detail, const char *phase);
void late_turn(struct engine *e);
void late_log_unstored(struct engine *e);
bool seen_twice(struct engine *e, const struct msg *m); /* notes the id; true when another has it */

/* ask.c */
void ask_turn(struct engine *e);
void ask_close(struct engine *e);

/* sweep.c */
void sweep_turn(struct engine *e);

/* receive.c: callbacks in, stored before they are answered. receipts_open after the doors are
 * there; receipts_close once the server is closed. */
int receipts_open(struct engine *e);
void receipts_close(struct engine *e);
/* Where a message's receipts are to go: allocated; NULL when receipts are off for this vendor (or
 * out of memory). */
char *receipt_callback_url(const struct engine *e, const struct vendor *v, const char *message_id);
void receipts_serve(void *arg, const struct serve_request *req, struct serve_reply *reply);
/* Counters of this worker, by provider; of one that has none yet, zeros. */
struct report_receipts *receipts_count(struct engine *e,
                                       const char *provider); /* NULL: no memory */
/* receipt_apply.c: what they mean for messages. */
void receipts_apply(struct engine *e);

/* house.c */
int house_open(struct engine *e, const char *dsn, struct err *err);
void house_second(struct engine *e);
void house_beat(struct engine *e, bool stopped);
void house_close(struct engine *e);

/* window.c */
int window_open(struct engine *e, struct err *err);
void window_close(struct engine *e);

#endif
