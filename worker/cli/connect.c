#include "worker/cli/connect.h"

#include <errno.h>
#include <string.h>

#include "worker/cli/cli.h"
#include "worker/core/err.h"
#include "worker/engine/config.h"
#include "worker/io/pg.h"

int cli_try_connect(const char *dsn, struct pg_sync **ret_pg, struct err *err)
{
    int rc = pg_sync_open(dsn, ret_pg, err);

    if (rc < 0 && !err->hint)
        err_hint(err, "name a running database with --dsn, POSTRIDER_DSN, --config or PGHOST and "
                      "its like");
    return rc;
}

int cli_connect(const char *command, const struct cli_common *common, struct pg_sync **ret_pg)
{
    const char *dsn = common->dsn ? common->dsn : cli_env_dsn();
    struct config *config = NULL;
    struct err err = ERR_INIT;
    int code = EXIT_DONE;

    if (!dsn && common->config) {
        if (config_load(common->config, &config, &err) < 0)
            code = cli_fail(command, EXIT_CONFIG, &err);
        else
            dsn = config->database;
    }
    if (code == EXIT_DONE && cli_try_connect(dsn, ret_pg, &err) < 0)
        code = cli_fail(command, EXIT_FAILED, &err);
    config_free(config);
    err_done(&err);
    return code;
}

static void advise(const char *sqlstate, struct err *err)
{
    static const char *const missing[] = {"42P01", "3F000", "42883", "42703", "42704"};

    for (size_t i = 0; i < sizeof(missing) / sizeof(missing[0]); i++) {
        if (strcmp(sqlstate, missing[i]) == 0)
            err_hint(err, "the schema of this version is not there; run: postrider migrate");
    }
    if (strcmp(sqlstate, "42501") == 0)
        err_hint(err, "connect as a member of the role that may do this: postrider_viewer looks, "
                      "postrider_producer sends and cancels, postrider_ops does all");
}

int cli_try(struct pg_sync *pg, const char *sql, struct pg_params *params,
            struct pg_result **ret_result, struct err *err)
{
    char sqlstate[6] = "";
    int rc = pg_sync_exec(pg, sql, params, ret_result, sqlstate, err);

    if (rc == -EIO)
        advise(sqlstate, err);
    if (rc == -ECONNRESET)
        err_prefix(err, "the connection ended; what was asked may or may not have happened");
    return rc;
}

int cli_query(const char *command, struct pg_sync *pg, const char *sql, struct pg_params *params,
              struct pg_result **ret_result)
{
    struct err err = ERR_INIT;
    int code = EXIT_DONE;

    if (cli_try(pg, sql, params, ret_result, &err) < 0)
        code = cli_fail(command, EXIT_FAILED, &err);
    err_done(&err);
    return code;
}
