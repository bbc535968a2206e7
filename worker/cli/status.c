#include "worker/cli/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "worker/cli/print.h"
#include "worker/cli/table.h"
#include "worker/cli/words.h"

/* What needs somebody comes first. */
static const struct {
    const char *state, *title;
} columns[] = {
    {"failed", "failed"},         {"unknown", "unknown"},  {"sending", "sending"},
    {"pending", "waiting"},       {"expired", "expired"},  {"canceled", "canceled"},
    {"suppressed", "suppressed"}, {"sent", "with vendor"},
};
enum { COLUMNS = sizeof(columns) / sizeof(columns[0]) };

static int64_t count_of(const json_t *counts, const char *kind, const char *state)
{
    int64_t sum = 0;
    size_t i;
    json_t *c;

    json_array_foreach (counts, i, c) {
        if ((!kind || strcmp(member_text(c, "kind"), kind) == 0) &&
            strcmp(member_text(c, "state"), state) == 0)
            sum += member_number(c, "count");
    }
    return sum;
}

static void count_row(struct table *t, const json_t *counts, const char *kind)
{
    table_cell(t, kind ? kind : "all");
    for (int i = 0; i < COLUMNS; i++)
        table_number(t, count_of(counts, kind, columns[i].state));
}

/* Takes the table. */
static void print_section(const char *title, struct table *t)
{
    puts(title);
    table_print(t, stdout);
    table_free(t);
}

static void print_counts(const json_t *counts)
{
    struct table *t = table_new("lrrrrrrrr");
    const char *last = "";
    size_t i;
    json_t *c;

    table_cell(t, "kind");
    for (int k = 0; k < COLUMNS; k++)
        table_cell(t, columns[k].title);
    json_array_foreach (counts, i, c) {
        if (strcmp(member_text(c, "kind"), last) == 0)
            continue; /* ordered by kind */
        last = member_text(c, "kind");
        count_row(t, counts, last);
    }
    count_row(t, counts, NULL);
    print_section("messages", t);
}

static void print_lanes(const json_t *lanes)
{
    struct table *t = table_new("ll");
    size_t i;
    json_t *lane;

    json_array_foreach (lanes, i, lane) {
        const json_t *kinds = json_object_get(lane, "kinds");
        int64_t ms = member_number(lane, "oldest_due_ms");

        for (size_t k = 0; k < json_array_size(kinds); k++) {
            table_cell(t, json_string_value(json_array_get(kinds, k)));
            table_cell(t, ms < 0 ? "nothing is due" : words_duration(ms).text);
        }
    }
    print_section("\noldest due message has waited", t);
}

static void print_workers(const json_t *workers)
{
    struct table *t;
    size_t i;
    json_t *w;

    if (json_array_size(workers) == 0) {
        puts("\nworkers\n  none: start one with postrider worker --config FILE");
        return;
    }
    t = table_new("llrll");
    json_array_foreach (workers, i, w) {
        char process[32];
        bool alive = member_true(w, "alive");

        snprintf(process, sizeof(process), "pid %" PRId64, member_number(w, "pid"));
        table_cell(t, member_text(w, "host"));
        table_cell(t, process);
        table_number(t, member_number(w, "in_air"));
        table_cell(t, "in the air");
        table_cell(t, !alive ? "silent" : member_true(w, "draining") ? "draining" : "alive");
    }
    print_section("\nworkers", t);
}

static void print_providers(const json_t *providers)
{
    struct table *t;
    size_t i;
    json_t *p;

    if (json_array_size(providers) == 0)
        return;
    t = table_new("lll");
    json_array_foreach (providers, i, p) {
        struct words ago = words_duration(member_number(p, "seen_ago_ms"));
        char text[80];

        snprintf(text, sizeof(text), "declared %s ago", ago.text);
        table_cell(t, member_text(p, "name"));
        table_cell(t, member_text(p, "plugin"));
        table_cell(t, text);
    }
    print_section("\nproviders", t);
}

static void print_trouble(const json_t *status)
{
    const json_t *claims = json_object_get(status, "claims");

    if (member_number(claims, "over_lease") > 0)
        printf("\n%" PRId64 " claims with %" PRId64 " messages are over their lease, the oldest by "
               "%s: a worker died or stands still; the sweep takes them\n",
               member_number(claims, "over_lease"), member_number(claims, "over_lease_messages"),
               words_duration(member_number(claims, "most_over_ms")).text);
    if (json_is_false(json_object_get(status, "adopted")))
        puts("\nthis is not the adopted database: nothing is sent from it; see postrider adopt "
             "--help");
}

void status_print(const json_t *status)
{
    print_counts(json_object_get(status, "counts"));
    print_lanes(json_object_get(status, "lanes"));
    print_workers(json_object_get(status, "workers"));
    print_providers(json_object_get(status, "providers"));
    print_trouble(status);
}

void status_print_line(const json_t *status)
{
    const json_t *counts = json_object_get(status, "counts");

    printf("%s", member_text(status, "at"));
    for (int i = 0; i < COLUMNS; i++)
        printf("  %s %" PRId64, columns[i].title, count_of(counts, NULL, columns[i].state));
    putchar('\n');
}
