/* Asks and cannot read the answer. */
#include "tests/unit/badplugins/base.h"

static int ask(const void *self, const struct provider_question *q, struct provider_req *req)
{
    return base_build(self, q->msg, req);
}

const struct provider *provider_entry(void)
{
    static struct provider table = BASE_TABLE("half_ask");

    table.ask = ask;
    return &table;
}
