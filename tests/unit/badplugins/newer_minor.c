/* Built for a minor version this host does not have. */
#include "tests/unit/badplugins/base.h"

const struct provider *provider_entry(void)
{
    static struct provider table = BASE_TABLE("newer_minor");

    table.abi_minor = PROVIDER_ABI_MINOR + 1;
    return &table;
}
