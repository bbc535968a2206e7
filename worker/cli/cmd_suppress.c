/* postrider suppress: the list of numbers that do not want to hear from us. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/cli/cli.h"
#include "worker/cli/connect.h"
#include "worker/cli/print.h"
#include "worker/cli/table.h"
#include "worker/cli/verbs.h"
#include "worker/core/phone.h"
#include "worker/io/pg.h"

struct suppress_args {
    struct cli_common common;
    const char *kind_of; /* class */
    const char *reason;
    int64_t limit;
};

enum { LIST_LIMIT = 1000, LIST_MAX = 1000000 };

static const char about[] =
    "Numbers that do not want to hear from us: class marketing (no campaigns) or all (nothing).\n"
    "People enter it by a STOP word, vendors by reporting an opt-out; START takes such entries\n"
    "off again, but not those added here.\n\n"
    "In this version the list is kept, but sending does not look at it yet: it will be checked\n"
    "when a message is claimed. Until then leave such numbers out of what you send.";

#define CLASS_ROW(help) CLI_TEXT_ROW(struct suppress_args, kind_of, "class", "CLASS", help)

static const struct cli_option add_options[] = {
    CLI_GROUP_ROW("options"),
    CLASS_ROW("marketing or all (all)"),
    CLI_TEXT_ROW(struct suppress_args, reason, "reason", "TEXT", "kept with the number"),
    CLI_JSON(struct suppress_args, common),
    CLI_CONNECTION(struct suppress_args, common),
    CLI_END,
};

static const struct cli_option remove_options[] = {
    CLI_GROUP_ROW("options"),
    CLASS_ROW("only this entry; default: both"),
    CLI_JSON(struct suppress_args, common),
    CLI_CONNECTION(struct suppress_args, common),
    CLI_END,
};

static const struct cli_option list_options[] = {
    CLI_GROUP_ROW("options"),
    CLASS_ROW("only this one"),
    CLI_INT_ROW(struct suppress_args, limit, "limit", "N", 1, LIST_MAX,
                "newest entries shown (1000)"),
    CLI_JSON(struct suppress_args, common),
    CLI_CONNECTION(struct suppress_args, common),
    CLI_END,
};

static const struct cli_spec add_spec = {.name = "suppress add",
                                         .usage = "NUMBER... [--class CLASS] [--reason TEXT]",
                                         .about = about,
                                         .options = add_options,
                                         .args_min = 1,
                                         .args_max = -1,
                                         .missing = "NUMBER"};
static const struct cli_spec remove_spec = {.name = "suppress remove",
                                            .usage = "NUMBER... [--class CLASS]",
                                            .about = about,
                                            .options = remove_options,
                                            .more = "exit code 1 when a number was not on it",
                                            .args_min = 1,
                                            .args_max = -1,
                                            .missing = "NUMBER"};
static const struct cli_spec list_spec = {.name = "suppress list",
                                          .usage = "[NUMBER...] [--class CLASS] [--limit N]",
                                          .about = about,
                                          .options = list_options,
                                          .args_max = -1};

/* ---- words --------------------------------------------------------------------------------- */

static int check_class(const char *command, const char *name)
{
    if (!name || strcmp(name, "marketing") == 0 || strcmp(name, "all") == 0)
        return EXIT_DONE;
    return cli_usage(command, "--class is \"%s\", must be marketing or all", name);
}

/* All of them, before any is acted on. The caller frees *ret. */
static int read_numbers(const char *command, char **words, int n, struct phone **ret)
{
    struct phone *list = calloc((size_t)n + 1, sizeof(*list));

    for (int i = 0; list && i < n; i++) {
        enum phone_fault fault = phone_normalize(words[i], strlen(words[i]), &list[i]);

        if (fault != PHONE_OK) {
            free(list);
            return cli_usage(command, "\"%s\" is no phone number: %s", words[i],
                             phone_fault_text(fault));
        }
    }
    *ret = list;
    return list ? EXIT_DONE : EXIT_FAILED;
}

/* ---- add and remove ------------------------------------------------------------------------ */

struct change {
    const struct cli_spec *spec;
    const char *sql; /* one column: whether, or how many rows, changed */
    const char *done, *idle;
    bool idle_fails;
};

static struct pg_params *params_of(const struct change *c, const struct suppress_args *a,
                                   const struct phone *number)
{
    struct pg_params *p = pg_params_new();

    pg_add_text(p, number->e164);
    if (c->idle_fails) {
        pg_add_text(p, a->kind_of);
    } else {
        pg_add_text(p, a->kind_of ? a->kind_of : "all");
        pg_add_text(p, a->reason);
    }
    return p;
}

static int change_one(const struct change *c, const struct suppress_args *a, struct pg_sync *pg,
                      const struct phone *number, json_t *results)
{
    struct pg_result *r = NULL;
    int code = cli_query(c->spec->name, pg, c->sql, params_of(c, a, number), &r);
    bool changed = code == EXIT_DONE && pg_i64(r, 0, 0) > 0;

    pg_result_free(r);
    if (code != EXIT_DONE)
        return code;
    if (results)
        json_array_append_new(
            results, json_pack("{s:s, s:b}", "recipient", number->e164, "changed", changed));
    else
        printf("%s  %s\n", number->e164, changed ? c->done : c->idle);
    return changed || !c->idle_fails ? EXIT_DONE : EXIT_FAILED;
}

static int change_all(const struct change *c, const struct suppress_args *a,
                      const struct phone *numbers, int n)
{
    json_t *results = a->common.json ? json_array() : NULL;
    struct pg_sync *pg = NULL;
    int code = cli_connect(c->spec->name, &a->common, &pg), one;

    for (int i = 0; pg && i < n; i++) {
        one = change_one(c, a, pg, &numbers[i], results);
        code = one > code ? one : code;
    }
    if (results && pg)
        print_json_take(json_pack("{s:O}", "results", results));
    json_decref(results);
    pg_sync_close(pg);
    return code;
}

static int change(const struct change *c, int argc, char **argv)
{
    struct suppress_args args = {0};
    struct phone *numbers = NULL;
    char **words = NULL;
    int n = 0, code = cli_parse(c->spec, argc, argv, &args, &words, &n);

    if (code != CLI_GO)
        return code;
    code = check_class(c->spec->name, args.kind_of);
    if (code == EXIT_DONE)
        code = read_numbers(c->spec->name, words, n, &numbers);
    if (code == EXIT_DONE)
        code = change_all(c, &args, numbers, n);
    free(numbers);
    return code;
}

static int add(int argc, char **argv)
{
    static const struct change c = {
        &add_spec, "SELECT postrider.suppress($1, $2, 'operator', $3)::int", "suppressed",
        "is on the list already: its first reason stays", false};

    return change(&c, argc, argv);
}

static int take_off(int argc, char **argv)
{
    static const struct change c = {&remove_spec, "SELECT postrider.unsuppress($1, $2)",
                                    "taken off the list", "was not on the list", true};

    return change(&c, argc, argv);
}

/* ---- list ---------------------------------------------------------------------------------- */

#define LIST                                                                                       \
    "SELECT recipient, class, source, reason, "                                                    \
    "to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') "                            \
    "FROM postrider.suppression WHERE ($1::text IS NULL OR class = $1) "                           \
    "AND (cardinality($3::text[]) = 0 OR recipient = ANY ($3)) "                                   \
    "ORDER BY at DESC, recipient LIMIT $2::bigint"

static int print_list(const struct suppress_args *a, const struct pg_result *r)
{
    json_t *list = a->common.json ? json_array() : NULL;
    struct table *t = table_new("lllll");

    for (size_t i = 0; i < pg_rows(r); i++) {
        for (int column = 0; !list && column < 5; column++)
            table_cell(t, pg_text(r, i, column));
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:s?, s:s}", "recipient", pg_text(r, i, 0), "class",
                            pg_text(r, i, 1), "source", pg_text(r, i, 2), "reason",
                            pg_is_null(r, i, 3) ? NULL : pg_text(r, i, 3), "at", pg_text(r, i, 4)));
    }
    if (!list && pg_rows(r) == 0)
        puts("no entry");
    else if (!list)
        table_print(t, stdout);
    table_free(t);
    return list ? print_json_take(json_pack("{s:o}", "suppressed", list)) : EXIT_DONE;
}

static int list_from(const struct suppress_args *a, const struct phone *numbers, int n)
{
    const char **texts = calloc((size_t)n + 1, sizeof(*texts));
    struct pg_params *p = pg_params_new();
    struct pg_result *r = NULL;
    struct pg_sync *pg = NULL;
    int code = texts ? cli_connect("suppress list", &a->common, &pg) : EXIT_FAILED;

    for (int i = 0; texts && i < n; i++)
        texts[i] = numbers[i].e164;
    pg_add_text(p, a->kind_of);
    pg_add_i64(p, a->limit);
    pg_add_text_array(p, texts, (size_t)n);
    if (code == EXIT_DONE)
        code = cli_query("suppress list", pg, LIST, p, &r);
    else
        pg_params_free(p);
    if (code == EXIT_DONE)
        code = print_list(a, r);
    pg_result_free(r);
    pg_sync_close(pg);
    free(texts);
    return code;
}

static int list(int argc, char **argv)
{
    struct suppress_args args = {.limit = LIST_LIMIT};
    struct phone *numbers = NULL;
    char **words = NULL;
    int n = 0, code = cli_parse(&list_spec, argc, argv, &args, &words, &n);

    if (code != CLI_GO)
        return code;
    code = check_class("suppress list", args.kind_of);
    if (code == EXIT_DONE)
        code = read_numbers("suppress list", words, n, &numbers);
    if (code == EXIT_DONE)
        code = list_from(&args, numbers, n);
    free(numbers);
    return code;
}

int cmd_suppress(int argc, char **argv)
{
    static const struct verb verbs[] = {
        {"add", add, "puts numbers on the list"},
        {"remove", take_off, "takes them off"},
        {"list", list, "shows the newest entries, or those of some numbers"},
        {"load", NULL, "adds numbers from a file"},
        {NULL, NULL, NULL},
    };

    return verbs_run(verbs, about, argc, argv);
}
