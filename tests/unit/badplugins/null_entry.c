/* Has the symbol, gives nothing. */
#include "tests/unit/badplugins/base.h"

const struct provider *provider_entry(void)
{
    (void)base_open;
    (void)base_close;
    (void)base_describe;
    (void)base_build;
    (void)base_judge;
    return NULL;
}
