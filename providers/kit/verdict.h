/* verdict.h - judging by table: a vendor's codes and what each proves.
 *
 * Most of a plugin is such a table. Rows are read in order; the first that fits decides. */
#ifndef POSTRIDER_KIT_VERDICT_H
#define POSTRIDER_KIT_VERDICT_H

#include <stdbool.h>
#include <stddef.h>

#include "providers/provider.h"

enum verdict_mark {
    VERDICT_PLAIN = 0,
    VERDICT_OPT_OUT,   /* REJECTED, and the number wants nothing from us any more */
    VERDICT_DUPLICATE, /* ACCEPTED: the vendor has this key already */
    VERDICT_LOGIN,     /* the token was refused */
};

struct verdict_row {
    const char *code; /* the vendor's code as text; NULL: any */
    int status;       /* HTTP status; 0: any; 4 or 5: that whole class */
    enum provider_outcome outcome;
    enum verdict_mark mark;
};

/* The row for (status, code), NULL when none fits. `code` may be NULL: only rows with any code. */
const struct verdict_row *verdict_find(const struct verdict_row *rows, size_t n, int status,
                                       const char *code);
/* Says it all to the host: outcome and mark of the row (NULL: UNKNOWN), code and detail (may be
 * NULL). Returns 0 or a negative errno of the host. */
int verdict_say(const struct provider_host *host, struct provider_verdict *v,
                const struct verdict_row *row, const char *code, const char *detail);

/* What HTTP itself says where the vendor's own code does not: 401/402/403 HELD, 404/405/410 HELD
 * (wrong address), 429 THROTTLED, 400/413/415/422 and other 4xx but 408 and 409 REJECTED, all else
 * UNKNOWN. */
enum provider_outcome verdict_of_status(int status);

#endif
