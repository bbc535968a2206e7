/* postrider worker: runs until a signal ends it. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>

#include "worker/cli/cli.h"
#include "worker/core/err.h"
#include "worker/engine/engine.h"

static const char help[] =
    "usage: postrider worker --config FILE [--dsn DSN]\n"
    "\n"
    "Claims due messages, calls their vendors and settles what happened, until it is told to\n"
    "stop. Run as many as you like, on any number of hosts: they share the work.\n"
    "\n"
    "  -c, --config FILE   the configuration (JSON)\n"
    "      --dsn DSN       PostgreSQL connection; default: POSTRIDER_DSN, then the config's\n"
    "                      \"database\", then libpq's environment\n"
    "      --help          this text\n"
    "\n"
    "signals: SIGTERM or SIGINT drains within drain_s (what never started goes back, calls in the\n"
    "air end); a second one leaves now. SIGHUP reads the configuration again.\n"
    "exit codes: 0 clean end, 1 calls were cut off or answers could not be stored (each is\n"
    "logged), 2 usage, 3 configuration refused\n";

int cmd_worker(int argc, char **argv)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"dsn", required_argument, NULL, 'd'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct engine_options eo = {.dsn = cli_env_dsn(), .schema_version = cli_schema_version()};
    struct err err = ERR_INIT;
    int opt, rc;

    while ((opt = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
        switch (opt) {
        case 'c':
            eo.config_path = optarg;
            break;
        case 'd':
            eo.dsn = optarg;
            break;
        case 'h':
            fputs(help, stdout);
            return EXIT_DONE;
        default:
            return EXIT_USAGE;
        }
    }
    if (optind < argc)
        return cli_usage("worker", "unexpected \"%s\"", argv[optind]);
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
