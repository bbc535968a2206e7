/* A member is missing. */
#include "tests/unit/badplugins/base.h"

const struct provider *provider_entry(void)
{
    static struct provider table = BASE_TABLE("no_judge");

    table.judge = NULL;
    return &table;
}
