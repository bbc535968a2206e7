/* Refuses its settings, twice; the first word counts. */
#include "tests/unit/badplugins/base.h"

static int refuse(const struct provider_host *host, const char *settings_json,
                  struct provider_report *report, void **ret_self)
{
    (void)settings_json;
    (void)ret_self;
    host->refuse(report, "body.to", "is too short", "write more");
    host->refuse(report, "url", "is ugly", NULL);
    return -22;
}

const struct provider *provider_entry(void)
{
    static struct provider table = BASE_TABLE("picky_open");

    table.open = refuse;
    return &table;
}
