#include "worker/cli/proof.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/provider.h"
#include "worker/cli/words.h"
#include "worker/engine/config.h"
#include "worker/engine/plugin.h"

static void say(json_t *lines, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(json_t *lines, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    json_array_append_new(lines, json_string(text));
    free(text);
}

static void say_dedup(json_t *lines, const struct provider_caps *caps)
{
    if (caps->dedup == PROVIDER_DEDUP_NONE)
        say(lines, "cannot de-duplicate: a request sent twice is two messages");
    else
        say(lines, "de-duplicates: knows a key for %s and %s",
            words_duration(caps->dedup_window_ms).text,
            caps->dedup == PROVIDER_DEDUP_REPLAY ? "repeats its first answer"
                                                 : "refuses the repeat");
}

static void say_ask(json_t *lines, const struct provider_caps *caps)
{
    static const char *const by[] = {"", "our key", "id", "number, time and text"};
    struct words delay = words_duration(caps->ask_delay_ms);

    if (caps->ask == PROVIDER_ASK_NONE || caps->ask > PROVIDER_ASK_BY_TEXT) {
        say(lines, "cannot be asked what became of a message");
        return;
    }
    if (caps->ask == PROVIDER_ASK_BY_ID) {
        say(lines,
            "can be asked by its own id only: no help where the id was lost with the answer");
    } else {
        say(lines, "can be asked what became of a message, by %s", by[caps->ask]);
        say(lines, "a look-up shows a taken message %s%s; then \"never seen\" %s",
            caps->ask_delay_ms > 0 ? "after " : "", caps->ask_delay_ms > 0 ? delay.text : "at once",
            caps->absence_proves ? "proves that it was not taken" : "proves nothing");
    }
    if (caps->ask_window_ms > 0)
        say(lines, "it can be looked up for %s", words_duration(caps->ask_window_ms).text);
    if (caps->asks_per_minute > 0)
        say(lines, "allows %" PRIu32 " look-ups a minute", caps->asks_per_minute);
}

static void say_receipts(json_t *lines, const struct provider_caps *caps,
                         const struct proof_receipts *r)
{
    const char *how = caps->receipts == PROVIDER_RECEIPTS_SIGNED
                          ? "signed"
                          : "unsigned: the token in their address is the guard";

    if (caps->receipts == PROVIDER_RECEIPTS_NONE)
        say(lines, "sends no receipts: whether a message arrived is not learnt");
    else if (r->url)
        say(lines, "sends receipts (%s) to %s", how, r->url);
    else
        say(lines, "would send receipts (%s), but %s %s not set", how, r->missing,
            strstr(r->missing, " and ") ? "are" : "is");
}

static void say_rest(json_t *lines, const struct provider_caps *caps)
{
    static const char *const units[] = {"", "as a time of day", "in milliseconds", "in seconds",
                                        "in minutes"};

    say(lines,
        caps->answers_without_id
            ? "may accept without an id: such a message cannot be looked up by the vendor's id"
            : "accepts with an id of its own, or it does not count as accepted");
    if (caps->several_ids)
        say(lines, "gives a long message an id for each part");
    if (caps->validity == PROVIDER_VALIDITY_NONE || caps->validity > PROVIDER_VALIDITY_MIN)
        say(lines, "is not told how long a message is of use: it may arrive late");
    else
        say(lines, "is told how long a message is of use, %s", units[caps->validity]);
    say(lines, "gets numbers as %s; its rate limit counts %s",
        caps->number == PROVIDER_NUMBER_DIGITS ? "998901234567" : "+998901234567",
        caps->limit == PROVIDER_LIMIT_SEGMENT ? "segments" : "messages");
    if (caps->worst_answer_ms > 0)
        say(lines, "says that an answer may take %s", words_duration(caps->worst_answer_ms).text);
}

json_t *proof_lines(const struct provider_caps *caps, const struct proof_receipts *receipts)
{
    json_t *lines = json_array();

    if (lines) {
        say_dedup(lines, caps);
        say_ask(lines, caps);
        say_receipts(lines, caps, receipts);
        say_rest(lines, caps);
    }
    return lines;
}

/* ---- one provider of a configuration ------------------------------------------------------- */

const char *proof_receipts_missing(const struct config *config, const struct config_provider *p)
{
    static const char *const words[] = {NULL,
                                        "receipt_token",
                                        "public_url",
                                        "receipt_token and public_url",
                                        "listen",
                                        "receipt_token and listen",
                                        "public_url and listen",
                                        "receipt_token, public_url and listen"};

    return words[(p->receipt_token ? 0 : 1) + (config->public_url ? 0 : 2) +
                 (config->listen ? 0 : 4)];
}

/* As the worker tells it the vendor, but for the token. */
static char *receipts_url(const struct config *config, const struct config_provider *p)
{
    size_t len = strlen(config->public_url);
    char *url = NULL;

    while (len > 0 && config->public_url[len - 1] == '/')
        len--;
    if (asprintf(&url, "%.*s/receipts/%s/TOKEN", (int)len, config->public_url, p->name) < 0)
        return NULL;
    return url;
}

static const char *word(const char *const *words, size_t n, uint32_t i)
{
    return i < n ? words[i] : "?";
}

static void add_caps(json_t *doc, const struct provider_caps *caps, const struct plugin *plugin)
{
    static const char *const dedups[] = {"none", "replay", "reject"};
    static const char *const asks[] = {"none", "key", "id", "text"};
    static const char *const receipts[] = {"none", "unsigned", "signed"};
    static const char *const numbers[] = {"plus", "digits"};
    static const char *const validities[] = {"none", "absolute", "ms", "s", "min"};
    static const char *const limits[] = {"message", "segment"};
    json_t *part = json_pack(
        "{s:s, s:I, s:s, s:b, s:I, s:I, s:b, s:I, s:b, s:b, s:s, s:s, s:s, s:s, s:b}", "dedup",
        word(dedups, 3, caps->dedup), "dedup_window_ms", (json_int_t)caps->dedup_window_ms, "ask",
        word(asks, 4, caps->ask), "askable", plugin_asks(plugin), "ask_delay_ms",
        (json_int_t)caps->ask_delay_ms, "ask_window_ms", (json_int_t)caps->ask_window_ms,
        "absence_proves", caps->absence_proves, "asks_per_minute",
        (json_int_t)caps->asks_per_minute, "answers_without_id", caps->answers_without_id,
        "several_ids", caps->several_ids, "receipts", word(receipts, 3, caps->receipts), "number",
        word(numbers, 2, caps->number), "validity", word(validities, 5, caps->validity), "limit",
        word(limits, 2, caps->limit), "logs_in", plugin_logs_in(plugin));

    json_object_update_missing(doc, part);
    json_decref(part);
}

json_t *proof_doc(const struct config *config, const struct config_provider *p,
                  const struct plugin *plugin)
{
    const struct provider_caps *caps = plugin_caps(plugin);
    bool had = caps->receipts != PROVIDER_RECEIPTS_NONE;
    struct proof_receipts r = {.missing = proof_receipts_missing(config, p)};
    char *url = had && !r.missing ? receipts_url(config, p) : NULL;
    json_t *doc;

    r.url = url;
    if (!r.missing)
        r.missing = "memory"; /* only when it ran out */
    doc =
        json_pack("{s:s, s:s, s:I, s:o, s:s?}", "name", p->name, "plugin", p->plugin, "timeout_ms",
                  (json_int_t)p->timeout_ms, "proves", proof_lines(caps, &r), "receipts_url", url);
    if (doc)
        add_caps(doc, caps, plugin);
    free(url);
    return doc;
}
