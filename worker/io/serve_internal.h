/* serve_internal.h - what the parts of serve share; nobody else includes it. */
#ifndef POSTRIDER_IO_SERVE_INTERNAL_H
#define POSTRIDER_IO_SERVE_INTERNAL_H

#include "worker/core/err.h"

struct MHD_Connection;

#define CLEANUP(f) __attribute__((cleanup(f)))

/* Whether a guarded route may be answered: 0, or the status to refuse with (401 or 403).
 * `token` NULL = none configured; `method` as in serve_route. */
unsigned serve_guard(const char *token, struct MHD_Connection *c, unsigned method);

/* Opens the listening socket of "host:port". The caller owns *ret_fd. */
int serve_listen(const char *text, int *ret_fd, struct err *err);

/* "127.0.0.1:8025" or "[::1]:8025" of a bound socket; the caller owns *ret_address. */
int serve_listen_address(int fd, char **ret_address, int *ret_port);

/* For CLEANUP: closes what is not negative. */
void serve_close_fd(int *fd);

#endif
