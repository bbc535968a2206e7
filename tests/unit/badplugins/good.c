/* Breaks nothing: the base itself loads. */
#include "tests/unit/badplugins/base.h"

const struct provider *provider_entry(void)
{
    static struct provider table = BASE_TABLE("good");

    table.size = sizeof(table);
    return &table;
}
