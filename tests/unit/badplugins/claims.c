/* Claims what its settings say, "name=value" a line, and has no function for any of it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/badplugins/base.h"

static char *claims;

static int claims_open(const struct provider_host *host, const char *settings_json,
                       struct provider_report *report, void **ret_self)
{
    claims = strdup(settings_json);
    return claims ? base_open(host, settings_json, report, ret_self) : -ENOMEM;
}

static void claims_close(void *self)
{
    (void)self;
    free(claims);
}

static long long claimed(const char *name)
{
    const char *at = strstr(claims, name);

    return at ? strtoll(at + strlen(name), NULL, 10) : 0;
}

static void describe(const void *self, struct provider_caps *ret)
{
    (void)self;
    ret->ask = (uint32_t)claimed(" ask=");
    ret->absence_proves = claimed(" absence_proves=") != 0;
    ret->ask_delay_ms = claimed(" ask_delay_ms=");
    ret->ask_window_ms = claimed(" ask_window_ms=");
    ret->asks_per_minute = (uint32_t)claimed(" asks_per_minute=");
    ret->receipts = (uint32_t)claimed(" receipts=");
    ret->receipts_by_id = claimed(" receipts_by_id=") != 0;
    ret->number = (uint32_t)claimed(" number=");
    ret->validity = (uint32_t)claimed(" validity=");
    ret->limit = (uint32_t)claimed(" limit=");
    ret->worst_answer_ms = claimed(" worst_answer_ms=");
}

const struct provider *provider_entry(void)
{
    static struct provider table = BASE_TABLE("claims");

    table.open = claims_open;
    table.close = claims_close;
    table.describe = describe;
    return &table;
}
