/* The findings in sentences. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "worker/cli/check.h"
#include "worker/cli/print.h"
#include "worker/cli/words.h"

static void print_vendor(const json_t *p)
{
    size_t i;
    json_t *line;

    printf("\n%s (plugin %s)\n", member_text(p, "name"), member_text(p, "plugin"));
    json_array_foreach (json_object_get(p, "proves"), i, line) {
        printf("  %s\n", json_string_value(line));
    }
    printf("  a call lasts at most %s\n", words_duration(member_number(p, "timeout_ms")).text);
}

static void print_kinds(const json_t *p)
{
    size_t i;
    json_t *k;

    json_array_foreach (json_object_get(p, "kinds"), i, k) {
        printf("  %s via %s: after a timeout, %s\n", member_text(k, "kind"), member_text(p, "name"),
               member_text(k, "after_timeout"));
    }
}

static void print_database(const json_t *db)
{
    puts("\ndatabase");
    if (!json_is_object(db)) {
        puts("  not looked at: the kinds are taken as migrate makes them");
        return;
    }
    printf("  schema version %" PRId64 " of %" PRId64 "\n", member_number(db, "schema_version"),
           member_number(db, "schema_wanted"));
    if (!json_object_get(db, "durable"))
        return;
    puts(member_true(db, "adopted") ? "  adopted: messages are sent from it"
                                    : "  not adopted: nothing is sent from it");
    puts(member_true(db, "durable") ? "  what it commits survives a crash"
                                    : "  what it commits may be lost in a crash");
}

static void print_lease(const json_t *l)
{
    printf("\nlease\n  %s = call at most %s + storing %s + margin %s + %s to spare\n",
           words_duration(member_number(l, "lease_ms")).text,
           words_duration(member_number(l, "longest_call_ms")).text,
           words_duration(member_number(l, "settle_allowance_ms")).text,
           words_duration(member_number(l, "margin_ms")).text,
           words_duration(member_number(l, "spare_ms")).text);
    printf("  what a dead worker held is judged after %s at the earliest\n",
           words_duration(member_number(l, "lease_ms")).text);
}

void check_print(const json_t *doc)
{
    const json_t *providers = json_object_get(doc, "providers");
    const json_t *warnings = json_object_get(doc, "warnings");
    size_t i;
    json_t *item;

    printf("%s: read, every plugin opened\n", member_text(doc, "config"));
    json_array_foreach (providers, i, item) {
        print_vendor(item);
        print_kinds(item);
    }
    if (json_is_object(json_object_get(doc, "lease")))
        print_lease(json_object_get(doc, "lease"));
    print_database(json_object_get(doc, "database"));
    if (json_array_size(warnings) > 0)
        puts("\nwarnings");
    json_array_foreach (warnings, i, item) {
        printf("  %s\n", json_string_value(item));
    }
    if (member_true(doc, "ok"))
        puts("\nno fault found");
}
