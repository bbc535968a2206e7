#include "worker/io/pg_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Without the spaces at the end of what was written. */
static char *trim(const char *line, char *at)
{
    while (at != line && at[-1] == ' ')
        at--;
    return at;
}

char *pg_one_line(const char *text)
{
    char *line = malloc(strlen(text) * 2 + 1); /* "\n" may become "; " */
    char *at = line;

    if (!line)
        return NULL;
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '\n' && text[1] == '\t') {
            text += strcspn(text + 1, "\n");
            continue;
        }
        bool parts = c == '\n' && !strchr("\t\r\n", text[1]); /* also finds the end */
        if (parts && trim(line, at) != line) {
            at = trim(line, at);
            *at++ = ';';
        }
        if (c > ' ' && c != 0x7f)
            *at++ = *text;
        else if (at != line && at[-1] != ' ')
            *at++ = ' ';
    }
    *trim(line, at) = '\0';
    return line;
}

char *pg_last_line(const char *text)
{
    const char *start = text;

    /* Lines that begin with a tab belong to the one before. */
    for (const char *p = text; *p; p++) {
        if (*p == '\n' && !strchr("\t\r\n", p[1]))
            start = p + 1;
    }
    return pg_one_line(start);
}

/* Replaces what stands in double quotes; the messages of data exceptions quote the data. */
static void mask_quoted(char *text)
{
    char *to = text;
    bool inside = false;

    for (const char *from = text; *from; from++) {
        if (*from == '"') {
            inside = !inside;
            *to++ = '"';
        } else if (!inside) {
            *to++ = *from;
        } else if (to[-1] == '"') {
            *to++ = '*';
        }
    }
    *to = '\0';
}

static const char *field(const PGresult *res, int code)
{
    const char *text = PQresultErrorField(res, code);

    return text ? text : "";
}

static bool has_severity(const PGresult *res, const char *severity)
{
    const char *own = field(res, PG_DIAG_SEVERITY_NONLOCALIZED);

    if (!*own)
        own = field(res, PG_DIAG_SEVERITY); /* poolers send only this one */
    return strcmp(own, severity) == 0;
}

bool pg_is_fatal(const PGresult *res)
{
    return has_severity(res, "FATAL") || has_severity(res, "PANIC");
}

bool pg_is_warning(const PGresult *res)
{
    return has_severity(res, "WARNING") || strncmp(field(res, PG_DIAG_SQLSTATE), "01", 2) == 0;
}

bool pg_is_farewell(const PGresult *res)
{
    /* 57P01 admin shutdown, 57P02 crash of another session, … some come as a WARNING. */
    return pg_is_fatal(res) || strncmp(field(res, PG_DIAG_SQLSTATE), "57P", 3) == 0;
}

void pg_result_init(struct pg_result *r, PGresult *res, bool warned, bool masked)
{
    ExecStatusType status = PQresultStatus(res);

    memset(r, 0, sizeof(*r));
    r->res = res;
    r->warned = warned;
    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK || status == PGRES_EMPTY_QUERY)
        return;
    const char *text = field(res, PG_DIAG_MESSAGE_PRIMARY);
    snprintf(r->sqlstate, sizeof(r->sqlstate), "%s", field(res, PG_DIAG_SQLSTATE));
    if (*text)
        r->error = pg_one_line(text);
    else /* libpq's own words have no fields */
        r->error = pg_last_line(PQresultErrorMessage(res));
    if (r->error && masked && strncmp(r->sqlstate, "22", 2) == 0)
        mask_quoted(r->error);
}

void pg_result_init_lost(struct pg_result *r, const char *why, bool warned)
{
    memset(r, 0, sizeof(*r));
    r->error = strdup(why);
    r->warned = warned;
    memcpy(r->sqlstate, PG_LOST_SQLSTATE, sizeof(r->sqlstate));
}

void pg_result_done(struct pg_result *r)
{
    PQclear(r->res);
    free(r->error);
    r->res = NULL;
    r->error = NULL;
}

void pg_result_free(struct pg_result *r)
{
    if (!r)
        return;
    pg_result_done(r);
    free(r);
}

size_t pg_rows(const struct pg_result *r)
{
    return r->res ? (size_t)PQntuples(r->res) : 0;
}

int pg_cols(const struct pg_result *r)
{
    return r->res ? PQnfields(r->res) : 0;
}

const char *pg_col_name(const struct pg_result *r, int col)
{
    const char *name = r->res ? PQfname(r->res, col) : NULL;

    return name ? name : "";
}

bool pg_is_null(const struct pg_result *r, size_t row, int col)
{
    if (row >= pg_rows(r) || col < 0 || col >= pg_cols(r))
        return true;
    return PQgetisnull(r->res, (int)row, col);
}

const char *pg_text(const struct pg_result *r, size_t row, int col)
{
    return pg_is_null(r, row, col) ? "" : PQgetvalue(r->res, (int)row, col);
}

size_t pg_text_len(const struct pg_result *r, size_t row, int col)
{
    return pg_is_null(r, row, col) ? 0 : (size_t)PQgetlength(r->res, (int)row, col);
}

int64_t pg_i64(const struct pg_result *r, size_t row, int col)
{
    const char *text = pg_text(r, row, col);
    char *end = NULL;

    errno = 0;
    long long value = strtoll(text, &end, 10);
    return errno || end == text || *end ? 0 : (int64_t)value;
}

bool pg_bool(const struct pg_result *r, size_t row, int col)
{
    return strcmp(pg_text(r, row, col), "t") == 0;
}

const char *pg_sqlstate(const struct pg_result *r)
{
    return r->sqlstate;
}

const char *pg_error(const struct pg_result *r)
{
    if (r->error)
        return r->error;
    return *r->sqlstate ? "out of memory" : "";
}

bool pg_warned(const struct pg_result *r)
{
    return r->warned;
}
