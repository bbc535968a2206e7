/* postrider retry: queues messages again that ended, or that nobody knows the end of. */
#include <string.h>

#include "worker/cli/bulk.h"
#include "worker/cli/cli.h"

struct retry_args {
    struct cli_common common;
    const char *state, *kind, *reason;
    int64_t limit;
    bool yes, ask, assume_sent;
};

static const struct cli_option options[] = {
    CLI_GROUP_ROW("which"),
    CLI_TEXT_ROW(struct retry_args, state, "state", "STATE",
                 "failed, expired or unknown: all of them"),
    {"kind", 'k', CLI_TEXT, offsetof(struct retry_args, kind), "NAME", "with --state: of this kind",
     0, 0},
    CLI_INT_ROW(struct retry_args, limit, "limit", "N", 1, INT64_MAX,
                "with --state: at most so many, the oldest first"),
    CLI_GROUP_ROW("instead of sending, for unknown ones"),
    CLI_FLAG_ROW(struct retry_args, ask, "ask", "have the vendor asked about them now"),
    CLI_FLAG_ROW(struct retry_args, assume_sent, "assume-sent",
                 "take them for sent, on your word; needs --reason"),
    CLI_GROUP_ROW("why"),
    CLI_TEXT_ROW(struct retry_args, reason, "reason", "TEXT",
                 "kept in the operator's log; needed for unknown ones,\n"
                 "which may have been sent already"),
    CLI_FLAG_ROW(struct retry_args, yes, "yes", "needed with --state unknown"),
    CLI_GROUP_ROW("output"),
    CLI_JSON(struct retry_args, common),
    CLI_CONNECTION(struct retry_args, common),
    CLI_END,
};

static const struct cli_spec spec = {
    .name = "retry",
    .usage = "[--reason TEXT] ID...\n--state STATE --kind NAME [--reason TEXT] [--limit N]",
    .about =
        "Queues failed, expired, canceled or unknown messages again, with a fresh life and under\n"
        "the same key, due at once whatever their run_at was. Sending an unknown one again may\n"
        "double it: look into the vendor's log first, then say why.",
    .options = options,
    .args_max = -1,
};

static const struct bulk_answer answers[] = {
    {"pending", "queued again", true},
    {"not needed: pending", "not needed: it is waiting", true},
    {"not needed: sending", "not needed: it is being handed over", true},
    {"not needed: sent", "not needed: it was handed to the vendor", false},
    {"not needed: failed", "not needed: it failed, without a doubt", false},
    {"not needed: expired", "not needed: it expired, without a doubt", false},
    {"not needed: canceled", "not needed: it was canceled", false},
    {"asking", "the vendor is asked", true},
    {"cannot be asked", "refused: the vendor cannot be asked about it", false},
    {"sent", "taken for sent", true},
    {"not needed: suppressed", "refused: the recipient opted out", false},
    {NULL, NULL, false},
};

static int check_words(const struct retry_args *a, char **ids, int n)
{
    bool unknown = a->state && strcmp(a->state, "unknown") == 0;

    if (a->ask && a->assume_sent)
        return cli_usage("retry", "either --ask or --assume-sent, not both");
    if ((a->ask || a->assume_sent) && a->state && !unknown)
        return cli_usage("retry", "--ask and --assume-sent are for --state unknown");
    if (a->assume_sent && (!a->reason || !*a->reason))
        return cli_usage("retry", "--assume-sent settles doubts on your word: say --reason TEXT");
    if (!a->state && n == 0)
        return cli_usage("retry", "ID or --state is missing");
    if (a->state && n > 0)
        return cli_usage("retry", "either ids or --state, not both");
    if (!a->state && (a->kind || a->limit > 0))
        return cli_usage("retry", "--kind and --limit go with --state");
    if (!a->state)
        return bulk_check_ids("retry", ids, n);
    if (!unknown && strcmp(a->state, "failed") != 0 && strcmp(a->state, "expired") != 0)
        return cli_usage("retry", "--state is \"%s\", must be failed, expired or unknown",
                         a->state);
    if (!a->kind)
        return cli_usage("retry", "--kind is missing");
    if (unknown && !a->ask && (!a->reason || !*a->reason || !a->yes))
        return cli_usage("retry", "unknown messages may have been sent already: say --reason TEXT "
                                  "and --yes to send them again");
    return EXIT_DONE;
}

/* The same rows, another function: each returns a word of `answers`. */
struct deed {
    const char *one, *batch;
};

#define DEED(call_one, call_many)                                                                  \
    {                                                                                              \
        "SELECT " call_one,                                                                        \
            "SELECT p.id, " call_many " FROM (SELECT id FROM postrider.message WHERE kind = $1 "   \
            "AND state = $2::postrider.state AND id > $3::uuid AND id < $6::uuid AND $5::text "    \
            "IS NOT DISTINCT FROM $5 ORDER BY id LIMIT $4::bigint) AS p"                           \
    }

static const struct deed *deed_of(const struct retry_args *a)
{
    static const struct deed send =
                                 DEED("postrider.retry($1::uuid, $2)", "postrider.retry(p.id, $5)"),
                             ask = DEED("postrider.ask_now($1::uuid) WHERE $2::text IS NOT "
                                        "DISTINCT FROM $2",
                                        "postrider.ask_now(p.id)"),
                             assume = DEED("postrider.assume_sent($1::uuid, $2)",
                                           "postrider.assume_sent(p.id, $5)");

    return a->ask ? &ask : a->assume_sent ? &assume : &send;
}

int cmd_retry(int argc, char **argv)
{
    struct retry_args args = {0};
    struct bulk bulk;
    char **ids;
    int n, code = cli_parse(&spec, argc, argv, &args, &ids, &n);

    if (code != CLI_GO)
        return code;
    code = check_words(&args, ids, n);
    if (code != EXIT_DONE)
        return code;
    bulk = (struct bulk){.command = "retry",
                         .one = deed_of(&args)->one,
                         .batch = deed_of(&args)->batch,
                         .answers = answers,
                         .kind = args.kind,
                         .state = args.state,
                         .reason = args.reason,
                         .limit = args.limit > 0 ? args.limit : INT64_MAX,
                         .json = args.common.json};
    return bulk_run(&bulk, &args.common, ids, n);
}
