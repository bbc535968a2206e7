/* Built for another major version. */
#include "tests/unit/badplugins/base.h"

const struct provider *provider_entry(void)
{
    static struct provider table = BASE_TABLE("wrong_major");

    table.abi_major = PROVIDER_ABI_MAJOR + 1;
    return &table;
}
