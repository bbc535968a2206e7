/* postrider show: what happened to one message, in order.
 *
 * A body is hidden unless asked for: it may be a code, or a letter to somebody. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/cli/cli.h"
#include "worker/cli/connect.h"
#include "worker/cli/print.h"
#include "worker/cli/words.h"
#include "worker/core/err.h"
#include "worker/io/pg.h"

struct show_args {
    struct cli_common common;
    bool body, no_body;
};

static const struct cli_option options[] = {
    CLI_GROUP_ROW("output"),
    CLI_FLAG_ROW(struct show_args, body, "body", "the text and meta as they are, codes included"),
    CLI_FLAG_ROW(struct show_args, no_body, "no-body", "nothing of the text"),
    CLI_JSON(struct show_args, common),
    CLI_CONNECTION(struct show_args, common),
    CLI_END,
};

static const struct cli_spec spec = {
    .name = "show",
    .usage = "[OPTIONS] ID",
    .about =
        "Shows one message: where it is, why, and everything that happened to it. Of its text\n"
        "every digit is masked, and of a one-time code nothing is shown but the length; --body\n"
        "shows it.",
    .options = options,
    .args_min = 1,
    .args_max = 1,
    .missing = "ID",
};

/* clang-format off */
#define ISO(at) "to_char(" at " AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
#define MS(span) "(extract(epoch FROM " span ") * 1000)::bigint"

/* $1 is the id. Roles see different parts, so the statement is put together from them. */
#define EVENTS_BEGIN \
    "WITH m AS (SELECT id, created_at, kind, state, receipt, recipient, sender, attempts, calls," \
    "  doubts, provider, vendor_id, reason, run_at, expires_at, changed_at, key" \
    "  FROM postrider.messages WHERE id = $1::uuid), events AS (" \
    " SELECT created_at AS at, 0 AS n, 'created' AS event, NULL::text AS provider," \
    "  NULL::text AS outcome, NULL::text AS phase, NULL::text AS code, NULL::text AS detail," \
    "  NULL::text AS vendor_id, NULL::bigint AS took_ms, NULL::text AS who, NULL::text AS reason," \
    "  NULL::text AS status, NULL::text AS part, NULL::text AS result, NULL::timestamptz AS vendor_at" \
    "  FROM m" \
    " UNION ALL SELECT a.started_at, 1, 'attempt', a.provider, a.outcome::text, a.phase, a.code," \
    "  a.detail, a.vendor_id, " MS("a.ended_at - a.started_at") ", NULL, NULL, NULL, NULL, NULL, NULL" \
    "  FROM postrider.attempts AS a WHERE a.message_id = $1::uuid" \
    " UNION ALL SELECT m.changed_at, 3, m.state::text, m.provider, NULL, NULL, NULL, NULL," \
    "  m.vendor_id, NULL, NULL, m.reason, NULL, NULL, NULL, NULL" \
    "  FROM m WHERE m.state <> 'pending' OR m.calls > 0" \
    " UNION ALL SELECT r.at, 4, 'receipt', r.provider, NULL, NULL, r.code, r.detail, r.vendor_id," \
    "  NULL, NULL, NULL, r.status, r.part, coalesce(r.result, 'waits'), r.vendor_at" \
    "  FROM postrider.receipts AS r WHERE r.message_id = $1::uuid"
#define EVENTS_LOG \
    " UNION ALL SELECT o.at, 2, o.action, NULL, NULL, NULL, NULL, NULL, NULL, NULL, o.who," \
    "  o.reason, NULL, NULL, NULL, NULL FROM postrider.operator_log AS o WHERE o.message_id = $1::uuid"
#define EVENTS_END \
    ") SELECT json_build_object('id', m.id, 'kind', m.kind, 'state', m.state," \
    " 'reason', m.reason, 'receipt', m.receipt, 'recipient', m.recipient, 'sender', m.sender," \
    " 'provider', m.provider, 'vendor_id', m.vendor_id, 'attempts', m.attempts," \
    " 'calls', m.calls, 'doubts', m.doubts, 'key', m.key," \
    " 'created_at', " ISO("m.created_at") ", 'changed_at', " ISO("m.changed_at") "," \
    " 'due_at', " ISO("m.run_at") ", 'due_in_ms', " MS("m.run_at - clock_timestamp()") "," \
    " 'expires_at', " ISO("m.expires_at") "," \
    " 'expires_in_ms', " MS("m.expires_at - clock_timestamp()") "," \
    " 'timeline', (SELECT json_agg(json_strip_nulls(json_build_object('at', " ISO("e.at") "," \
    "  'after_ms', " MS("e.at - m.created_at") ", 'event', e.event, 'provider', e.provider," \
    "  'outcome', e.outcome, 'phase', e.phase, 'code', e.code, 'detail', e.detail," \
    "  'vendor_id', e.vendor_id, 'took_ms', e.took_ms, 'who', e.who, 'reason', e.reason," \
    "  'status', e.status, 'part', e.part, 'result', e.result, 'vendor_at', " ISO("e.vendor_at") "))" \
    "  ORDER BY e.at, e.n) FROM events AS e)) FROM m"

#define RIGHTS \
    "SELECT has_table_privilege('postrider.operator_log', 'SELECT')," \
    " has_column_privilege('postrider.messages', 'body', 'SELECT')"

/* $2: as it is; else masked, or not at all. Digits of other scripts are digits too. */
#define BODY \
    "SELECT length(m.body), postrider.segments(m.body), CASE WHEN $2::boolean THEN m.body" \
    " WHEN k.lane = 0 OR m.kind LIKE 'otp%' THEN NULL" \
    " ELSE regexp_replace(translate(m.body, '٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹', repeat('*', 20))," \
    "  '[0-9]|\\d', '*', 'g') END, CASE WHEN $2::boolean THEN m.meta END" \
    " FROM postrider.messages AS m LEFT JOIN postrider.kind AS k ON k.name = m.kind" \
    " WHERE m.id = $1::uuid"
/* clang-format on */

/* ---- reading ------------------------------------------------------------------------------- */

static int read_rights(struct pg_sync *pg, bool *ret_log, bool *ret_body)
{
    struct pg_result *r = NULL;
    int code = cli_query("show", pg, RIGHTS, NULL, &r);

    if (code == EXIT_DONE) {
        *ret_log = pg_bool(r, 0, 0);
        *ret_body = pg_bool(r, 0, 1);
    }
    pg_result_free(r);
    return code;
}

static int read_body(struct pg_sync *pg, const char *id, bool plain, json_t *message)
{
    struct pg_params *p = pg_params_new();
    struct pg_result *r = NULL;
    int code;

    pg_add_text(p, id);
    pg_add_bool(p, plain);
    code = cli_query("show", pg, BODY, p, &r);
    if (code == EXIT_DONE) {
        json_object_set_new(message, "characters", json_integer(pg_i64(r, 0, 0)));
        json_object_set_new(message, "segments", json_integer(pg_i64(r, 0, 1)));
        if (!pg_is_null(r, 0, 2))
            json_object_set_new(message, plain ? "body" : "body_masked",
                                json_string(pg_text(r, 0, 2)));
        if (!pg_is_null(r, 0, 3))
            json_object_set_new(message, "meta", json_loads(pg_text(r, 0, 3), 0, NULL));
    }
    pg_result_free(r);
    return code;
}

static int read_message(struct pg_sync *pg, const char *id, bool log, json_t **ret)
{
    struct pg_params *p = pg_params_new();
    struct pg_result *r = NULL;
    struct err err = ERR_INIT;
    int code;

    pg_add_text(p, id);
    code = cli_query("show", pg, log ? EVENTS_BEGIN EVENTS_LOG EVENTS_END : EVENTS_BEGIN EVENTS_END,
                     p, &r);
    if (code == EXIT_DONE && pg_rows(r) == 0) {
        err_set(&err, 0, "no message %s", id);
        err_hint(&err, "it may belong to another database, or have been removed by retention");
        code = cli_fail("show", EXIT_FAILED, &err);
    } else if (code == EXIT_DONE) {
        *ret = json_loads(pg_text(r, 0, 0), 0, NULL);
        if (!*ret)
            code = cli_fail("show", EXIT_FAILED, &err);
    }
    pg_result_free(r);
    err_done(&err);
    return code;
}

/* ---- for people ---------------------------------------------------------------------------- */

static void print_part(const char *lead, const char *text, const char *tail)
{
    char *clean = *text ? words_clean(text) : NULL;

    if (clean)
        printf("%s%s%s", lead, clean, tail);
    free(clean);
}

/* "2 of 3 parts arrived" belongs to the receipt. */
static bool is_of_receipt(const char *reason)
{
    return strstr(reason, " parts arrived") != NULL;
}

/* What the state's own words say already is not said twice. */
static const char *reason_of(const json_t *object)
{
    const char *reason = member_text(object, "reason");

    return strcmp(reason, "outcome unknown") == 0 || strcmp(reason, "canceled") == 0 ||
                   is_of_receipt(reason)
               ? ""
               : reason;
}

static const char *status_words(const char *status)
{
    if (strcmp(status, "in_transit") == 0)
        return "in transit";
    if (strcmp(status, "undelivered") == 0)
        return "not delivered";
    return strcmp(status, "rejected") == 0 ? "refused later" : status;
}

static void print_receipt(const json_t *e)
{
    const char *result = member_text(e, "result");

    print_part("receipt from ", member_text(e, "provider"), "");
    print_part(", part ", member_text(e, "part"), "");
    print_part(": ", status_words(member_text(e, "status")), "");
    print_part(", code ", member_text(e, "code"), "");
    print_part(", ", member_text(e, "detail"), "");
    print_part(", vendor id ", member_text(e, "vendor_id"), "");
    print_part(", at ", member_text(e, "vendor_at"), " by its clock");
    if (strcmp(result, "waits") == 0)
        printf(", not applied yet");
    else if (strcmp(result, "applied") != 0)
        print_part(", ", strcmp(result, "no news") == 0 ? "nothing new" : result, "");
}

static void print_event(const json_t *e)
{
    const char *event = member_text(e, "event");
    const char *outcome = member_text(e, "outcome");
    int64_t after = member_number(e, "after_ms");
    struct words offset = {""};

    if (after > 0)
        offset = words_duration(after);
    printf("  %s  %10s  ", member_text(e, "at"), offset.text);
    if (strcmp(event, "receipt") == 0) {
        print_receipt(e);
        putchar('\n');
        return;
    }
    if (strcmp(event, "attempt") == 0)
        printf("attempt");
    else
        print_part("", *member_text(e, "who") ? event : words_state(event), "");
    print_part(", by ", member_text(e, "who"), "");
    print_part(strcmp(event, "attempt") == 0 ? " at " : ", ", member_text(e, "provider"), "");
    print_part(": ", *outcome ? words_outcome(outcome) : "", "");
    print_part(" (", words_phase(member_text(e, "phase")), ")");
    print_part(", code ", member_text(e, "code"), "");
    print_part(", ", member_text(e, "detail"), "");
    print_part(", vendor id ", member_text(e, "vendor_id"), "");
    print_part(", ", reason_of(e), "");
    if (member_number(e, "took_ms") > 0)
        printf(", took %s", words_duration(member_number(e, "took_ms")).text);
    putchar('\n');
}

static void print_when(const char *label, const json_t *m, const char *at, const char *in)
{
    int64_t ms = member_number(m, in);

    if (!*member_text(m, at))
        return;
    printf("%-10s %s", label, member_text(m, at));
    if (ms > 0)
        printf(", in %s", words_duration(ms).text);
    putchar('\n');
}

static void print_text(const json_t *m)
{
    const char *body = member_text(m, "body"), *masked = member_text(m, "body_masked");
    int64_t characters = member_number(m, "characters");

    if (characters < 0)
        return;
    print_field("text", *body ? body : *masked ? masked : "(hidden; --body shows it)");
    printf("%-10s %" PRId64 " characters, %" PRId64 " segment%s\n", "length", characters,
           member_number(m, "segments"), member_number(m, "segments") == 1 ? "" : "s");
}

static void print_receipt_field(const json_t *m)
{
    const char *receipt = member_text(m, "receipt"), *reason = member_text(m, "reason");

    if (strcmp(receipt, "none") == 0)
        return;
    if (is_of_receipt(reason))
        printf("%-10s %s (%s)\n", "receipt", receipt, reason);
    else
        print_field("receipt", receipt);
}

static void print_plain(const json_t *m)
{
    const char *state = member_text(m, "state");
    json_t *event;
    size_t i;

    print_field("message", member_text(m, "id"));
    if (strcmp(member_text(m, "id"), member_text(m, "key")) != 0)
        print_field("key", member_text(m, "key"));
    print_field("kind", member_text(m, "kind"));
    print_field("to", member_text(m, "recipient"));
    print_field("sender", member_text(m, "sender"));
    print_field("state", words_state(state));
    print_field("reason", reason_of(m));
    print_field("provider", member_text(m, "provider"));
    print_field("vendor id", member_text(m, "vendor_id"));
    print_receipt_field(m);
    if (strcmp(state, "pending") == 0) {
        print_when("next due", m, "due_at", "due_in_ms");
        print_when("expires", m, "expires_at", "expires_in_ms");
    }
    print_text(m);
    puts("\ntimeline");
    json_array_foreach (json_object_get(m, "timeline"), i, event) {
        print_event(event);
    }
    if (member_number(m, "doubts") > 0)
        puts(strcmp(state, "sent") == 0
                 ? "\nan earlier attempt may have been taken as well: a duplicate is possible"
                 : "\nan attempt may have been taken by the vendor; nobody knows yet");
}

static int show(const struct show_args *a, struct pg_sync *pg, const char *id)
{
    bool log = false, may_body = false;
    json_t *message = NULL;
    int code = read_rights(pg, &log, &may_body);

    if (code == EXIT_DONE && a->body && !may_body) {
        fputs("postrider show: this role may not read bodies\n", stderr);
        return EXIT_FAILED;
    }
    if (code == EXIT_DONE)
        code = read_message(pg, id, log, &message);
    if (code == EXIT_DONE && may_body && !a->no_body)
        code = read_body(pg, id, a->body, message);
    if (code == EXIT_DONE && a->common.json)
        return print_json_take(message);
    if (code == EXIT_DONE)
        print_plain(message);
    json_decref(message);
    return code;
}

int cmd_show(int argc, char **argv)
{
    struct show_args args = {0};
    struct pg_sync *pg = NULL;
    char **operands;
    int n, code = cli_parse(&spec, argc, argv, &args, &operands, &n);

    if (code != CLI_GO)
        return code;
    if (args.body && args.no_body)
        return cli_usage("show", "--body and --no-body exclude each other");
    if (!words_is_uuid(operands[0]))
        return cli_usage("show", "\"%s\" is no message id", operands[0]);
    code = cli_connect("show", &args.common, &pg);
    if (code == EXIT_DONE)
        code = show(&args, pg, operands[0]);
    pg_sync_close(pg);
    return code;
}
