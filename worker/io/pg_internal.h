/* pg_internal.h - what the files of pg.h share. Only worker/io/pg*.c and their tests read it. */
#ifndef POSTRIDER_IO_PG_INTERNAL_H
#define POSTRIDER_IO_PG_INTERNAL_H

#include "worker/io/pg.h"

#include <ev.h>
#include <libpq-fe.h>

/* Laid out as PQsendQueryParams wants it. */
struct pg_params {
    int error;     /* the first failure; nothing is added after it */
    bool borrowed; /* not ours to free */
    int count;
    Oid types[PG_PARAMS_MAX];    /* 0: the statement decides */
    char *values[PG_PARAMS_MAX]; /* owned; NULL is SQL null */
    int lengths[PG_PARAMS_MAX];  /* of binary values */
    int formats[PG_PARAMS_MAX];  /* 0 text, 1 binary */
};

struct pg_result {
    PGresult *res; /* owned; NULL when lost */
    char *error;   /* owned */
    char sqlstate[6];
    bool warned;
};

#define PG_LOST_SQLSTATE "08006"

/* Takes `res`. Errors are worded at once; `masked` hides the values that PostgreSQL quotes in
 * the messages of class 22 (a text that is no number, …). */
void pg_result_init(struct pg_result *r, PGresult *res, bool warned, bool masked);
void pg_result_init_lost(struct pg_result *r, const char *why, bool warned);
void pg_result_done(struct pg_result *r);

/* Several lines as one, without control characters and without the lines that begin with a tab,
 * in which libpq explains the one before. Owned by the caller; NULL: no memory. */
char *pg_one_line(const char *text);
/* libpq's last complaint without what older ones said before it, as one line. */
char *pg_last_line(const char *text);
bool pg_is_fatal(const PGresult *res);    /* the server ends the session */
bool pg_is_warning(const PGresult *res);  /* of a notice: see pg_warned */
bool pg_is_farewell(const PGresult *res); /* of a notice: says why the session ends */

/* 0, or -EINVAL for what libpq cannot read or would read as something else than was meant (a
 * password with a bare "@" or "/"), in words that quote nothing. */
int pg_dsn_check(const char *dsn, struct err *err);

enum { PG_CONNINFO_MAX = 12 };
struct pg_conninfo {
    const char *keys[PG_CONNINFO_MAX + 1]; /* ends with NULL */
    const char *values[PG_CONNINFO_MAX + 1];
};
/* All borrowed. */
void pg_conninfo_init(struct pg_conninfo *c, const char *dsn, const char *app_name);

/* NULL when this server's databases are fit for us, or why not. */
const char *pg_unfit_encoding(const char *server_encoding);

/* WAITING for the next attempt → CONNECTING (libpq's handshake) → CHECKING (our questions,
 * LISTEN) → UP. From everywhere a drop leads back to WAITING. */
enum pg_state { PG_WAITING, PG_CONNECTING, PG_CHECKING, PG_UP };

struct pg_statement {
    struct pg_statement *next;
    pg_done_fn *done;
    void *arg;
    PGresult *res; /* owned: its rows or its first error, until the Sync makes them true */
    bool warned;
};

struct pg {
    struct ev_loop *loop;
    char *dsn;
    char *app_name;
    char *listen;
    int64_t stall_ms;
    struct pg_events events;

    enum pg_state state;
    PGconn *conn;     /* NULL while WAITING */
    const char *host; /* of several, the one being tried: libpq's, compared and never read */
    ev_io io;
    ev_timer timer;   /* by state: next attempt; end of the attempt; a look at the silence */
    int64_t timer_at; /* all times are clock_boot_ms */
    int64_t heard_at; /* last byte, or when the queue began */
    int64_t up_at;
    unsigned failures; /* attempts and short lives in a row */
    unsigned short dice[3];

    struct pg_statement *head; /* sent and not ended, oldest first */
    struct pg_statement **tail;
    unsigned pending;

    bool drop_planned; /* no more use of it: the next turn drops it */
    bool drop_slow;
    char *drop_why;
    char *farewell;   /* the server's own reason for ending the session: beats drop_why */
    char *last_error; /* NULL: never down, or no memory */
    bool was_down;
    bool in_callback; /* pg_free then only marks */
    bool doomed;
};

/* pg_work.c: sending and receiving on a connection that is CHECKING or UP. */
/* libpq may have closed its socket and opened another under the same number, so the watcher is
 * set anew; only a settled connection is spared that. */
void pg_watch(struct pg *pg, int events);
/* Ends the use of the connection now, but its callbacks run in the next turn. The first reason
 * stays; `slow`: waiting helps little. */
void pg_plan_drop(struct pg *pg, bool slow, const char *why);
void pg_plan_drop_broken(struct pg *pg); /* for libpq's own reason */
void pg_on_notice(void *arg, const PGresult *notice);
/* pg_exec without its conditions; borrows `params`. */
int pg_send(struct pg *pg, const char *sql, const struct pg_params *params, pg_done_fn *done,
            void *arg);
/* Reads what is there and runs callbacks; may plan a drop. */
void pg_receive(struct pg *pg);
/* Ends all that is pending as PG_LOST. */
void pg_lose_all(struct pg *pg, const char *why);

#endif
