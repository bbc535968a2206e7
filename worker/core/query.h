/* query.h - a query or a form body taken apart into decoded parameters.
 *
 * The rules are those of application/x-www-form-urlencoded as browsers parse it (WHATWG URL,
 * "urlencoded parsing"): '&' separates, the first '=' ends the name, '+' is a blank, %XX is a byte,
 * a '%' without two hex digits stands for itself, empty pieces are skipped, a piece without '=' has
 * an empty value. Order and repetitions are kept. A parameter whose name or value decodes to
 * something with a NUL is dropped: what follows the NUL would be hidden from whoever reads it.
 * Bytes are not checked to be UTF-8.
 *
 *     struct query q;
 *     int r = query_split(text, len, &q);
 *     ... q.params[i].name, .value ...
 *     query_done(&q);
 *
 * Pure. */
#ifndef POSTRIDER_CORE_QUERY_H
#define POSTRIDER_CORE_QUERY_H

#include <stddef.h>

#include "providers/provider.h"

enum { QUERY_PARAMS_MAX = 256 };

struct query {
    struct provider_param *params; /* NULL when there is none; names and values lie in `text` */
    size_t count;
    char *text;
};

/* Splits `len` bytes (text may be NULL when len is 0), without the leading '?'. *ret is set in any
 * case, and empty after a failure: -E2BIG for more than QUERY_PARAMS_MAX parameters, -ENOMEM. */
int query_split(const char *text, size_t len, struct query *ret);

/* The first parameter of that name, NULL when there is none. Borrowed. */
const char *query_find(const struct query *query, const char *name);

/* Frees and empties; of a zeroed struct, too. */
void query_done(struct query *query);

#endif
