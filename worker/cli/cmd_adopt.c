/* postrider adopt: declares this database the one to send from (rule R12). */
#include <stdio.h>
#include <string.h>

#include "worker/cli/cli.h"
#include "worker/cli/connect.h"
#include "worker/cli/print.h"
#include "worker/io/pg.h"

struct adopt_args {
    struct cli_common common;
    bool yes;
};

static const struct cli_option options[] = {
    CLI_GROUP_ROW("options"),
    CLI_FLAG_ROW(struct adopt_args, yes, "yes", "does not ask"),
    CLI_JSON(struct adopt_args, common),
    CLI_CONNECTION(struct adopt_args, common),
    CLI_END,
};

static const struct cli_spec spec = {
    .name = "adopt",
    .usage = "[--yes] [OPTIONS]",
    .about =
        "A database that was restored, copied or promoted may hold messages that its original has\n"
        "handed over since. Workers send nothing from it until it is adopted. Do that when the\n"
        "original is stopped for good and what was handed over meanwhile is accounted for.",
    .options = options,
};

static void print_both(const char *adopted, const char *found)
{
    print_field("adopted", adopted ? adopted : "(none)");
    print_field("found", found);
}

static int refuse(void)
{
    fputs("postrider adopt: nothing was changed\n"
          "hint: say --yes once the original is stopped for good\n",
          stderr);
    return EXIT_FAILED;
}

static int report(const struct adopt_args *a, const char *adopted, const char *found, bool changed)
{
    if (a->common.json)
        return print_json_take(
            json_pack("{s:s?, s:s, s:b}", "was", adopted, "found", found, "changed", changed));
    puts(changed ? "adopted: workers send from here within seconds"
                 : "this is the adopted database: nothing to do");
    return EXIT_DONE;
}

static int decide_and_adopt(const struct adopt_args *a, struct pg_sync *pg, const char *adopted,
                            const char *found)
{
    bool same = adopted && strcmp(adopted, found) == 0;
    int code = EXIT_DONE;

    if (!a->common.json)
        print_both(adopted, found);
    if (!same && !a->yes && !print_ask("adopt the database found, and send from it?"))
        return refuse();
    if (!same)
        code = cli_query("adopt", pg, "SELECT postrider.adopt()", NULL, NULL);
    return code == EXIT_DONE ? report(a, adopted, found, !same) : code;
}

static int adopt(const struct adopt_args *a, struct pg_sync *pg)
{
    struct pg_result *r = NULL;
    int code = cli_query("adopt", pg,
                         "SELECT (SELECT identity FROM postrider.installation), "
                         "postrider.identity()",
                         NULL, &r);

    if (code == EXIT_DONE)
        code = decide_and_adopt(a, pg, pg_is_null(r, 0, 0) ? NULL : pg_text(r, 0, 0),
                                pg_text(r, 0, 1));
    pg_result_free(r);
    return code;
}

int cmd_adopt(int argc, char **argv)
{
    struct adopt_args args = {0};
    struct pg_sync *pg = NULL;
    int code = cli_parse(&spec, argc, argv, &args, NULL, NULL);

    if (code != CLI_GO)
        return code;
    code = cli_connect("adopt", &args.common, &pg);
    if (code == EXIT_DONE)
        code = adopt(&args, pg);
    pg_sync_close(pg);
    return code;
}
