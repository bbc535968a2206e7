/* Refuses its settings without a word. */
#include "tests/unit/badplugins/base.h"

static int refuse(const struct provider_host *host, const char *settings_json,
                  struct provider_report *report, void **ret_self)
{
    (void)host;
    (void)settings_json;
    (void)report;
    (void)ret_self;
    return -22;
}

const struct provider *provider_entry(void)
{
    static struct provider table = BASE_TABLE("mute_open");

    table.open = refuse;
    return &table;
}
