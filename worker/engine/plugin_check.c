/* What a loaded file says of itself: version, table, capabilities. */
#include <errno.h>
#include <string.h>

#include "worker/core/err.h"
#include "worker/engine/plugin_host.h"

/* Version 1.0 ends with `judge`; later members are only ever appended. */
#define END_OF(member) (offsetof(struct provider, member) + sizeof(((struct provider *)0)->member))
#define SIZE_1_0       END_OF(judge)

static int check_version(const char *name, const struct provider *api, struct err *err)
{
    bool newer = api->abi_major > PROVIDER_ABI_MAJOR ||
                 (api->abi_major == PROVIDER_ABI_MAJOR && api->abi_minor > PROVIDER_ABI_MINOR);

    if (api->abi_major == PROVIDER_ABI_MAJOR && !newer)
        return 0;
    err_set(err, -ENOEXEC, "plugin \"%s\": wants ABI %u.%u, this postrider has %u.%u", name,
            api->abi_major, api->abi_minor, PROVIDER_ABI_MAJOR, PROVIDER_ABI_MINOR);
    if (newer)
        err_hint(err, "upgrade postrider, or rebuild the plugin with this postrider's provider.h");
    else
        err_hint(err, "rebuild the plugin with this postrider's provider.h");
    return -ENOEXEC;
}

/* A pair is there whole or not at all. */
static const char *missing_member(const struct provider *api)
{
    if (!api->name || !*api->name)
        return "name";
    if (!api->open)
        return "open";
    if (!api->close)
        return "close";
    if (!api->describe)
        return "describe";
    if (!api->build)
        return "build";
    if (!api->judge)
        return "judge";
    if (!api->ask != !api->ask_judge)
        return api->ask ? "ask_judge" : "ask";
    if (!api->login != !api->login_judge)
        return api->login ? "login_judge" : "login";
    return NULL;
}

int plugin_check_table(const char *name, const struct provider *api, struct provider *ret_table,
                       struct err *err)
{
    const char *missing;
    size_t size;
    int r;

    if (!api)
        return err_set(err, -ENOEXEC, "plugin \"%s\": " PROVIDER_ENTRY_SYMBOL "() gives nothing",
                       name);
    r = check_version(name, api, err); /* first: another major may mean another layout */
    if (r < 0)
        return r;
    if (api->size < SIZE_1_0) {
        err_set(err, -ENOEXEC, "plugin \"%s\": its table has %u bytes, ABI %u.%u needs %zu", name,
                api->size, api->abi_major, api->abi_minor, SIZE_1_0);
        err_hint(err, "set .size = sizeof(struct provider) and rebuild the plugin");
        return -ENOEXEC;
    }
    size = api->size < sizeof(*ret_table) ? api->size : sizeof(*ret_table);
    if (api->abi_minor == 0)
        size = SIZE_1_0; /* what lies behind is none of its members */
    *ret_table = (struct provider){0};
    memcpy(ret_table, api, size);
    missing = missing_member(ret_table);
    if (missing) {
        err_set(err, -ENOEXEC, "plugin \"%s\": member \"%s\" is missing", name, missing);
        err_hint(err, "complete and rebuild the plugin: provider.h says what ABI %u.%u asks for",
                 PROVIDER_ABI_MAJOR, PROVIDER_ABI_MINOR);
        return -ENOEXEC;
    }
    if (!strchr(name, '/') && strcmp(ret_table->name, name) != 0)
        return err_set(err, -ENOEXEC, "plugin \"%s\": the file holds plugin \"%s\"", name,
                       ret_table->name);
    return 0;
}

/* ---- capabilities --------------------------------------------------------------------------- */

static const char *wrong_dedup(const struct provider_caps *caps)
{
    if (caps->dedup > PROVIDER_DEDUP_REJECT)
        return "dedup is out of range";
    if (caps->dedup != PROVIDER_DEDUP_NONE && caps->dedup_window_ms <= 0)
        return "de-duplication without a window";
    if (caps->dedup == PROVIDER_DEDUP_NONE && caps->dedup_window_ms != 0)
        return "a window without de-duplication";
    return caps->worst_answer_ms < 0 ? "worst_answer_ms is negative" : NULL;
}

static const char *wrong_ask(const struct provider *table, const struct provider_caps *caps)
{
    if (caps->ask > PROVIDER_ASK_BY_TEXT)
        return "ask is out of range";
    if (caps->ask != PROVIDER_ASK_NONE && !table->ask)
        return "it claims a look-up and has no function for it";
    if (caps->ask_delay_ms < 0)
        return "ask_delay_ms is negative";
    if (caps->ask_window_ms < 0)
        return "ask_window_ms is negative";
    if (caps->ask_window_ms > 0 && caps->ask_window_ms <= caps->ask_delay_ms)
        return "ask_window_ms is over before ask_delay_ms";
    if (caps->ask == PROVIDER_ASK_NONE && (caps->absence_proves || caps->ask_delay_ms > 0 ||
                                           caps->ask_window_ms > 0 || caps->asks_per_minute > 0))
        return "it says how a look-up behaves and claims none";
    return NULL;
}

static const char *wrong_receipts(const struct provider *table, const struct provider_caps *caps)
{
    if (caps->receipts > PROVIDER_RECEIPTS_SIGNED)
        return "receipts is out of range";
    if (caps->receipts != PROVIDER_RECEIPTS_NONE && !table->receipt)
        return "it claims receipts and has no function for them";
    if (caps->receipts == PROVIDER_RECEIPTS_NONE && caps->receipts_by_id)
        return "receipts by id without receipts";
    return NULL;
}

static const char *wrong_words(const struct provider_caps *caps)
{
    if (caps->number > PROVIDER_NUMBER_DIGITS)
        return "number is out of range";
    if (caps->validity > PROVIDER_VALIDITY_MIN)
        return "validity is out of range";
    return caps->limit > PROVIDER_LIMIT_SEGMENT ? "limit is out of range" : NULL;
}

int plugin_check_caps(const char *name, const struct provider *table,
                      const struct provider_caps *caps, struct err *err)
{
    const char *wrong = wrong_dedup(caps);

    if (!wrong)
        wrong = wrong_ask(table, caps);
    if (!wrong)
        wrong = wrong_receipts(table, caps);
    if (!wrong)
        wrong = wrong_words(caps);
    return wrong ? err_set(err, -ENOEXEC, "plugin \"%s\": bad capabilities: %s", name, wrong) : 0;
}
