/* postrider send: queues one message, and waits for its outcome when asked to. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "worker/cli/body.h"
#include "worker/cli/cli.h"
#include "worker/cli/connect.h"
#include "worker/cli/print.h"
#include "worker/cli/words.h"
#include "worker/io/clock.h"
#include "worker/io/pg.h"

enum { POLL_NS = 100 * 1000 * 1000, WAIT_MAX_S = 31 * 86400 };

struct send_args {
    struct cli_common common;
    const char *kind, *dedup_key, *key, *run_at, *expires_at, *sender, *meta;
    int64_t wait_s; /* -1: no */
};

static const struct cli_option options[] = {
    CLI_GROUP_ROW("message"),
    {"kind", 'k', CLI_TEXT, offsetof(struct send_args, kind), "NAME",
     "otp, transactional (default), campaign or your own", 0, 0},
    CLI_TEXT_ROW(struct send_args, sender, "sender", "NAME", "instead of the provider's default"),
    CLI_TEXT_ROW(struct send_args, run_at, "run-at", "TIME",
                 "not before: \"2031-05-01 09:00+05\", \"tomorrow 09:00\""),
    CLI_TEXT_ROW(struct send_args, expires_at, "expires-at", "TIME",
                 "not after; default: the kind's time to live"),
    CLI_TEXT_ROW(struct send_args, dedup_key, "dedup-key", "TEXT",
                 "a key seen before queues nothing and gives the\nfirst message's id"),
    CLI_TEXT_ROW(struct send_args, key, "key", "UUID",
                 "the idempotency key vendors see; default: the id"),
    CLI_TEXT_ROW(struct send_args, meta, "meta", "JSON", "an object for the provider's template"),
    CLI_GROUP_ROW("output"),
    CLI_INT_ROW(struct send_args, wait_s, "wait", "SECONDS", 0, WAIT_MAX_S,
                "follows the message so long; exits 1 unless it was\nhanded to a vendor"),
    CLI_JSON(struct send_args, common),
    CLI_CONNECTION(struct send_args, common),
    CLI_END,
};

static const struct cli_spec spec = {
    .name = "send",
    .usage = "[OPTIONS] TO TEXT\n[OPTIONS] TO -",
    .about =
        "Queues one message and prints its id. \"-\" reads the text from standard input, which\n"
        "keeps codes out of the shell's history and the process list.",
    .options = options,
    .more = "example: postrider send +998901234567 'Kodingiz: 482913' --kind otp --wait 10",
    .args_min = 2,
    .args_max = 2,
    .missing = "TO or TEXT",
};

static int check_words(const struct send_args *a)
{
    json_error_t error;
    json_t *meta;
    bool object;

    if (a->key && !words_is_uuid(a->key))
        return cli_usage("send", "--key is \"%s\", must be a UUID", a->key);
    if (!a->meta)
        return EXIT_DONE;
    meta = json_loads(a->meta, JSON_REJECT_DUPLICATES, &error);
    object = json_is_object(meta);
    if (!meta)
        cli_usage("send", "--meta is not JSON: %s", error.text);
    else if (!object)
        cli_usage("send", "--meta must be a JSON object");
    json_decref(meta);
    return object ? EXIT_DONE : EXIT_USAGE;
}

static int queue(const struct send_args *a, struct pg_sync *pg, const char *to, const char *text,
                 struct pg_result **ret)
{
    struct pg_params *p = pg_params_new();
    int code;

    pg_add_text(p, to);
    pg_add_text(p, text);
    pg_add_text(p, a->kind ? a->kind : "transactional");
    pg_add_text(p, a->key);
    pg_add_text(p, a->dedup_key);
    pg_add_text(p, a->run_at);
    pg_add_text(p, a->expires_at);
    pg_add_text(p, a->sender);
    pg_add_text(p, a->meta);
    code = cli_query("send", pg,
                     "SELECT postrider.send($1, $2, kind => $3, key => $4::uuid, dedup_key => $5, "
                     "run_at => $6::timestamptz, expires_at => $7::timestamptz, sender => $8, "
                     "meta => $9::jsonb)",
                     p, ret);
    if (code == EXIT_DONE && pg_warned(*ret))
        fputs("postrider send: this key was used before with another text or recipient; nothing "
              "new is queued\n",
              stderr);
    return code;
}

static bool is_over(const char *state)
{
    return *state && strcmp(state, "pending") != 0 && strcmp(state, "sending") != 0;
}

/* Looks until the state is final or unknown, or the time is up. *ret holds the last look. */
static int follow(const char *id, int64_t wait_s, struct pg_sync *pg, struct pg_result **ret)
{
    int64_t end = clock_boot_ms() + wait_s * 1000;
    struct timespec pause = {.tv_nsec = POLL_NS};

    for (;;) {
        struct pg_params *p = pg_params_new();
        int code;

        pg_add_text(p, id);
        code = cli_query("send", pg,
                         "SELECT state, provider, vendor_id, reason FROM postrider.messages "
                         "WHERE id = $1::uuid",
                         p, ret);
        if (code != EXIT_DONE || is_over(pg_text(*ret, 0, 0)) || clock_boot_ms() >= end)
            return code;
        pg_result_free(*ret);
        *ret = NULL;
        nanosleep(&pause, NULL);
    }
}

static json_t *text_or_null(const struct pg_result *r, int col)
{
    return pg_is_null(r, 0, col) ? json_null() : json_string(pg_text(r, 0, col));
}

/* The last look, in words or JSON; the exit code says whether a vendor has it. */
static int tell(const struct send_args *a, const char *id, const struct pg_result *r)
{
    const char *state = pg_text(r, 0, 0);
    int code = EXIT_DONE;

    if (a->common.json) {
        code = print_json_take(json_pack("{s:s, s:s, s:o, s:o, s:o}", "id", id, "state", state,
                                         "provider", text_or_null(r, 1), "vendor_id",
                                         text_or_null(r, 2), "reason", text_or_null(r, 3)));
    } else {
        print_field("state", words_state(state));
        print_field("provider", pg_text(r, 0, 1));
        print_field("vendor id", pg_text(r, 0, 2));
        print_field("reason", pg_text(r, 0, 3));
    }
    if (!is_over(state))
        fprintf(stderr,
                "postrider send: still %s after %" PRId64 " s; follow it with: "
                "postrider show %s\n",
                words_state(state), a->wait_s, id);
    if (strcmp(state, "sent") != 0)
        code = EXIT_FAILED;
    return code;
}

static int send_one(const struct send_args *a, struct pg_sync *pg, const char *to, const char *text)
{
    struct pg_result *queued = NULL, *seen = NULL;
    int code = queue(a, pg, to, text, &queued);

    if (code == EXIT_DONE) {
        const char *id = pg_text(queued, 0, 0);

        if (!a->common.json)
            puts(id);
        else if (a->wait_s < 0)
            code = print_json_take(json_pack("{s:s}", "id", id));
        fflush(stdout);
        if (a->wait_s >= 0)
            code = follow(id, a->wait_s, pg, &seen);
        if (code == EXIT_DONE && seen)
            code = tell(a, id, seen);
    }
    pg_result_free(seen);
    pg_result_free(queued);
    return code;
}

int cmd_send(int argc, char **argv)
{
    struct send_args args = {.wait_s = -1};
    struct pg_sync *pg = NULL;
    struct body body = {0};
    char **operands;
    int n, code = cli_parse(&spec, argc, argv, &args, &operands, &n);

    if (code != CLI_GO)
        return code;
    code = check_words(&args);
    if (code == EXIT_DONE)
        code = body_read("send", operands[1], &body);
    if (code == EXIT_DONE)
        code = cli_connect("send", &args.common, &pg);
    if (code == EXIT_DONE)
        code = send_one(&args, pg, operands[0], body.text);
    pg_sync_close(pg);
    body_done(&body);
    return code;
}
