/* postrider cancel: stops messages that have not left. */
#include "worker/cli/bulk.h"
#include "worker/cli/cli.h"

struct cancel_args {
    struct cli_common common;
    const char *kind;
    bool all_pending, yes;
};

static const struct cli_option options[] = {
    CLI_GROUP_ROW("which"),
    {"kind", 'k', CLI_TEXT, offsetof(struct cancel_args, kind), "NAME",
     "with --all-pending: of this kind", 0, 0},
    CLI_FLAG_ROW(struct cancel_args, all_pending, "all-pending",
                 "everything of the kind that waits when it begins"),
    CLI_FLAG_ROW(struct cancel_args, yes, "yes", "needed with --all-pending"),
    CLI_GROUP_ROW("output"),
    CLI_JSON(struct cancel_args, common),
    CLI_CONNECTION(struct cancel_args, common),
    CLI_END,
};

static const struct cli_spec spec = {
    .name = "cancel",
    .usage = "ID...\n--kind NAME --all-pending --yes",
    .about =
        "Stops messages that wait. One whose request may be on its way is too late, and says so\n"
        "with exit code 1. One with an attempt in doubt is not tried again, but stays unknown:\n"
        "it may have been sent.",
    .options = options,
    .args_max = -1,
};

static const struct bulk_answer answers[] = {
    {"canceled", "canceled", true},
    {"too late", "too late: it is with the vendor, on its way, or over", false},
    {"unknown", "no further attempt, but an earlier one may have been sent", false},
    {NULL, NULL, false},
};

static int check_words(const struct cancel_args *a, char **ids, int n)
{
    if (!a->all_pending && n == 0)
        return cli_usage("cancel", "ID or --all-pending is missing");
    if (a->all_pending && n > 0)
        return cli_usage("cancel", "either ids or --all-pending, not both");
    if (!a->all_pending && a->kind)
        return cli_usage("cancel", "--kind goes with --all-pending");
    if (!a->all_pending)
        return bulk_check_ids("cancel", ids, n);
    if (!a->kind)
        return cli_usage("cancel", "--kind is missing");
    if (!a->yes)
        return cli_usage("cancel",
                         "--all-pending stops every waiting message of kind \"%s\": say "
                         "--yes",
                         a->kind);
    return EXIT_DONE;
}

int cmd_cancel(int argc, char **argv)
{
    struct cancel_args args = {0};
    struct bulk bulk;
    char **ids;
    int n, code = cli_parse(&spec, argc, argv, &args, &ids, &n);

    if (code != CLI_GO)
        return code;
    code = check_words(&args, ids, n);
    if (code != EXIT_DONE)
        return code;
    bulk = (struct bulk){
        .command = "cancel",
        .one = "SELECT postrider.cancel($1::uuid) WHERE $2::text IS NULL",
        .batch = "SELECT p.id, postrider.cancel(p.id) FROM (SELECT id FROM postrider.message "
                 "WHERE kind = $1 AND state = $2::postrider.state AND id > $3::uuid "
                 "AND id < $6::uuid AND $5::text IS NULL ORDER BY id LIMIT $4::bigint) AS p",
        .answers = answers,
        .kind = args.kind,
        .state = "pending",
        .limit = INT64_MAX,
        .json = args.common.json};
    return bulk_run(&bulk, &args.common, ids, n);
}
