/* De-duplicates, it says, but for no time. */
#include "tests/unit/badplugins/base.h"

static void describe(const void *self, struct provider_caps *ret)
{
    (void)self;
    ret->dedup = PROVIDER_DEDUP_REPLAY;
}

const struct provider *provider_entry(void)
{
    static struct provider table = BASE_TABLE("bad_window");

    table.describe = describe;
    return &table;
}
