/* Prints what plugins claim with given settings, for tests/conformance: a line
 * {"plugin": NAME, "settings": {…}} in, a line of capabilities out. Plugins come from
 * $POSTRIDER_PROVIDER_DIR. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/core/err.h"
#include "worker/engine/plugin.h"

static const char *word(const char *const *words, size_t n, uint32_t i)
{
    return i < n ? words[i] : "?";
}

static json_t *caps_of(const struct plugin *p)
{
    static const char *const dedup[] = {"none", "replay", "reject"};
    static const char *const ask[] = {"none", "by_key", "by_id", "by_text"};
    static const char *const receipts[] = {"none", "unsigned", "signed"};
    const struct provider_caps *c = plugin_caps(p);

    return json_pack(
        "{s:s, s:s, s:s, s:b, s:b, s:b, s:b, s:b, s:I, s:I}", "dedup",
        word(dedup, sizeof(dedup) / sizeof(dedup[0]), c->dedup), "ask",
        plugin_asks(p) ? word(ask, sizeof(ask) / sizeof(ask[0]), c->ask) : "none", "receipts",
        plugin_takes_receipts(p)
            ? word(receipts, sizeof(receipts) / sizeof(receipts[0]), c->receipts)
            : "none",
        "logs_in", plugin_logs_in(p), "answers_without_id", c->answers_without_id, "several_ids",
        c->several_ids, "receipts_by_id", c->receipts_by_id, "absence_proves", c->absence_proves,
        "window_s", (json_int_t)(c->dedup_window_ms / 1000), "ask_delay_ms",
        (json_int_t)c->ask_delay_ms);
}

static json_t *answer_to(const json_t *question)
{
    char *settings = json_dumps(json_object_get(question, "settings"), JSON_COMPACT);
    const char *name = json_string_value(json_object_get(question, "plugin"));
    struct plugin *plugin = NULL;
    struct err err = ERR_INIT;
    json_t *answer = NULL;

    if (!settings || !name)
        answer = json_pack("{s:s}", "error", "plugin or settings is missing");
    else if (plugin_open(NULL, name, settings, &plugin, &err) < 0)
        answer = json_pack("{s:s}", "error", err_text(&err));
    else
        answer = caps_of(plugin);
    plugin_close(plugin);
    err_done(&err);
    free(settings);
    return answer;
}

int main(void)
{
    json_t *question;

    while ((question = json_loadf(stdin, JSON_DISABLE_EOF_CHECK, NULL))) {
        json_t *answer = answer_to(question);

        json_decref(question);
        if (!answer || json_dumpf(answer, stdout, JSON_COMPACT) < 0)
            return 1;
        json_decref(answer);
        if (putchar('\n') == EOF || fflush(stdout) != 0)
            return 1;
    }
    return 0;
}
