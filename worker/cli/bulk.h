/* bulk.h - retry and cancel, for messages named one by one or by the thousand.
 *
 * One by one: each is its own transaction, and a message that cannot be changed does not stop the
 * others. In bulk: batches of 500 in id order (rule R3), each its own transaction, over the
 * messages that exist when it begins; what was done stays done when it is broken off. */
#ifndef POSTRIDER_CLI_BULK_H
#define POSTRIDER_CLI_BULK_H

#include "worker/cli/options.h"

/* What a function in the database answered, and what that means. */
struct bulk_answer {
    const char *answer; /* as stored; the last has NULL and stands for all others */
    const char *shown;  /* NULL: the answer itself */
    bool good;          /* what was asked for is so */
};

struct bulk {
    const char *command;
    const char *one;   /* SELECT answer; $1 the id, $2 the reason or null */
    const char *batch; /* SELECT id, answer; $1 kind, $2 state, $3 after id, $4 limit, $5 reason,
                        * $6 before id */
    const struct bulk_answer *answers;
    const char *kind, *state, *reason;
    int64_t limit; /* of all batches; INT64_MAX: none */
    bool json;
};

/* Connects; then all of b's kind and state, or these ids if it names no kind. Returns an exit code:
 * EXIT_FAILED when an answer was not good or the database refused. */
int bulk_run(const struct bulk *b, const struct cli_common *common, char **ids, int n);

/* EXIT_USAGE when one of them is no id. */
int bulk_check_ids(const char *command, char **ids, int n);

#endif
