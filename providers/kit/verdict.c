#include "providers/kit/verdict.h"

#include <string.h>

static bool status_fits(const struct verdict_row *row, int status)
{
    if (row->status >= 1 && row->status <= 9)
        return status / 100 == row->status;
    return row->status == 0 || row->status == status;
}

static bool code_fits(const struct verdict_row *row, const char *code)
{
    return !row->code || (code && strcmp(row->code, code) == 0);
}

const struct verdict_row *verdict_find(const struct verdict_row *rows, size_t n, int status,
                                       const char *code)
{
    for (size_t i = 0; i < n; i++)
        if (status_fits(&rows[i], status) && code_fits(&rows[i], code))
            return &rows[i];
    return NULL;
}

int verdict_say(const struct provider_host *host, struct provider_verdict *v,
                const struct verdict_row *row, const char *code, const char *detail)
{
    int r = 0;

    if (row && row->mark == VERDICT_LOGIN)
        host->verdict_login(v); /* instead of an outcome */
    else
        host->verdict(v, row ? row->outcome : PROVIDER_UNKNOWN);
    if (row && row->mark == VERDICT_OPT_OUT)
        host->verdict_opt_out(v);
    if (row && row->mark == VERDICT_DUPLICATE)
        host->verdict_duplicate(v);
    if (code)
        r = host->verdict_code(v, code, strlen(code));
    if (r == 0 && detail)
        r = host->verdict_detail(v, detail, strlen(detail));
    return r;
}

enum provider_outcome verdict_of_status(int status)
{
    switch (status) {
    case 401:
    case 402:
    case 403:
    case 404:
    case 405:
    case 407:
    case 410:
    case 426:
        return PROVIDER_HELD;
    case 429:
        return PROVIDER_THROTTLED;
    case 408: /* what was sent may have been read */
    case 409: /* an earlier try may be in work */
        return PROVIDER_UNKNOWN;
    default:
        return status >= 400 && status < 500 ? PROVIDER_REJECTED : PROVIDER_UNKNOWN;
    }
}
