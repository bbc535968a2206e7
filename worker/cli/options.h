/* options.h - the words on a command line, read by a table, and the help made from the same table.
 *
 * A command describes itself once in a `struct cli_spec`; cli_parse reads argv into the command's
 * own struct and prints --help, so that what is accepted and what is documented cannot differ. */
#ifndef POSTRIDER_CLI_OPTIONS_H
#define POSTRIDER_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cli_type {
    CLI_GROUP = 0, /* no option: `help` is the title of those that follow */
    CLI_FLAG,      /* bool */
    CLI_TEXT,      /* const char *, borrowed from argv */
    CLI_INT,       /* int64_t in [min, max] */
};

/* Ends with help == NULL. */
struct cli_option {
    const char *name; /* long, without the dashes */
    char letter;      /* 0: none */
    enum cli_type type;
    size_t offset;    /* of the value in the command's struct */
    const char *arg;  /* what --help calls the value: "FILE" */
    const char *help; /* lines, separated by \n */
    int64_t min, max;
};

struct cli_spec {
    const char *name;
    const char *usage; /* what follows the name; several forms separated by \n */
    const char *about;
    const struct cli_option *options; /* begins with a group */
    const char *more;                 /* after the options; may be NULL */
    int args_min;                     /* operands */
    int args_max;                     /* -1: any number */
    const char *missing;              /* the name of the operand that lacks: "ID" */
};

/* What nearly every command has. */
struct cli_common {
    const char *dsn;
    const char *config;
    bool json;
};

/* Rows of a table; `type` is the command's struct, `common` its struct cli_common. */
#define CLI_FLAG_ROW(type, member, option, text)                                                   \
    {                                                                                              \
        option, 0, CLI_FLAG, offsetof(type, member), NULL, text, 0, 0                              \
    }
#define CLI_TEXT_ROW(type, member, option, value, text)                                            \
    {                                                                                              \
        option, 0, CLI_TEXT, offsetof(type, member), value, text, 0, 0                             \
    }
#define CLI_INT_ROW(type, member, option, value, least, most, text)                                \
    {                                                                                              \
        option, 0, CLI_INT, offsetof(type, member), value, text, least, most                       \
    }
#define CLI_GROUP_ROW(text)                                                                        \
    {                                                                                              \
        NULL, 0, CLI_GROUP, 0, NULL, text, 0, 0                                                    \
    }
#define CLI_COMMON_AT(type, common, field)                                                         \
    (offsetof(type, common) + offsetof(struct cli_common, field))
#define CLI_JSON(type, common)                                                                     \
    {                                                                                              \
        "json", 0, CLI_FLAG, CLI_COMMON_AT(type, common, json), NULL, "JSON for programs", 0, 0    \
    }
#define CLI_CONNECTION(type, common)                                                               \
    CLI_GROUP_ROW("connection"),                                                                   \
        {"dsn",                                                                                    \
         0,                                                                                        \
         CLI_TEXT,                                                                                 \
         CLI_COMMON_AT(type, common, dsn),                                                         \
         "DSN",                                                                                    \
         "PostgreSQL connection; default: POSTRIDER_DSN, then\n"                                   \
         "\"database\" of --config, then libpq's environment",                                     \
         0,                                                                                        \
         0},                                                                                       \
    {                                                                                              \
        "config", 'c', CLI_TEXT, CLI_COMMON_AT(type, common, config), "FILE",                      \
            "configuration to take \"database\" from", 0, 0                                        \
    }
#define CLI_END                                                                                    \
    {                                                                                              \
        NULL, 0, CLI_GROUP, 0, NULL, NULL, 0, 0                                                    \
    }

#define CLI_GO (-1)

/* Reads argv (argv[0] is the command) into `into`, the struct the offsets mean. Returns CLI_GO with
 * the operands in *ret_args and *ret_n (NULL where the command takes none), or the exit code: help
 * was printed on stdout, or a usage error on stderr. Call it once in a process. */
int cli_parse(const struct cli_spec *spec, int argc, char **argv, void *into, char ***ret_args,
              int *ret_n);

#endif
