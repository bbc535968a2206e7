/* Drives pg.h from lines on stdin and prints what happens, a JSON object a line.
 *
 *   pg_driver DSN CHANNEL|- STALL_MS
 *   exec TAG SQL          one statement
 *   nest TAG SQL          the same again from its own callback, as TAG+
 *   burst TAG N SQL       N statements at once ($1 = 0…N-1 as bigint), counted by their ends
 *   arrays TAG            one of each kind of parameter, read back as text
 *   big TAG N             a text array of N bytes, its length read back
 *   free TAG SQL          pg_free from the statement's callback
 *   garble                libpq loses the next rows, as it does without memory for them
 *   state                 up, pending, last error
 *   quit (or end of file)
 *
 *   pg_driver sync DSN    the blocking half; "\\n" in a line stands for a new line
 *   exec TAG SQL          one statement with $1 = 'one'
 *   script TAG SQL        several statements */
#include "worker/core/err.h"
#include "worker/io/pg.h"

#include <dlfcn.h>
#include <ev.h>
#include <jansson.h>
#include <libpq-fe.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

static struct ev_loop *loop;
static struct pg *pg;
static char *input; /* bytes of stdin that are no whole line yet */
static size_t input_len;

struct job {
    LIST_ENTRY(job) link;
    char *tag;
    char *sql; /* to repeat, or NULL */
    long left; /* of a burst */
    long ends[3];
    bool in_order; /* each end of a burst gave back its own number */
    bool free_it;
};

/* Those of statements whose end is not known; pg_free leaves them to us. */
static LIST_HEAD(, job) jobs = LIST_HEAD_INITIALIZER(jobs);

static const char *const end_names[] = {"committed", "failed", "lost"};

static bool garble_next;

/* Stands before libpq's own, to fail on demand. */
PGresult *PQgetResult(PGconn *conn)
{
    static PGresult *(*real)(PGconn *);

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "PQgetResult");
    PGresult *res = real(conn);
    if (!garble_next || PQresultStatus(res) != PGRES_TUPLES_OK)
        return res;
    garble_next = false;
    PQclear(res);
    return PQmakeEmptyPGresult(NULL, PGRES_FATAL_ERROR);
}

static void print_take(json_t *event)
{
    if (event)
        json_dumpf(event, stdout, JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    json_decref(event);
}

static struct job *job_new(const char *tag, const char *sql)
{
    struct job *j = calloc(1, sizeof(*j));

    if (!j)
        abort();
    j->tag = strdup(tag);
    j->sql = sql ? strdup(sql) : NULL;
    j->in_order = true;
    LIST_INSERT_HEAD(&jobs, j, link);
    return j;
}

static void job_free(struct job *j)
{
    LIST_REMOVE(j, link);
    free(j->tag);
    free(j->sql);
    free(j);
}

static json_t *row_json(const struct pg_result *r, size_t row)
{
    json_t *values = json_array();

    for (int col = 0; col < pg_cols(r); col++) {
        if (pg_is_null(r, row, col))
            json_array_append_new(values, json_null());
        else
            json_array_append_new(values,
                                  json_stringn(pg_text(r, row, col), pg_text_len(r, row, col)));
    }
    return values;
}

static void on_done(void *arg, enum pg_end end, const struct pg_result *r);

static void exec(struct job *j, const char *sql, struct pg_params *params)
{
    int rc = pg_exec(pg, sql, params, on_done, j);

    if (rc == 0)
        return;
    print_take(json_pack("{s:s, s:s, s:s}", "event", "refused", "tag", j->tag, "code",
                         strerrorname_np(-rc)));
    job_free(j);
}

static void on_done(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct job *j = arg;
    json_t *first = pg_rows(r) ? row_json(r, 0) : json_array();

    print_take(json_pack("{s:s, s:s, s:s, s:I, s:o, s:b, s:s, s:s}", "event", "end", "tag", j->tag,
                         "end", end_names[end], "rows", (json_int_t)pg_rows(r), "first", first,
                         "warned", pg_warned(r), "sqlstate", pg_sqlstate(r), "error", pg_error(r)));
    if (j->sql) {
        char *tag = NULL;
        if (asprintf(&tag, "%s+", j->tag) < 0)
            abort();
        exec(job_new(tag, NULL), j->sql, NULL);
        free(tag);
    }
    if (j->free_it) {
        pg_free(pg);
        pg = NULL;
        /* The result is ours until we return. */
        print_take(json_pack("{s:s, s:s}", "event", "freed", "text", pg_text(r, 0, 0)));
        ev_break(loop, EVBREAK_ALL);
    }
    job_free(j);
}

static void on_burst_done(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct job *j = arg;
    long expected = j->ends[0] + j->ends[1] + j->ends[2];

    if (end == PG_COMMITTED && pg_i64(r, 0, 0) != expected)
        j->in_order = false;
    j->ends[end]++;
    if (--j->left)
        return;
    print_take(json_pack("{s:s, s:s, s:I, s:I, s:I, s:b}", "event", "burst", "tag", j->tag,
                         "committed", (json_int_t)j->ends[0], "failed", (json_int_t)j->ends[1],
                         "lost", (json_int_t)j->ends[2], "in_order", j->in_order));
    job_free(j);
}

static void burst(const char *tag, long n, const char *sql)
{
    struct job *j = job_new(tag, NULL);

    j->left = n;
    for (long i = 0; i < n; i++) {
        struct pg_params *p = pg_params_new();
        pg_add_i64(p, i);
        if (pg_exec(pg, sql, p, on_burst_done, j) != 0)
            j->left--;
    }
    if (j->left == 0) {
        print_take(json_pack("{s:s, s:s}", "event", "refused", "tag", tag));
        job_free(j);
    }
}

static void arrays(const char *tag)
{
    static const int64_t longs[] = {INT64_MIN, -1, 0, INT64_MAX};
    static const int32_t ints[] = {INT32_MIN, 7, INT32_MAX};
    static const char *const texts[] = {"a,\"b\"\\{}", "", NULL, "žluťoučký 🐎"};
    static const char *const uuids[] = {"00112233-4455-6677-8899-AABBCCDDEEFF",
                                        "01234567-89ab-7def-8123-456789abcdef"};
    struct pg_params *p = pg_params_new();

    pg_add_text(p, "O'Reilly; $1");
    pg_add_text(p, NULL);
    pg_add_i64(p, INT64_MIN);
    pg_add_bool(p, true);
    pg_add_i64_array(p, longs, 4);
    pg_add_i32_array(p, ints, 3);
    pg_add_text_array(p, texts, 4);
    pg_add_uuid_array(p, uuids, 2);
    pg_add_i64_array(p, NULL, 0);
    exec(job_new(tag, NULL),
         "select $1::text, $2::text, $3::bigint, $4::boolean, $5::text, $6::text, $7::text,"
         " $8::text, cardinality($9)",
         p);
}

static void big(const char *tag, size_t n)
{
    char *text = malloc(n + 1);

    if (!text)
        abort();
    memset(text, 'x', n);
    text[n] = '\0';
    const char *values[] = {text};
    struct pg_params *p = pg_params_new();
    pg_add_text_array(p, values, 1);
    exec(job_new(tag, NULL), "select length(($1::text[])[1])", p);
    free(text);
}

static void free_from_callback(const char *tag, const char *sql)
{
    struct job *j = job_new(tag, NULL);

    j->free_it = true;
    exec(j, sql, NULL);
}

static void command(char *line)
{
    char *verb = strsep(&line, " ");

    if (strcmp(verb, "quit") == 0) {
        ev_break(loop, EVBREAK_ALL);
        return;
    }
    if (strcmp(verb, "garble") == 0) {
        garble_next = true;
        return;
    }
    if (strcmp(verb, "state") == 0) {
        print_take(json_pack("{s:s, s:b, s:I, s:s}", "event", "state", "up", pg_is_up(pg),
                             "pending", (json_int_t)pg_pending(pg), "last_error",
                             pg_last_error(pg)));
        return;
    }
    const char *tag = strsep(&line, " ");
    if (!tag)
        abort();
    if (strcmp(verb, "exec") == 0)
        exec(job_new(tag, NULL), line, NULL);
    else if (strcmp(verb, "nest") == 0)
        exec(job_new(tag, line), line, NULL);
    else if (strcmp(verb, "arrays") == 0)
        arrays(tag);
    else if (strcmp(verb, "big") == 0)
        big(tag, (size_t)strtoul(line, NULL, 10));
    else if (strcmp(verb, "free") == 0)
        free_from_callback(tag, line);
    else if (strcmp(verb, "burst") == 0) {
        long n = strtol(line, &line, 10);
        burst(tag, n, line);
    } else
        abort();
}

/* All whole lines that came are run in one turn, so that they share a pipeline. */
static void on_input(struct ev_loop *l, ev_io *w, int revents)
{
    char chunk[4096];
    ssize_t got = read(STDIN_FILENO, chunk, sizeof(chunk));
    char *end = NULL;

    (void)l;
    (void)revents;
    if (got <= 0) {
        ev_io_stop(loop, w);
        ev_break(loop, EVBREAK_ALL);
        return;
    }
    char *grown = realloc(input, input_len + (size_t)got);
    if (!grown)
        abort();
    input = grown;
    memcpy(input + input_len, chunk, (size_t)got);
    input_len += (size_t)got;
    char *start = input;
    while (pg && (end = memchr(start, '\n', input_len - (size_t)(start - input)))) {
        *end = '\0';
        char *line = strdup(start);
        command(line);
        free(line);
        start = end + 1;
    }
    input_len -= (size_t)(start - input);
    memmove(input, start, input_len);
}

static void on_up(void *arg)
{
    (void)arg;
    print_take(json_pack("{s:s}", "event", "up"));
}

static void on_down(void *arg, const char *why)
{
    (void)arg;
    print_take(json_pack("{s:s, s:s, s:b}", "event", "down", "why", why, "up", pg_is_up(pg)));
}

static void on_notify(void *arg, const char *channel, const char *payload)
{
    (void)arg;
    print_take(
        json_pack("{s:s, s:s, s:s}", "event", "notify", "channel", channel, "payload", payload));
}

static void unescape_newlines(char *text)
{
    for (char *p = text; (p = strstr(p, "\\n")); p++) {
        *p = '\n';
        memmove(p + 1, p + 2, strlen(p + 2) + 1);
    }
}

static void sync_command(struct pg_sync *conn, char *line)
{
    struct err err = ERR_INIT;
    struct pg_result *r = NULL;
    char state[6] = "";
    const char *verb = strsep(&line, " ");
    const char *tag = strsep(&line, " ");
    int rc = 0;

    unescape_newlines(line);
    if (strcmp(verb, "script") == 0) {
        rc = pg_sync_script(conn, line, &err);
    } else {
        struct pg_params *p = pg_params_new();
        pg_add_text(p, "one");
        rc = pg_sync_exec(conn, line, p, &r, state, &err);
    }
    json_t *names = json_array();
    for (int i = 0; r && i < pg_cols(r); i++)
        json_array_append_new(names, json_string(pg_col_name(r, i)));
    print_take(json_pack("{s:s, s:s, s:s, s:o, s:o, s:b, s:s, s:s?, s:s?}", "event", "end", "tag",
                         tag, "end", rc ? strerrorname_np(-rc) : "ok", "names", names, "first",
                         r && pg_rows(r) ? row_json(r, 0) : json_array(), "warned",
                         r && pg_warned(r), "sqlstate", state, "error", err.message, "hint",
                         err.hint));
    pg_result_free(r);
    err_done(&err);
}

static int sync_main(const char *dsn)
{
    struct err err = ERR_INIT;
    struct pg_sync *conn = NULL;
    char *line = NULL;
    size_t room = 0;
    int rc = pg_sync_open(dsn, &conn, &err);

    if (rc) {
        print_take(json_pack("{s:s, s:s, s:s, s:s?}", "event", "refused", "code",
                             strerrorname_np(-rc), "error", err_text(&err), "hint", err.hint));
        err_done(&err);
        return 1;
    }
    print_take(json_pack("{s:s}", "event", "up"));
    while (getline(&line, &room, stdin) > 0) {
        line[strcspn(line, "\n")] = '\0';
        sync_command(conn, line);
    }
    free(line);
    pg_sync_close(conn);
    return 0;
}

int main(int argc, char **argv)
{
    const struct pg_events events = {on_up, on_down, on_notify, NULL};
    struct err err = ERR_INIT;
    ev_io in;

    if (argc == 3 && strcmp(argv[1], "sync") == 0)
        return sync_main(argv[2]);
    if (argc != 4)
        return 2;
    loop = ev_loop_new(EVFLAG_AUTO);
    const char *listen = strcmp(argv[2], "-") == 0 ? NULL : argv[2];
    if (pg_new(loop, argv[1], "driver", listen, strtol(argv[3], NULL, 10), &events, &pg, &err)) {
        print_take(json_pack("{s:s, s:s, s:s?}", "event", "refused", "error", err_text(&err),
                             "hint", err.hint));
        err_done(&err);
        ev_loop_destroy(loop);
        return 1;
    }
    ev_io_init(&in, on_input, STDIN_FILENO, EV_READ);
    ev_io_start(loop, &in);
    ev_run(loop, 0);
    pg_free(pg);
    while (!LIST_EMPTY(&jobs))
        job_free(LIST_FIRST(&jobs));
    free(input);
    ev_loop_destroy(loop);
    return 0;
}
