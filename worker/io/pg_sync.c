#include "worker/core/err.h"
#include "worker/io/pg_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pg_sync {
    PGconn *conn;
    bool warned; /* since the running statement began */
};

static void on_notice(void *arg, const PGresult *notice)
{
    struct pg_sync *s = arg;

    s->warned |= pg_is_warning(notice);
}

static int connect_failure(PGconn *conn, struct err *err)
{
    if (!conn)
        return -ENOMEM;
    if (PQstatus(conn) == CONNECTION_OK) {
        const char *unfit = pg_unfit_encoding(PQparameterStatus(conn, "server_encoding"));
        return unfit ? err_set(err, -EPROTO, "%s", unfit) : 0;
    }
    char *why = pg_one_line(PQerrorMessage(conn));
    err_set(err, -ECONNREFUSED, "%s", why ? why : "out of memory");
    free(why);
    return -ECONNREFUSED;
}

int pg_sync_open(const char *dsn, struct pg_sync **ret_conn, struct err *err)
{
    struct pg_conninfo info;
    int rc = pg_dsn_check(dsn, err);

    if (rc)
        return rc;
    struct pg_sync *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    pg_conninfo_init(&info, dsn, "postrider");
    s->conn = PQconnectdbParams(info.keys, info.values, 1);
    rc = connect_failure(s->conn, err);
    if (rc) {
        pg_sync_close(s);
        return rc;
    }
    PQsetNoticeReceiver(s->conn, on_notice, s);
    *ret_conn = s;
    return 0;
}

void pg_sync_close(struct pg_sync *s)
{
    if (!s)
        return;
    PQfinish(s->conn);
    free(s);
}

void *pg_sync_native(struct pg_sync *s)
{
    return s->conn;
}

/* The line of `sql` in which the error is, from 1; 0 when the server did not say. Positions
 * count characters, so bytes that continue one are not counted. */
static unsigned error_line(const PGresult *res, const char *sql)
{
    const char *text = res ? PQresultErrorField(res, PG_DIAG_STATEMENT_POSITION) : NULL;
    unsigned long position = text ? strtoul(text, NULL, 10) : 0;
    unsigned line = 1;

    if (!position)
        return 0;
    for (; *sql && position > 1; sql++) {
        if ((sql[1] & 0xc0) != 0x80)
            position--;
        line += *sql == '\n';
    }
    return line;
}

/* Takes `res`. Judges it, words the failure. */
static int judge(struct pg_sync *s, PGresult *res, const char *script, struct pg_result *ret,
                 struct err *err)
{
    if (!res || PQstatus(s->conn) != CONNECTION_OK) {
        char *why = pg_last_line(PQerrorMessage(s->conn));
        PQclear(res);
        pg_result_init_lost(ret, why ? why : "out of memory", s->warned);
        free(why);
        return err_set(err, -ECONNRESET, "%s", pg_error(ret));
    }
    ExecStatusType status = PQresultStatus(res);
    pg_result_init(ret, res, s->warned, false);
    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK || status == PGRES_EMPTY_QUERY)
        return 0;
    unsigned line = script ? error_line(res, script) : 0;
    const char *hint = PQresultErrorField(res, PG_DIAG_MESSAGE_HINT);
    if (line)
        err_set(err, -EIO, "line %u: %s", line, pg_error(ret));
    else
        err_set(err, -EIO, "%s", pg_error(ret));
    if (hint)
        err_hint(err, "%s", hint);
    return -EIO;
}

int pg_sync_exec(struct pg_sync *s, const char *sql, struct pg_params *params,
                 struct pg_result **ret_result, char ret_sqlstate[6], struct err *err)
{
    static const struct pg_params none = {0};
    const struct pg_params *p = params ? params : &none;
    struct pg_result *r = calloc(1, sizeof(*r));
    int rc = p->error;

    if (!rc && !r)
        rc = -ENOMEM;
    if (rc) {
        err_set(err, rc, "cannot send the statement's parameters: %s", strerror(-rc));
    } else {
        s->warned = false;
        PGresult *res = PQexecParams(s->conn, sql, p->count, p->types,
                                     (const char *const *)p->values, p->lengths, p->formats, 0);
        rc = judge(s, res, NULL, r, err);
    }
    if (rc && ret_sqlstate)
        snprintf(ret_sqlstate, 6, "%s", r ? r->sqlstate : "");
    pg_params_free(params);
    if (!rc && ret_result)
        *ret_result = r;
    else
        pg_result_free(r);
    return rc;
}

int pg_sync_script(struct pg_sync *s, const char *sql, struct err *err)
{
    struct pg_result r;

    s->warned = false;
    int rc = judge(s, PQexec(s->conn, sql), sql, &r, err);
    pg_result_done(&r);
    return rc;
}
