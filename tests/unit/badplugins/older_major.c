/* Built for the major version before this one. */
#include "tests/unit/badplugins/base.h"

const struct provider *provider_entry(void)
{
    static struct provider table = BASE_TABLE("older_major");

    table.abi_major = PROVIDER_ABI_MAJOR - 1;
    return &table;
}
