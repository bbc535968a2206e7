/* postrider status: what waits, what failed, who works. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "worker/cli/cli.h"
#include "worker/cli/connect.h"
#include "worker/cli/print.h"
#include "worker/cli/status.h"
#include "worker/io/pg.h"

struct status_args {
    struct cli_common common;
    bool watch;
};

static const struct cli_option options[] = {
    CLI_GROUP_ROW("output"),
    {"watch", 'w', CLI_FLAG, offsetof(struct status_args, watch), NULL,
     "every second, until Ctrl-C: redrawn on a terminal, a\nline each elsewhere", 0, 0},
    CLI_JSON(struct status_args, common),
    CLI_CONNECTION(struct status_args, common),
    CLI_END,
};

static const struct cli_spec spec = {
    .name = "status",
    .usage = "[--watch] [OPTIONS]",
    .about =
        "Shows how many messages of each kind are in which state, failed and unknown first; how\n"
        "long the oldest one waits; workers, providers, and claims over their lease.",
    .options = options,
};

/* clang-format off */
#define AGE_MS(at) "(extract(epoch FROM clock_timestamp() - " at ") * 1000)::bigint"

/* Each part only for roles that may read it. */
#define STATUS_BEGIN \
    "SELECT json_build_object(" \
    "'at', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')," \
    "'counts', coalesce((SELECT json_agg(json_build_object('kind', c.kind, 'state', c.state," \
    "  'count', c.count) ORDER BY k.lane, c.kind, c.state) FROM postrider.counts AS c" \
    "  LEFT JOIN postrider.kind AS k ON k.name = c.kind), '[]')," \
    "'lanes', coalesce((SELECT json_agg(json_build_object('lane', lane, 'kinds', kinds," \
    "  'oldest_due_ms', oldest_due_ms) ORDER BY lane) FROM postrider.lanes), '[]')," \
    "'workers', coalesce((SELECT json_agg(json_build_object('id', id, 'host', host, 'pid', pid," \
    "  'version', version, 'alive', alive, 'seen_ago_ms', " AGE_MS("seen_at") "," \
    "  'in_air', coalesce((stats->>'in_air')::bigint, 0)," \
    "  'draining', coalesce((stats->>'draining')::boolean, false)) ORDER BY id)" \
    "  FROM postrider.workers WHERE stopped_at IS NULL" \
    "  AND seen_at > now() - interval '1 hour'), '[]')," \
    "'providers', coalesce((SELECT json_agg(json_build_object('name', name, 'plugin', plugin," \
    "  'caps', caps, 'seen_ago_ms', " AGE_MS("seen_at") ") ORDER BY name)" \
    "  FROM postrider.providers), '[]')"
#define STATUS_CLAIMS \
    ", 'claims', (SELECT json_build_object('open', count(*)," \
    "  'over_lease', count(*) FILTER (WHERE lease_until < clock_timestamp())," \
    "  'over_lease_messages', coalesce(sum(cardinality(ids))" \
    "    FILTER (WHERE lease_until < clock_timestamp()), 0)," \
    "  'most_over_ms', coalesce(greatest(max(" AGE_MS("lease_until") "), 0), 0))" \
    "  FROM postrider.claim WHERE cardinality(ids) > 0)"
#define STATUS_HOUSE \
    ", 'adopted', (SELECT identity = postrider.identity() FROM postrider.installation)," \
    "'schema_version', (SELECT max(version) FROM postrider.schema_version)"
#define STATUS_END ")"

#define RIGHTS \
    "SELECT has_table_privilege('postrider.claim', 'SELECT')," \
    " has_table_privilege('postrider.installation', 'SELECT')" \
    " AND has_table_privilege('postrider.schema_version', 'SELECT')" \
    " AND has_function_privilege('postrider.identity()', 'EXECUTE')"
/* clang-format on */

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

static int read_status(struct pg_sync *pg, json_t **ret)
{
    struct pg_result *rights = NULL, *r = NULL;
    char *sql = NULL;
    int code = cli_query("status", pg, RIGHTS, NULL, &rights);

    if (code == EXIT_DONE &&
        asprintf(&sql, "%s%s%s%s", STATUS_BEGIN, pg_bool(rights, 0, 0) ? STATUS_CLAIMS : "",
                 pg_bool(rights, 0, 1) ? STATUS_HOUSE : "", STATUS_END) < 0) {
        sql = NULL;
        code = EXIT_FAILED;
    }
    if (code == EXIT_DONE)
        code = cli_query("status", pg, sql, NULL, &r);
    if (code == EXIT_DONE) {
        *ret = json_loads(pg_text(r, 0, 0), 0, NULL);
        code = *ret ? EXIT_DONE : EXIT_FAILED;
    }
    free(sql);
    pg_result_free(r);
    pg_result_free(rights);
    return code;
}

static int once(const struct status_args *a, struct pg_sync *pg)
{
    json_t *status = NULL;
    int code = read_status(pg, &status);

    if (code == EXIT_DONE && a->common.json)
        return print_json_take(status);
    if (code == EXIT_DONE)
        status_print(status);
    json_decref(status);
    return code;
}

/* A failure leaves *io_pg closed; the next second connects again. */
static void look(const struct status_args *a, struct pg_sync **io_pg, bool terminal)
{
    json_t *status = NULL;

    if (!*io_pg && cli_connect("status", &a->common, io_pg) != EXIT_DONE)
        return;
    if (read_status(*io_pg, &status) != EXIT_DONE) {
        pg_sync_close(*io_pg);
        *io_pg = NULL;
        return;
    }
    if (a->common.json) {
        print_json_line_take(status);
        return;
    }
    if (terminal) {
        fputs("\033[H\033[2J", stdout);
        status_print(status);
        puts("\nCtrl-C ends this");
    } else {
        status_print_line(status);
    }
    fflush(stdout);
    json_decref(status);
}

static int watch(const struct status_args *a, struct pg_sync **io_pg)
{
    struct sigaction act = {.sa_handler = on_signal};
    struct timespec second = {.tv_sec = 1};
    bool terminal = isatty(STDOUT_FILENO) == 1;

    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    while (!stopped && !ferror(stdout)) {
        look(a, io_pg, terminal);
        if (!stopped)
            nanosleep(&second, NULL); /* a signal ends it */
    }
    return EXIT_DONE;
}

int cmd_status(int argc, char **argv)
{
    struct status_args args = {0};
    struct pg_sync *pg = NULL;
    int code = cli_parse(&spec, argc, argv, &args, NULL, NULL);

    if (code != CLI_GO)
        return code;
    code = cli_connect("status", &args.common, &pg);
    if (code == EXIT_DONE)
        code = args.watch ? watch(&args, &pg) : once(&args, pg);
    pg_sync_close(pg);
    return code;
}
