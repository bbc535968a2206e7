#include "worker/cli/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/cli/migrations.h"
#include "worker/core/err.h"

int cli_fail(const char *command, int code, const struct err *err)
{
    fprintf(stderr, "postrider %s: %s\n", command, err_text(err));
    if (err && err->hint)
        fprintf(stderr, "hint: %s\n", err->hint);
    return code;
}

int cli_usage(const char *command, const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "postrider %s: ", command);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\ntry: postrider %s --help\n", command);
    return EXIT_USAGE;
}

const char *cli_env_dsn(void)
{
    const char *dsn = getenv("POSTRIDER_DSN");

    return dsn && *dsn ? dsn : NULL;
}

int cli_schema_version(void)
{
    return migrations_count > 0 ? migrations[migrations_count - 1].version : 0;
}
