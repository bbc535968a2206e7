/* Any bytes as a configuration: refused with words and a line that exists, or read into values
 * that keep the table's ranges and settings that are still JSON. */
#include <errno.h>
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "worker/core/err.h"
#include "worker/engine/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void check_refusal(const struct err *err, const char *text, size_t len)
{
    const char *line = err->message ? strstr(err->message, "fuzz: line ") : NULL;
    unsigned long lines = 1;

    check(err->message && strncmp(err->message, "fuzz: ", 6) == 0);
    for (size_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    if (line == err->message)
        check(strtoul(line + strlen("fuzz: line "), NULL, 10) <= lines);
}

static void check_ranges(const struct config_setting *table, const void *base)
{
    for (; table->name; table++) {
        int64_t value;

        if (table->type != CONFIG_INT)
            continue;
        memcpy(&value, (const char *)base + table->offset, sizeof(value));
        check(value >= table->min && value <= table->max);
    }
}

static void check_config(const struct config *c)
{
    check(c->providers_count > 0);
    check_ranges(config_settings, c);
    for (size_t i = 0; i < c->providers_count; i++) {
        const struct config_provider *p = &c->providers[i];
        json_t *settings = json_loads(p->settings_json, 0, NULL);

        check(json_is_object(settings) && p->name && p->plugin);
        check_ranges(config_provider_settings, p);
        check(config_provider_find(c, p->name) == p);
        json_decref(settings);
    }
    check(config_reload_check(c, c, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct err err = ERR_INIT;
    struct config *c = NULL;
    int r;

    /* The fuzzer must not read whatever files it can spell. */
    if (memmem(data, size, "file", 4) || memmem(data, size, "\\u", 2))
        return 0;
    r = config_parse(text, size, "fuzz", &c, &err);
    check(r == 0 || r == -EINVAL);
    if (r < 0)
        check_refusal(&err, text, size);
    else
        check_config(c);
    config_free(c);
    err_done(&err);
    return 0;
}
