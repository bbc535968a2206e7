#include "worker/core/backoff.h"
#include "worker/core/err.h"
#include "worker/io/clock.h"
#include "worker/io/pg_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Milliseconds. */
enum {
    ATTEMPT_MAX = 10000,
    PAUSE_MIN = 100,
    PAUSE_MAX = 2000,
    STEADY = 5000, /* a connection that lived so long may be replaced at once */
};

/* libev counts from when the turn began, which may be long ago: on_timer compares timer_at. */
static void timer_start(struct pg *pg, int64_t ms)
{
    pg->timer_at = clock_boot_ms() + ms;
    ev_timer_stop(pg->loop, &pg->timer);
    ev_timer_set(&pg->timer, (double)ms / 1000.0, 0.);
    ev_timer_start(pg->loop, &pg->timer);
}

int pg_exec(struct pg *pg, const char *sql, struct pg_params *params, pg_done_fn *done, void *arg)
{
    int rc = pg_is_up(pg) ? pg_send(pg, sql, params, done, arg) : -ENOTCONN;

    if (!rc && pg->stall_ms && !ev_is_active(&pg->timer))
        timer_start(pg, pg->stall_ms);
    pg_params_free(params);
    return rc;
}

/* ---- down ----------------------------------------------------------------------------------- */

static int64_t next_pause(struct pg *pg, bool slow)
{
    if (pg->state == PG_UP && clock_boot_ms() - pg->up_at >= STEADY)
        pg->failures = 0;
    unsigned n = pg->failures++;

    if (slow)
        return backoff_ms(PAUSE_MAX, PAUSE_MAX, 1, erand48(pg->dice));
    return n ? backoff_ms(PAUSE_MIN, PAUSE_MAX, n, erand48(pg->dice)) : 0;
}

static void close_connection(struct pg *pg)
{
    ev_io_stop(pg->loop, &pg->io); /* also forgets a fed event */
    ev_timer_stop(pg->loop, &pg->timer);
    PQfinish(pg->conn);
    pg->conn = NULL;
    free(pg->drop_why);
    free(pg->farewell);
    pg->drop_why = pg->farewell = NULL;
    pg->drop_planned = pg->drop_slow = false;
}

/* Takes `why` (NULL: no memory for words). Last thing in a loop callback: users' callbacks run. */
static void drop_take(struct pg *pg, bool slow, char *why)
{
    int64_t pause = next_pause(pg, slow);

    close_connection(pg);
    free(pg->last_error);
    pg->last_error = why;
    pg->was_down = true;
    pg->state = PG_WAITING;
    timer_start(pg, pause);
    pg_lose_all(pg, pg_last_error(pg));
    if (pg->events.on_down && !pg->doomed)
        pg->events.on_down(pg->events.arg, pg_last_error(pg));
}

static void drop_planned(struct pg *pg)
{
    char **words = pg->farewell ? &pg->farewell : &pg->drop_why;
    char *why = *words;

    *words = NULL;
    drop_take(pg, pg->drop_slow, why);
}

/* ---- up ------------------------------------------------------------------------------------- */

static void become_up(struct pg *pg)
{
    ev_timer_stop(pg->loop, &pg->timer);
    pg->state = PG_UP;
    pg->up_at = clock_boot_ms();
    if (pg->events.on_up)
        pg->events.on_up(pg->events.arg);
}

static void refuse(struct pg *pg, const char *what, const char *detail)
{
    char *why = NULL;

    if (asprintf(&why, "%s%s", what, detail) < 0)
        why = NULL;
    pg_plan_drop(pg, true, why ? why : what);
    free(why);
}

static void on_checked(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct pg *pg = arg;

    if (end == PG_LOST)
        return; /* drop_take tells */
    const char *unfit = pg_unfit_encoding(pg_text(r, 0, 0));
    if (end == PG_FAILED)
        refuse(pg, "could not ask for the database's settings: ", pg_error(r));
    else if (unfit)
        refuse(pg, unfit, "");
    else if (strcmp(pg_text(r, 0, 1), "off") != 0)
        refuse(pg, "the database is read-only", "");
    else if (!pg->listen)
        become_up(pg);
}

static void on_listening(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct pg *pg = arg;

    if (end == PG_LOST || pg->drop_planned)
        return;
    if (end == PG_FAILED)
        refuse(pg, "could not listen for notifications: ", pg_error(r));
    else
        become_up(pg);
}

static int send_listen(struct pg *pg)
{
    char *sql = NULL;
    char *channel = PQescapeIdentifier(pg->conn, pg->listen, strlen(pg->listen));
    int rc = -ENOMEM;

    if (channel && asprintf(&sql, "LISTEN %s", channel) >= 0) {
        rc = pg_send(pg, sql, NULL, on_listening, pg);
        free(sql);
    }
    PQfreemem(channel);
    return rc;
}

/* target_session_attrs asked the same about read-only before, unless the user turned it off. */
static void check(struct pg *pg)
{
    static const char sql[] = "SELECT pg_catalog.current_setting('server_encoding'),"
                              " pg_catalog.current_setting('transaction_read_only')";

    pg->state = PG_CHECKING;
    PQsetErrorVerbosity(pg->conn, PQERRORS_TERSE);
    if (PQsetnonblocking(pg->conn, 1) != 0 || !PQenterPipelineMode(pg->conn) ||
        pg_send(pg, sql, NULL, on_checked, pg) != 0 || (pg->listen && send_listen(pg) != 0))
        pg_plan_drop_broken(pg);
}

static void connect_step(struct pg *pg)
{
    ev_io_stop(pg->loop, &pg->io);
    PostgresPollingStatusType next = PQconnectPoll(pg->conn);
    if (PQhost(pg->conn) != pg->host) { /* the next of several hosts: its own time */
        pg->host = PQhost(pg->conn);
        timer_start(pg, ATTEMPT_MAX);
    }
    if (next == PGRES_POLLING_OK)
        check(pg);
    else if (next == PGRES_POLLING_READING || next == PGRES_POLLING_WRITING)
        pg_watch(pg, next == PGRES_POLLING_READING ? EV_READ : EV_WRITE);
    else
        drop_take(pg, false, pg_one_line(PQerrorMessage(pg->conn)));
}

static void attempt(struct pg *pg)
{
    struct pg_conninfo info;

    pg_conninfo_init(&info, pg->dsn, pg->app_name);
    pg->state = PG_CONNECTING;
    pg->conn = PQconnectStartParams(info.keys, info.values, 1);
    if (!pg->conn || PQstatus(pg->conn) == CONNECTION_BAD) {
        drop_take(pg, false, pg->conn ? pg_one_line(PQerrorMessage(pg->conn)) : NULL);
        return;
    }
    PQsetNoticeReceiver(pg->conn, pg_on_notice, pg);
    pg->host = PQhost(pg->conn);
    timer_start(pg, ATTEMPT_MAX);
    pg_watch(pg, EV_WRITE);
}

/* ---- what the loop calls -------------------------------------------------------------------- */

static void work(struct pg *pg, int revents)
{
    if (revents & EV_READ)
        pg->heard_at = clock_boot_ms();
    pg_receive(pg);
    if (pg->drop_planned && !pg->doomed)
        drop_planned(pg);
}

/* The timer of an UP connection runs while statements are owed. Before it judges, it looks
 * whether bytes wait that this turn did not come to yet. */
static void judge_silence(struct pg *pg)
{
    int64_t left = pg->heard_at + pg->stall_ms - clock_boot_ms();
    struct pollfd fd = {.fd = PQsocket(pg->conn), .events = POLLIN};

    if (!pg->head)
        return;
    if (left > 0)
        timer_start(pg, left);
    else if (poll(&fd, 1, 0) > 0)
        timer_start(pg, pg->stall_ms);
    else
        drop_take(pg, false, strdup("the server fell silent"));
}

static void destroy(struct pg *pg)
{
    close_connection(pg);
    pg_lose_all(pg, "");
    free(pg->dsn);
    free(pg->app_name);
    free(pg->listen);
    free(pg->last_error);
    free(pg);
}

static void leave(struct pg *pg)
{
    pg->in_callback = false;
    if (pg->doomed)
        destroy(pg);
}

static void on_io(struct ev_loop *loop, ev_io *w, int revents)
{
    struct pg *pg = w->data;

    (void)loop;
    pg->in_callback = true;
    if (pg->state == PG_CONNECTING)
        connect_step(pg);
    else
        work(pg, revents);
    leave(pg);
}

void pg_poll(struct pg *pg)
{
    if (pg->state == PG_UP && !pg->in_callback && ev_is_active(&pg->io))
        on_io(pg->loop, &pg->io, EV_READ);
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
    struct pg *pg = w->data;
    int64_t left = pg->timer_at - clock_boot_ms();

    (void)loop;
    (void)revents;
    pg->in_callback = true;
    if (left > 0)
        timer_start(pg, left);
    else if (pg->state == PG_WAITING)
        attempt(pg);
    else if (pg->state == PG_UP)
        judge_silence(pg);
    else
        drop_take(pg, false, strdup("no connection within 10 seconds"));
    leave(pg);
}

static int copy_settings(struct pg *pg, const char *dsn, const char *name, const char *listen)
{
    pg->dsn = strdup(dsn ? dsn : "");
    if (asprintf(&pg->app_name, "postrider/%s", name) < 0)
        pg->app_name = NULL;
    pg->listen = listen ? strdup(listen) : NULL;
    return pg->dsn && pg->app_name && (!listen || pg->listen) ? 0 : -ENOMEM;
}

int pg_new(struct ev_loop *loop, const char *dsn, const char *name, const char *listen,
           int64_t stall_ms, const struct pg_events *events, struct pg **ret_pg, struct err *err)
{
    int rc = pg_dsn_check(dsn, err);

    if (rc)
        return rc;
    struct pg *pg = calloc(1, sizeof(*pg));
    if (!pg)
        return -ENOMEM;
    pg->loop = loop;
    pg->stall_ms = stall_ms;
    pg->events = *events;
    pg->tail = &pg->head;
    pg->state = PG_WAITING;
    ev_init(&pg->io, on_io);
    ev_set_priority(&pg->io, EV_MAXPRI); /* a few sockets, before the hundreds of calls */
    ev_init(&pg->timer, on_timer);
    pg->io.data = pg->timer.data = pg;
    rc = copy_settings(pg, dsn, name, listen);
    if (rc) {
        destroy(pg);
        return rc;
    }
    if (getrandom(pg->dice, sizeof(pg->dice), GRND_NONBLOCK) < 0)
        pg->dice[0] = (unsigned short)clock_boot_ms(); /* only spreads reconnects */
    timer_start(pg, 0);
    *ret_pg = pg;
    return 0;
}

void pg_free(struct pg *pg)
{
    if (!pg)
        return;
    pg->doomed = true;
    if (!pg->in_callback)
        destroy(pg);
}

bool pg_is_up(const struct pg *pg)
{
    return pg->state == PG_UP && !pg->drop_planned && !pg->doomed;
}

unsigned pg_pending(const struct pg *pg)
{
    return pg->pending;
}

const char *pg_last_error(const struct pg *pg)
{
    if (pg->last_error)
        return pg->last_error;
    return pg->was_down ? "out of memory" : "";
}
