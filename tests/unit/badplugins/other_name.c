/* The file and the plugin disagree on the name. */
#include "tests/unit/badplugins/base.h"

const struct provider *provider_entry(void)
{
    static struct provider table = BASE_TABLE("somebody_else");

    table.size = sizeof(table);
    return &table;
}
