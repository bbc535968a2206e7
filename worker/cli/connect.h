/* connect.h - a command's talk with PostgreSQL: connect, ask, and say in words what went wrong.
 *
 * Blocking. Failures are printed on stderr with a hint where there is one, and come back as an
 * exit code (EXIT_DONE is 0), so that a command only passes them on. */
#ifndef POSTRIDER_CLI_CONNECT_H
#define POSTRIDER_CLI_CONNECT_H

#include "worker/cli/options.h"

struct pg_sync;
struct pg_params;
struct pg_result;
struct err;

/* Connects as --dsn, POSTRIDER_DSN, the config's "database" or libpq's environment say.
 * EXIT_CONFIG when the config is refused, EXIT_FAILED when there is no connection. The caller
 * closes *ret_pg. */
int cli_connect(const char *command, const struct cli_common *common, struct pg_sync **ret_pg);

/* One statement; takes params. Rows in *ret_result (may be NULL), freed by the caller. */
int cli_query(const char *command, struct pg_sync *pg, const char *sql, struct pg_params *params,
              struct pg_result **ret_result);

/* Both without printing: 0 or -Exxx as in pg.h, with a hint. */
int cli_try_connect(const char *dsn, struct pg_sync **ret_pg, struct err *err);
int cli_try(struct pg_sync *pg, const char *sql, struct pg_params *params,
            struct pg_result **ret_result, struct err *err);

#endif
