/* pg.h - one connection to PostgreSQL on the event loop, in libpq's pipeline mode.
 *
 * A `struct pg` keeps itself connected: it connects without blocking, runs `on_up` when it is
 * usable (read-write, UTF-8), `on_down` when it was lost, and reconnects with growing,
 * jittered pauses (100 ms to 2 s; at once after a first loss). It never gives up and never
 * exits.
 *
 * Each pg_exec is one statement followed by a Sync: one implicit transaction. What a batch did
 * is reported only at the Sync, because an earlier "command ok" can still be undone:
 *  - PG_COMMITTED: the transaction is durable;
 *  - PG_FAILED:    the server said no; nothing of it happened;
 *  - PG_LOST:      the connection ended first: it may have happened, or may happen later.
 * Statements are unnamed, there are no session settings and no session locks, so a connection
 * pooler in transaction mode may stand in between (LISTEN then hears nothing; callers poll).
 *
 * Loop rules: callbacks come from the loop, never from inside pg_exec; they may call pg_exec
 * on the same connection. Results are borrowed for the callback. Nothing blocks, except a
 * name look-up by libpq while connecting. */
#ifndef POSTRIDER_IO_PG_H
#define POSTRIDER_IO_PG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ev_loop;
struct err;
struct pg;
struct pg_params;
struct pg_result;

enum pg_end { PG_COMMITTED, PG_FAILED, PG_LOST };

struct pg_events {
    void (*on_up)(void *arg);
    void (*on_down)(void *arg, const char *why); /* before any PG_LOST callbacks ran: after them */
    void (*on_notify)(void *arg, const char *channel, const char *payload);
    void *arg;
};

/* `name` appears in application_name only via the DSN's fallback (postrider/NAME). `listen` is a
 * channel or NULL. `stall_ms`: a statement that has no reply for so long means the connection
 * is dead; it is dropped (its statements end PG_LOST). Starts connecting at once. */
int pg_new(struct ev_loop *loop, const char *dsn, const char *name, const char *listen,
           int64_t stall_ms, const struct pg_events *events, struct pg **ret_pg,
           struct err *err);
void pg_free(struct pg *pg); /* no callbacks follow; NULL is fine */

bool pg_is_up(const struct pg *pg);
unsigned pg_pending(const struct pg *pg); /* statements sent whose end is not known yet */
const char *pg_last_error(const struct pg *pg); /* "" when never down */

/* Parameters of one statement, built in order; all copied. Arrays are sent binary. A failed
 * allocation is remembered and makes pg_exec return -ENOMEM. */
struct pg_params *pg_params_new(void);
void pg_params_free(struct pg_params *p);
void pg_add_text(struct pg_params *p, const char *text); /* NULL = SQL null */
void pg_add_i64(struct pg_params *p, int64_t value);
void pg_add_bool(struct pg_params *p, bool value);
void pg_add_i64_array(struct pg_params *p, const int64_t *values, size_t n);
void pg_add_i32_array(struct pg_params *p, const int32_t *values, size_t n);
/* Elements may be NULL (SQL null). */
void pg_add_text_array(struct pg_params *p, const char *const *values, size_t n);
/* Each element is the canonical 36-character text; -EINVAL from pg_exec when one is not. */
void pg_add_uuid_array(struct pg_params *p, const char *const *values, size_t n);

typedef void pg_done_fn(void *arg, enum pg_end end, const struct pg_result *result);

/* Queues a statement. Takes `params` (freed even on failure; NULL = none). -ENOTCONN when the
 * connection is not up: nothing was sent, `done` is not called. `sql` is borrowed for the call. */
int pg_exec(struct pg *pg, const char *sql, struct pg_params *params, pg_done_fn *done,
            void *arg);

/* Result of a PG_COMMITTED statement (rows in text form), or the error of another end. */
size_t pg_rows(const struct pg_result *r);
bool pg_is_null(const struct pg_result *r, size_t row, int col);
const char *pg_text(const struct pg_result *r, size_t row, int col); /* "" when null */
size_t pg_text_len(const struct pg_result *r, size_t row, int col);
int64_t pg_i64(const struct pg_result *r, size_t row, int col); /* 0 when null or not a number */
bool pg_bool(const struct pg_result *r, size_t row, int col);
const char *pg_sqlstate(const struct pg_result *r); /* "" when none; "08006" when lost */
const char *pg_error(const struct pg_result *r);    /* one line, no data values */

/* True when a WARNING (SQLSTATE class 01) arrived with this statement: a COMMIT that came with
 * one is not trusted to be durable (rule R12). */
bool pg_warned(const struct pg_result *r);

/* Blocking, for commands that run before or without a loop (migrate, send, show, …). */
struct pg_sync;
int pg_sync_open(const char *dsn, struct pg_sync **ret_conn, struct err *err);
void pg_sync_close(struct pg_sync *conn);
/* One statement with parameters; rows in *ret_result (free with pg_result_free). Takes params. The
 * error text carries PostgreSQL's message, err's hint its hint. *ret_sqlstate (may be NULL) is
 * filled with 5 characters and a NUL on failure. */
int pg_sync_exec(struct pg_sync *conn, const char *sql, struct pg_params *params,
                 struct pg_result **ret_result, char ret_sqlstate[6], struct err *err);
/* Several statements in one simple query (migrations). */
int pg_sync_script(struct pg_sync *conn, const char *sql, struct err *err);
void pg_result_free(struct pg_result *r);
int pg_cols(const struct pg_result *r);
const char *pg_col_name(const struct pg_result *r, int col);
void *pg_sync_native(struct pg_sync *conn); /* PGconn *, for COPY in io only */

#endif
