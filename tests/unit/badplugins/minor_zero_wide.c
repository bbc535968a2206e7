/* Declares ABI 1.0 and a table as long as 1.1's: a rebuilt plugin that uses none of what is new. */
#include "tests/unit/badplugins/base.h"

static int receipt(const void *self, const struct provider_callback *cb,
                   struct provider_events *out)
{
    (void)self;
    (void)cb;
    (void)out;
    return 0;
}

const struct provider *provider_entry(void)
{
    static struct provider table = BASE_TABLE("minor_zero_wide");

    table.abi_minor = 0;
    table.receipt = receipt;
    return &table;
}
