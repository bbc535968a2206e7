#include "worker/cli/cli.h"

#include "providers/sandbox/sandbox.h"

const struct command cli_commands[] = {
    {NULL, NULL, "try it"},
    {"dev", cmd_dev, "PostgreSQL, simulated vendor, worker and dashboard in one terminal"},
    {"sandbox", sandbox_main, "a simulated vendor with phones behind it"},
    {NULL, NULL, "run it"},
    {"worker", cmd_worker, "claim, call vendors and settle, until told to stop"},
    {"migrate", cmd_migrate, "create or upgrade the schema in a database"},
    {"check", cmd_check, "test a configuration and say what it can promise"},
    {"adopt", cmd_adopt, "declare a restored or promoted database the one to send from"},
    {"provider", cmd_provider, "list providers and what they can prove; send a test message"},
    {NULL, NULL, "messages"},
    {"send", cmd_send, "queue one message"},
    {"show", cmd_show, "what happened to a message"},
    {"status", cmd_status, "counts, waiting times, workers and providers"},
    {"retry", cmd_retry, "queue failed, expired or unknown messages again"},
    {"cancel", cmd_cancel, "stop messages that have not left"},
    {"segments", cmd_segments, "what a text costs, and which characters make it dear"},
    {"suppress", cmd_suppress, "numbers that do not want to hear from us"},
    {NULL, NULL, "later (not in this version)"},
    {"explain", cmd_later, "why a message has not left yet"},
    {"campaign", cmd_later, "create, load, start, pause and cancel campaigns"},
    {"audit", cmd_later, "prove that nothing is lost, compare with a vendor's log"},
    {"purge", cmd_later, "drop what is older than the retention"},
    {NULL, NULL, NULL},
};
