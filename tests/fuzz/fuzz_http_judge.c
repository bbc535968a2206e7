/* Any reply to the http plugin, under settings that use every kind of rule. Whatever a vendor
 * answers, the plugin keeps the rules of the border, and an acceptance has its proof (R6).
 * Input: settings, complete, status (2), then Retry-After up to a NUL, then the body. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/plugin.h"
#include "worker/engine/plugin_host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const settings[] = {
    "{\"url\":\"http://h/\",\"accepted\":{\"status\":[200,202],\"id\":\"/id\"}}",
    "{\"url\":\"http://h/\",\"key_header\":\"K\",\"accepted\":{\"status\":200,\"match\":{\"/a/0\":"
    "[\"x\",1,null]},\"id\":\"/a~1b/1/c\"},\"opted_out\":[{\"status\":400,\"match\":{\"/"
    "code\":7}}],"
    "\"rejected\":[404,{\"status\":[200],\"match\":{\"\":[\"no\",[1]]}}],\"throttled\":[503],"
    "\"held\":[{\"status\":[200,500],\"match\":{\"/h\":true}}],\"not_taken\":[502],\"error\":"
    "\"/code\",\"detail\":\"/m/0\",\"dedup\":{\"window_s\":9,\"duplicate\":{\"status\":409,"
    "\"match\":{\"/code\":1},\"id\":\"\"}}}",
    "{\"url\":\"http://h/\",\"accepted\":{\"status\":[200],\"id\":\"\",\"id_optional\":true}}",
};
enum { SETTINGS = sizeof(settings) / sizeof(settings[0]) };

static struct plugin plugins[SETTINGS];

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void open_all(void)
{
    for (size_t i = 0; i < SETTINGS && !plugins[i].api; i++) {
        struct provider_report report = {0};

        plugins[i].api = provider_entry();
        check(plugins[i].api->open(&plugin_host, settings[i], &report, &plugins[i].self) == 0);
        plugins[i].api->describe(plugins[i].self, &plugins[i].caps);
    }
}

static void check_verdict(const struct plugin *p, const struct provider_reply *r,
                          const struct plugin_verdict *v)
{
    check(v->fault == NULL);
    check((unsigned)v->outcome < PROVIDER_OUTCOME_MAX_);
    if (!r->complete || r->status < 200)
        check(v->outcome == PROVIDER_UNKNOWN);
    if (v->outcome == PROVIDER_ACCEPTED) {
        check(r->status == 200 || r->status == 202 || r->status == 409);
        check(v->id || p->caps.answers_without_id);
    }
    check(!v->opt_out || v->outcome == PROVIDER_REJECTED);
    check(v->retry_after_ms >= -1 && v->retry_after_ms <= INT64_C(604800000));
    check(!v->detail || (strlen(v->detail) <= 256 && !strpbrk(v->detail, "\r\n\t\x1b")));
    check(!v->code || (strlen(v->code) <= 64 && !strpbrk(v->code, "\r\n\t\x1b")));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plugin_verdict v = {0};
    char *text;

    if (size < 4)
        return 0;
    open_all();
    text = malloc(size - 4 + 2);
    check(text != NULL);
    memcpy(text, data + 4, size - 4);
    text[size - 4] = text[size - 3] = '\0';

    size_t header_len = strlen(text), used = header_len + 1 < size - 4 ? header_len + 1 : size - 4;
    const struct provider_header header = {"retry-after", text};
    struct provider_reply reply = {
        .status = (data[2] << 8 | data[3]) % 700,
        .complete = data[1] % 8 != 0,
        .headers = &header,
        .headers_count = 1,
        .body = text + used,
        .body_len = size - 4 - used,
    };
    plugin_judge(&plugins[data[0] % SETTINGS], &reply, 1700000000, &v);
    check_verdict(&plugins[data[0] % SETTINGS], &reply, &v);
    plugin_verdict_clear(&v);
    free(text);
    return 0;
}
