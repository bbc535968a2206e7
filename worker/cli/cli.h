/* cli.h - the commands of `postrider`, and what they share.
 *
 * Each command is one file with one function; main.c finds it in cli_commands. A command gets
 * argv with its own name first, prints data on stdout and trouble on stderr, and returns an exit
 * code, which is an interface. The connection is --dsn, else POSTRIDER_DSN, else the config's
 * "database", else libpq's own environment. */
#ifndef POSTRIDER_CLI_CLI_H
#define POSTRIDER_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

enum exit_code {
    EXIT_DONE = 0,   /* it did what was asked */
    EXIT_FAILED = 1, /* it could not */
    EXIT_USAGE = 2,  /* the words on the command line are off */
    EXIT_CONFIG = 3, /* the configuration is refused */
};

struct command {
    const char *name; /* NULL: `summary` is the title of those that follow */
    int (*run)(int argc, char **argv);
    const char *summary; /* one line for --help */
};

/* Ends with summary == NULL. */
extern const struct command cli_commands[];

int cmd_adopt(int argc, char **argv);
int cmd_cancel(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_dev(int argc, char **argv);
int cmd_later(int argc, char **argv); /* each command that has a name, but no substance yet */
int cmd_migrate(int argc, char **argv);
int cmd_provider(int argc, char **argv);
int cmd_retry(int argc, char **argv);
int cmd_segments(int argc, char **argv);
int cmd_send(int argc, char **argv);
int cmd_show(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_suppress(int argc, char **argv);
int cmd_worker(int argc, char **argv);

/* Prints "postrider COMMAND: MESSAGE" and the hint on stderr; returns `code`. */
int cli_fail(const char *command, int code, const struct err *err);

/* Prints "postrider COMMAND: WHAT" and where help is; returns EXIT_USAGE. */
int cli_usage(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* $POSTRIDER_DSN, or NULL when it is not set or empty. */
const char *cli_env_dsn(void);

/* A whole number in [min, max] and nothing around it. */
bool cli_int(const char *text, int64_t min, int64_t max, int64_t *ret);

/* The version of the newest migration in this program. */
int cli_schema_version(void);

#endif
