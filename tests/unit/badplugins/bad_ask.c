/* Claims a look-up that ABI 1.0 does not have. */
#include "tests/unit/badplugins/base.h"

static void describe(const void *self, struct provider_caps *ret)
{
    (void)self;
    ret->ask = 1;
}

const struct provider *provider_entry(void)
{
    static struct provider table = BASE_TABLE("bad_ask");

    table.describe = describe;
    return &table;
}
