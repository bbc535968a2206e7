/* Round trip of the http plugin's escaping (D14, H1): whatever stands in a message, the JSON body
 * has the same members and a form the same fields, and each reads back as what was put in; no
 * header is added or broken. Input: recipient, sender, text, meta value, ended by NULs. */
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/plugin.h"
#include "worker/engine/plugin_host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const settings[] = {
    "{\"url\":\"http://h/"
    "{{recipient}}?q={{body}}\",\"headers\":{\"X\":\"{{sender}}\"},\"accepted\":"
    "{\"status\":200,\"id\":\"/id\"},\"body\":{\"a\":\"{{recipient}}\",\"b\":\"<{{body}}>\","
    "\"c\":[\"{{meta.m}}\"],\"d\":\"{{body}}\"}}",
    "{\"url\":\"http://h/\",\"encoding\":\"form\",\"accepted\":{\"status\":200,\"id\":\"/id\"},"
    "\"body\":{\"a\":\"{{recipient}}\",\"d\":\"{{body}}\"}}",
};

static void check(bool holds)
{
    if (!holds)
        abort();
}

static const struct plugin *opened(size_t i)
{
    static struct plugin plugins[2];
    struct provider_report report = {0};

    if (!plugins[i].api) {
        plugins[i].api = provider_entry();
        plugins[i].name = (char *)"http";
        check(plugins[i].api->open(&plugin_host, settings[i], &report, &plugins[i].self) == 0);
    }
    return &plugins[i];
}

static bool is_text(const char *s)
{
    json_t *string = json_string(s);

    json_decref(string);
    return string != NULL;
}

static bool is_line(const char *s)
{
    for (const unsigned char *p = (const unsigned char *)s; *p; p++)
        if ((*p < ' ' && *p != '\t') || *p == 0x7f)
            return false;
    return true;
}

static void check_json(const struct provider_msg *m, const struct plugin_request *r)
{
    json_t *root = json_loadb(r->body, r->body_len, JSON_REJECT_DUPLICATES, NULL);
    const char *inside = json_string_value(json_object_get(root, "b"));

    check(json_object_size(root) == 4);
    check(strcmp(json_string_value(json_object_get(root, "a")), m->recipient) == 0);
    check(strcmp(json_string_value(json_object_get(root, "d")), m->body) == 0);
    check(strlen(inside) == strlen(m->body) + 2);
    check(memcmp(inside + 1, m->body, strlen(m->body)) == 0);
    check(json_array_size(json_object_get(root, "c")) == 1);
    json_decref(root);
    check(strncmp(r->url, "http://h/", 9) == 0 && !strchr(r->url + 9, '/'));
    check(r->headers_count == (m->sender ? 2 : 1));
    if (m->sender)
        check(strcmp(r->headers[0].value, m->sender) == 0);
}

/* One field, decoded by hand; returns what follows. */
static const char *check_field(const char *p, const char *name, const char *wanted)
{
    check(strncmp(p, name, strlen(name)) == 0);
    for (p += strlen(name); *p && *p != '&'; wanted++) {
        char pair[3] = {0};

        if (*p != '%') {
            check(*p++ == *wanted);
            continue;
        }
        memcpy(pair, p + 1, 2);
        check((char)strtoul(pair, NULL, 16) == *wanted);
        p += 3;
    }
    check(*wanted == '\0');
    return p;
}

static void check_form(const struct provider_msg *m, const struct plugin_request *r)
{
    const char *p = check_field(r->body, "a=", m->recipient);

    check(*p == '&');
    check(*check_field(p + 1, "d=", m->body) == '\0');
    check(r->headers_count == 1);
}

static void run(const struct provider_msg *m)
{
    bool text = is_text(m->recipient) && is_text(m->body);
    struct plugin_request request = {0};
    int r = plugin_build(opened(0), m, &request, NULL);

    check((r == 0) == (text && (!m->sender || is_line(m->sender))));
    if (r == 0)
        check_json(m, &request);
    check(plugin_build(opened(1), m, &request, NULL) == 0);
    check_form(m, &request);
    plugin_request_clear(&request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(1, size + 4), *part[4];
    json_t *meta;

    check(text != NULL);
    if (size > 0)
        memcpy(text, data, size);
    part[0] = text;
    for (int i = 1; i < 4; i++)
        part[i] = part[i - 1] + strlen(part[i - 1]) + 1;
    /* Four strings need four ends; calloc gave them beyond the input. */
    meta = json_pack("{s:s*}", "m", is_text(part[3]) ? part[3] : NULL);
    char *meta_json = json_dumps(meta, 0);
    struct provider_msg m = {.key = "k",
                             .recipient = part[0],
                             .kind = "otp",
                             .body = part[2],
                             .body_len = strlen(part[2]),
                             .meta_json = meta_json,
                             .sender = *part[1] ? part[1] : NULL};
    run(&m);
    json_decref(meta);
    free(meta_json);
    free(text);
    return 0;
}
