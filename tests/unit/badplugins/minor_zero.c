/* Built for ABI 1.0: its table ends with `judge`, and what lies behind is none of the host's
 * business. */
#include "tests/unit/badplugins/base.h"

const struct provider *provider_entry(void)
{
    static struct {
        struct provider table;
    } memory = {BASE_TABLE("minor_zero")};
    unsigned char *behind = (unsigned char *)&memory.table.ask;

    memory.table.abi_minor = 0;
    memory.table.size = offsetof(struct provider, ask);
    while (behind < (unsigned char *)(&memory + 1))
        *behind++ = 0xa5;
    return &memory.table;
}
