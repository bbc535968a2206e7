/* vendor_call.h - one call to a vendor, waited for: the worker's own HTTP, with its phases and
 * permits, for commands without a worker. Blocking. */
#ifndef POSTRIDER_CLI_VENDOR_CALL_H
#define POSTRIDER_CLI_VENDOR_CALL_H

#include "providers/provider.h"
#include "worker/io/http.h"

struct config_provider;
struct err;
struct plugin_request;
struct vendor_line;

/* `conf` is borrowed until vendor_line_close. 0, -ENOMEM or -EIO. */
int vendor_line_open(const struct config_provider *conf, struct vendor_line **ret, struct err *err);
struct vendor_line *vendor_line_close(struct vendor_line *line); /* NULL is fine; returns NULL */

/* Makes the call and returns when it has ended: `done` was called once with the result, which is
 * borrowed. Or -Exxx: nothing left, and `done` was not called. */
int vendor_line_call(struct vendor_line *line, const struct plugin_request *built,
                     http_done_fn *done, void *arg, struct err *err);

/* A result as plugins read it; borrowed from it. */
struct provider_reply vendor_line_reply(const struct http_result *r);

#endif
