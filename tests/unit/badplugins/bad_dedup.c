/* A capability out of range. */
#include "tests/unit/badplugins/base.h"

static void describe(const void *self, struct provider_caps *ret)
{
    (void)self;
    ret->dedup = 99;
    ret->dedup_window_ms = 1000;
}

const struct provider *provider_entry(void)
{
    static struct provider table = BASE_TABLE("bad_dedup");

    table.describe = describe;
    return &table;
}
