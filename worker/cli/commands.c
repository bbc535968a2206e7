#include "worker/cli/cli.h"

#include "providers/sandbox/sandbox.h"

const struct command cli_commands[] = {
    {"worker", cmd_worker, "claim, call vendors and settle, until told to stop"},
    {"migrate", cmd_migrate, "create or upgrade the schema in a database"},
    {"sandbox", sandbox_main, "a simulated vendor with phones behind it"},
    {0},
};
