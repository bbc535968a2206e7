#include "worker/io/clock.h"
#include "worker/io/pg_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void pg_watch(struct pg *pg, int events)
{
    int fd = PQsocket(pg->conn);

    if (pg->state == PG_UP && ev_is_active(&pg->io) && pg->io.fd == fd &&
        (pg->io.events & (EV_READ | EV_WRITE)) == events)
        return;
    ev_io_stop(pg->loop, &pg->io);
    ev_io_set(&pg->io, fd, events);
    ev_io_start(pg->loop, &pg->io);
}

/* The watcher stops here, as libpq may have closed the socket already. */
void pg_plan_drop(struct pg *pg, bool slow, const char *why)
{
    ev_io_stop(pg->loop, &pg->io);
    ev_feed_event(pg->loop, &pg->io, EV_CUSTOM);
    if (pg->drop_planned)
        return;
    pg->drop_planned = true;
    pg->drop_slow = slow;
    pg->drop_why = strdup(why);
}

void pg_plan_drop_broken(struct pg *pg)
{
    char *why = pg_last_line(PQerrorMessage(pg->conn));

    pg_plan_drop(pg, false, why && *why ? why : "the connection broke");
    free(why);
}

static void keep_farewell(struct pg *pg, const PGresult *res)
{
    const char *text = PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY);

    if (text && !pg->farewell)
        pg->farewell = pg_one_line(text);
}

void pg_on_notice(void *arg, const PGresult *notice)
{
    struct pg *pg = arg;

    if (pg_is_farewell(notice))
        keep_farewell(pg, notice);
    if (pg->head && pg_is_warning(notice))
        pg->head->warned = true;
}

static struct pg_statement *pop(struct pg *pg)
{
    struct pg_statement *s = pg->head;

    pg->head = s->next;
    if (!pg->head)
        pg->tail = &pg->head;
    pg->pending--;
    return s;
}

/* Takes `s` and what `r` holds. */
static void report(struct pg *pg, struct pg_statement *s, enum pg_end end, struct pg_result *r)
{
    if (s->done && !pg->doomed)
        s->done(s->arg, end, r);
    pg_result_done(r);
    free(s);
}

static bool is_success(const PGresult *res)
{
    ExecStatusType status = PQresultStatus(res);

    return status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK || status == PGRES_EMPTY_QUERY;
}

static void end_at_sync(struct pg *pg)
{
    struct pg_statement *s = pop(pg);
    enum pg_end end = is_success(s->res) ? PG_COMMITTED : PG_FAILED;
    struct pg_result r;

    pg_result_init(&r, s->res, s->warned, true);
    report(pg, s, end, &r);
}

void pg_lose_all(struct pg *pg, const char *why)
{
    while (pg->head) {
        struct pg_statement *s = pop(pg);
        struct pg_result r;
        PQclear(s->res);
        pg_result_init_lost(&r, why, s->warned);
        report(pg, s, PG_LOST, &r);
    }
}

/* Keeps an error for the head's Sync. An error that is not the server's own word (no memory for
 * the rows, a garbled stream) proves nothing about the transaction. */
static bool take_error(struct pg *pg, PGresult *res)
{
    struct pg_statement *s = pg->head;

    if (!PQresultErrorField(res, PG_DIAG_SQLSTATE) || pg_is_fatal(res)) {
        keep_farewell(pg, res);
        pg_plan_drop_broken(pg);
        PQclear(res);
        return false;
    }
    if (s->res && !is_success(s->res)) {
        PQclear(res);
        return true;
    }
    PQclear(s->res); /* rows of a statement whose commit failed, as a deferred constraint does */
    s->res = res;
    return true;
}

/* Takes one result. False: nothing after it can be trusted. */
static bool take_result(struct pg *pg, PGresult *res)
{
    ExecStatusType status = PQresultStatus(res);

    if (status == PGRES_FATAL_ERROR)
        return take_error(pg, res);
    if (is_success(res) && !pg->head->res) {
        pg->head->res = res;
        return true;
    }
    PQclear(res);
    if (status != PGRES_PIPELINE_SYNC || !pg->head->res) {
        pg_plan_drop(pg, false, "an answer came that was not asked for (is it a COPY?)");
        return false;
    }
    end_at_sync(pg);
    return true;
}

/* NULL parts statements, and an idle pipeline gives NULL for ever. */
static void take_results(struct pg *pg)
{
    bool null_before = false;

    while (pg->head && !pg->doomed && !PQisBusy(pg->conn)) {
        PGresult *res = PQgetResult(pg->conn);
        if (res ? !take_result(pg, res) : null_before)
            return;
        null_before = !res;
    }
}

static void take_notifications(struct pg *pg)
{
    PGnotify *n = NULL;

    while (!pg->doomed && (n = PQnotifies(pg->conn))) {
        if (pg->events.on_notify && pg->state == PG_UP)
            pg->events.on_notify(pg->events.arg, n->relname, n->extra);
        PQfreemem(n);
    }
}

/* PQflush and PQpipelineSync read when they cannot write, so input may lie in libpq's buffer with
 * a silent socket: then a turn is asked for. */
static void flush(struct pg *pg)
{
    int rc = PQflush(pg->conn);

    if (rc < 0 || PQstatus(pg->conn) == CONNECTION_BAD) {
        pg_plan_drop_broken(pg);
        return;
    }
    pg_watch(pg, rc ? EV_READ | EV_WRITE : EV_READ);
}

int pg_send(struct pg *pg, const char *sql, const struct pg_params *params, pg_done_fn *done,
            void *arg)
{
    static const struct pg_params none = {0};
    const struct pg_params *p = params ? params : &none;

    if (p->error)
        return p->error;
    struct pg_statement *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    if (!PQsendQueryParams(pg->conn, sql, p->count, p->types, (const char *const *)p->values,
                           p->lengths, p->formats, 0) ||
        !PQpipelineSync(pg->conn)) {
        /* Without a whole Sync the server undoes what it may have got. */
        pg_plan_drop_broken(pg);
        free(s);
        return -ENOTCONN;
    }
    s->done = done;
    s->arg = arg;
    if (!pg->head)
        pg->heard_at = clock_boot_ms();
    *pg->tail = s;
    pg->tail = &s->next;
    pg->pending++;
    flush(pg);
    if (ev_is_active(&pg->io) && (pg->io.events & EV_WRITE))
        ev_feed_event(pg->loop, &pg->io, EV_CUSTOM);
    return 0;
}

void pg_receive(struct pg *pg)
{
    /* A lost connection's last bytes may hold a Sync, so they are read before it is dropped. */
    char *why = PQconsumeInput(pg->conn) ? NULL : pg_last_line(PQerrorMessage(pg->conn));

    take_results(pg);
    take_notifications(pg);
    if (!pg->doomed && why)
        pg_plan_drop(pg, false, why);
    else if (!pg->doomed && !pg->drop_planned)
        flush(pg);
    free(why);
}
