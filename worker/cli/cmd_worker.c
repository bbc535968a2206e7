/* postrider worker: runs until a signal ends it. */
#include <errno.h>
#include <stdio.h>

#include "worker/cli/cli.h"
#include "worker/cli/options.h"
#include "worker/core/err.h"
#include "worker/engine/engine.h"

static const struct cli_option options[] = {
    CLI_GROUP_ROW("options"),
    {"config", 'c', CLI_TEXT, offsetof(struct engine_options, config_path), "FILE",
     "the configuration (JSON)", 0, 0},
    CLI_TEXT_ROW(struct engine_options, dsn, "dsn", "DSN",
                 "PostgreSQL connection; default: POSTRIDER_DSN, then\n"
                 "the config's \"database\", then libpq's environment"),
    CLI_END,
};

static const struct cli_spec spec = {
    .name = "worker",
    .usage = "--config FILE [--dsn DSN]",
    .about =
        "Claims due messages, calls their vendors and settles what happened, until it is told to\n"
        "stop. Run as many as you like, on any number of hosts: they share the work.",
    .options = options,
    .more =
        "signals: SIGTERM or SIGINT drains within drain_s (what never started goes back, calls in\n"
        "the air end); a second one leaves now. SIGHUP reads the configuration again.\n"
        "exit codes: 0 clean end, 1 calls were cut off or answers could not be stored (each is\n"
        "logged), 2 usage, 3 configuration refused",
};

int cmd_worker(int argc, char **argv)
{
    struct engine_options eo = {.dsn = cli_env_dsn(), .schema_version = cli_schema_version()};
    struct err err = ERR_INIT;
    int rc = cli_parse(&spec, argc, argv, &eo, NULL, NULL);

    if (rc != CLI_GO)
        return rc;
    if (!eo.config_path)
        return cli_usage("worker", "--config is missing");
    rc = engine_run(&eo, &err);
    if (rc < 0)
        rc = cli_fail("worker",
                      rc == -EINVAL || rc == -ENOENT || rc == -ENOEXEC ? EXIT_CONFIG : EXIT_FAILED,
                      &err);
    err_done(&err);
    return rc;
}
