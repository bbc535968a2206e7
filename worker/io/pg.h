/* pg.h - one connection to PostgreSQL on the event loop, in libpq's pipeline mode.
 *
 * A `struct pg` keeps itself connected: it connects without blocking, runs `on_up` when it is
 * usable (read-write, UTF-8), `on_down` when it was lost or could not be had, and tries again
 * with growing, jittered pauses (100 ms to 2 s; at once after the first loss; 2 s when the
 * database itself is unfit). It never gives up and never exits.
 *
 * Each pg_exec is one statement followed by a Sync: one implicit transaction. What a statement
 * did is reported only at the Sync, because an earlier "command ok" can still be undone:
 *  - PG_COMMITTED: the transaction is durable (unless pg_warned says otherwise);
 *  - PG_FAILED:    the server said no; nothing of it happened;
 *  - PG_LOST:      the connection ended first: it may have happened, or may happen later.
 * Ends arrive in the order of the calls. Statements are unnamed, there are no session settings
 * and no session locks, so a connection pooler in transaction mode may stand in between (LISTEN
 * then hears nothing; callers poll). BEGIN, COPY and several statements in one are not for here.
 *
 * Loop rules: callbacks come from the loop, never from inside pg_new, pg_exec or pg_free; they
 * may call every function here on the same connection, pg_free included. Results are borrowed
 * for the callback (also after a pg_free in it). Nothing blocks, except a name look-up by libpq
 * while connecting: give an address or a socket's folder. Callers bound what they queue. */
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

/* Any may be NULL. */
struct pg_events {
    void (*on_up)(void *arg);
    /* After the PG_LOST ends of what was pending, and after each attempt that failed: `why` is
     * one line without secrets, the same words again while the cause stays. pg_is_up is already
     * false, and the next attempt is already planned. */
    void (*on_down)(void *arg, const char *why);
    void (*on_notify)(void *arg, const char *channel, const char *payload);
    void *arg;
};

/* `dsn` is a URI, a "key=value" string or a database's name; NULL or "" leaves all to libpq's
 * environment. What it says wins over our defaults: fallback_application_name=postrider/NAME,
 * target_session_attrs=read-write, TCP keepalives and tcp_user_timeout. Client encoding is
 * always UTF-8. `listen` is a channel or NULL. `stall_ms`: when a statement is owed and not one
 * byte arrived for so long, the connection is dead and dropped; 0 = never. An attempt to connect
 * ends after 10 s a host. `events` is copied. The first attempt starts in the loop's next turn.
 * -EINVAL for a connection string that cannot be read (the text does not quote it), -ENOMEM. */
int pg_new(struct ev_loop *loop, const char *dsn, const char *name, const char *listen,
           int64_t stall_ms, const struct pg_events *events, struct pg **ret_pg, struct err *err);
void pg_free(struct pg *pg); /* no callbacks follow; NULL is fine */

bool pg_is_up(const struct pg *pg);
/* Looks now whether something came, without waiting, as if the loop had called; callbacks run from
 * here. For a connection that must not wait until the loop's turn ends. Not from a callback. */
void pg_poll(struct pg *pg);

unsigned pg_pending(const struct pg *pg);       /* statements sent whose end is not known yet */
const char *pg_last_error(const struct pg *pg); /* "" when never down */

/* Parameters of one statement, built in order ($1, $2, …), at most PG_PARAMS_MAX; all copied.
 * Scalars go as text and take the type that the statement gives them: write $1::bigint where it
 * gives none. Arrays go binary and have a type: bigint[], integer[], text[], bytea[], uuid[]. The
 * first failure (-ENOMEM, -EINVAL, -E2BIG) is remembered and returned by pg_exec; pg_params_new
 * never returns NULL. */
enum { PG_PARAMS_MAX = 32 };
struct pg_params *pg_params_new(void);
void pg_params_free(struct pg_params *p);
void pg_add_text(struct pg_params *p, const char *text); /* NULL = SQL null */
void pg_add_i64(struct pg_params *p, int64_t value);
void pg_add_bool(struct pg_params *p, bool value);
void pg_add_i64_array(struct pg_params *p, const int64_t *values, size_t n);
void pg_add_i32_array(struct pg_params *p, const int32_t *values, size_t n);
/* Elements may be NULL (SQL null). */
void pg_add_text_array(struct pg_params *p, const char *const *values, size_t n);
/* bytea[]: lengths[i] bytes each; values[i] may be NULL when that is 0. */
void pg_add_bytes_array(struct pg_params *p, const void *const *values, const size_t *lengths,
                        size_t n);
/* Each element is the canonical 36-character text; -EINVAL from pg_exec when one is not. */
void pg_add_uuid_array(struct pg_params *p, const char *const *values, size_t n);

typedef void pg_done_fn(void *arg, enum pg_end end, const struct pg_result *result);

/* Sends a statement. Takes `params` (freed even on failure; NULL = none). `sql` is borrowed for
 * the call; `done` may be NULL. After a failure nothing of it will happen and `done` is not
 * called: -ENOTCONN when the connection is not up, -ENOMEM, or the failure of `params`. */
int pg_exec(struct pg *pg, const char *sql, struct pg_params *params, pg_done_fn *done, void *arg);

/* Result of a PG_COMMITTED statement (rows in text form), or the error of another end. Reading
 * outside of the rows or columns is like reading a null. */
size_t pg_rows(const struct pg_result *r);
bool pg_is_null(const struct pg_result *r, size_t row, int col);
const char *pg_text(const struct pg_result *r, size_t row, int col); /* "" when null */
size_t pg_text_len(const struct pg_result *r, size_t row, int col);
int64_t pg_i64(const struct pg_result *r, size_t row, int col); /* 0 when null or not a number */
bool pg_bool(const struct pg_result *r, size_t row, int col);
const char *pg_sqlstate(const struct pg_result *r); /* "" when none; "08006" when lost */
const char *pg_error(const struct pg_result *r);    /* one line, no data values; "" when none */

/* True when a WARNING (by severity, or SQLSTATE class 01) arrived with this statement: a COMMIT
 * that came with one is not trusted to be durable (rule R12): "canceling wait for synchronous
 * replication" is one. */
bool pg_warned(const struct pg_result *r);

/* Blocking, for commands that run before or without a loop (migrate, send, show, …). Same
 * connection strings and defaults, connect_timeout 10 s. */
struct pg_sync;
/* -EINVAL: unreadable connection string; -ECONNREFUSED: no connection; -EPROTO: the database is
 * not UTF-8. */
int pg_sync_open(const char *dsn, struct pg_sync **ret_conn, struct err *err);
void pg_sync_close(struct pg_sync *conn);
/* One statement with parameters; rows in *ret_result (may be NULL; free with pg_result_free).
 * Takes params. -EIO: the server said no, the error text carries PostgreSQL's message and err's
 * hint its hint; -ECONNRESET: the connection ended, it may have happened; or the failure of
 * `params`. *ret_sqlstate (may be NULL) is filled with 5 characters and a NUL on failure ("08006"
 * when the connection ended, "" when nothing was sent). */
int pg_sync_exec(struct pg_sync *conn, const char *sql, struct pg_params *params,
                 struct pg_result **ret_result, char ret_sqlstate[6], struct err *err);
/* Several statements in one simple query (migrations): one transaction unless they say
 * otherwise. Errors as above; the text names the line. */
int pg_sync_script(struct pg_sync *conn, const char *sql, struct err *err);
void pg_result_free(struct pg_result *r);
int pg_cols(const struct pg_result *r);
const char *pg_col_name(const struct pg_result *r, int col); /* "" when there is none */
void *pg_sync_native(struct pg_sync *conn);                  /* PGconn *, for COPY in io only */

#endif
