/* Reads the answer to a login it cannot make. */
#include "tests/unit/badplugins/base.h"

static int login_judge(const void *self, const struct provider_reply *reply,
                       struct provider_grant *grant)
{
    (void)self;
    (void)reply;
    (void)grant;
    return 0;
}

const struct provider *provider_entry(void)
{
    static struct provider table = BASE_TABLE("half_login");

    table.login_judge = login_judge;
    return &table;
}
