/* postrider provider test: one real message through one provider, without a database. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "worker/cli/cli.h"
#include "worker/cli/options.h"
#include "worker/cli/print.h"
#include "worker/cli/provider.h"
#include "worker/cli/trial.h"
#include "worker/cli/words.h"
#include "worker/core/err.h"
#include "worker/core/near.h"
#include "worker/core/phone.h"
#include "worker/engine/config.h"
#include "worker/io/clock.h"

static const char command[] = "provider test";

struct test_args {
    struct cli_common common;
    const char *to, *text, *sender;
    bool dry_run, ask, yes;
};

static const struct cli_option options[] = {
    CLI_GROUP_ROW("message"),
    CLI_TEXT_ROW(struct test_args, to, "to", "NUMBER", "your own phone; required"),
    CLI_TEXT_ROW(
        struct test_args, text, "text", "TEXT",
        "\"Test message\" without it; many vendors take\nonly texts of approved templates"),
    CLI_TEXT_ROW(struct test_args, sender, "sender", "SENDER", "instead of the provider's own"),
    CLI_GROUP_ROW("options"),
    {"config", 'c', CLI_TEXT, offsetof(struct test_args, common.config), "FILE",
     "configuration that has the provider; required", 0, 0},
    {"dry-run", 'n', CLI_FLAG, offsetof(struct test_args, dry_run), NULL,
     "shows the request; nothing leaves", 0, 0},
    CLI_FLAG_ROW(struct test_args, ask, "ask",
                 "looks the message up afterwards, until the vendor\nshows it or should"),
    CLI_FLAG_ROW(struct test_args, yes, "yes", "does not ask; needed without a terminal"),
    CLI_JSON(struct test_args, common),
    CLI_END,
};

static const struct cli_spec spec = {
    .name = "provider test",
    .usage = "NAME --to NUMBER --config FILE [OPTIONS]",
    .about =
        "Sends ONE REAL MESSAGE through the provider, which may cost money, and shows the "
        "request,\n"
        "the answer and what it proved. No database is used; it is sent once and never again. All\n"
        "that comes from the provider's settings is shown as ****, except for addresses and "
        "sender.",
    .options = options,
    .more = "exit codes: 0 the vendor took it (or --dry-run), 1 it did not, or nobody knows,\n"
            "            2 usage, 3 the configuration is refused",
    .args_min = 1,
    .args_max = 1,
    .missing = "NAME",
};

/* ---- for people ---------------------------------------------------------------------------- */

static void print_request(const json_t *r)
{
    size_t i;
    json_t *h;
    char *clean = words_clean(member_text(r, "url"));

    printf("%-10s %s %s\n", "request", member_text(r, "method"), clean ? clean : "");
    free(clean);
    json_array_foreach (json_object_get(r, "headers"), i, h) {
        clean = words_clean(member_text(h, "value"));
        printf("%-10s %s: %s\n", "", member_text(h, "name"), clean ? clean : "");
        free(clean);
    }
    print_field("body", member_text(r, "body"));
}

static void print_reply(const json_t *r)
{
    int64_t status = member_number(r, "status");

    if (status > 0)
        printf("%-10s %lld%s, after %s\n", "reply", (long long)status,
               member_true(r, "complete") ? "" : ", cut off",
               words_duration(member_number(r, "ms")).text);
    else
        printf("%-10s none; %s, after %s\n", "reply", words_phase(member_text(r, "phase")),
               words_duration(member_number(r, "ms")).text);
    print_field("error", member_text(r, "error"));
    print_field("body", member_text(r, "body"));
}

static void print_verdict(const json_t *doc)
{
    const char *outcome = member_text(doc, "outcome");

    if (*outcome)
        printf("%-10s %s: %s\n", "verdict", outcome, words_outcome(outcome));
    print_field("id", member_text(doc, "id"));
    print_field("code", member_text(doc, "code"));
    print_field("detail", member_text(doc, "detail"));
    print_field("fault", member_text(doc, "fault"));
    if (member_number(doc, "retry_after_ms") > 0)
        print_field("wait", words_duration(member_number(doc, "retry_after_ms")).text);
}

static void print_lookup(const json_t *lookup)
{
    size_t i;
    json_t *id;

    if (!lookup)
        return;
    print_field("look-up", member_text(lookup, "finding"));
    json_array_foreach (json_object_get(lookup, "ids"), i, id) {
        print_field("id", json_string_value(id));
    }
    print_field("code", member_text(lookup, "code"));
    print_field("detail", member_text(lookup, "detail"));
}

static void print_trial(const struct test_args *a, const struct trial *t)
{
    const json_t *request = json_object_get(t->doc, "request");
    const json_t *login = json_object_get(t->doc, "login");
    const json_t *reply = json_object_get(t->doc, "reply");

    if (login)
        printf("%-10s %s %s\n", "login", member_text(login, "method"), member_text(login, "url"));
    if (request)
        print_request(request);
    if (reply)
        print_reply(reply);
    print_verdict(t->doc);
    print_lookup(json_object_get(t->doc, "lookup"));
    if (a->dry_run)
        puts("nothing was sent (--dry-run)");
}

/* ---- before it leaves ---------------------------------------------------------------------- */

static int find(const struct config *config, const char *name, const struct config_provider **ret)
{
    struct near near;

    *ret = config_provider_find(config, name);
    if (*ret)
        return EXIT_DONE;
    near_init(&near, name);
    for (size_t i = 0; i < config->providers_count; i++)
        near_try(&near, config->providers[i].name);
    if (near_best(&near))
        return cli_usage(command, "the configuration has no provider \"%s\"; did you mean \"%s\"?",
                         name, near_best(&near));
    return cli_usage(command, "the configuration has no provider \"%s\"", name);
}

static bool agreed(const struct test_args *a, const char *name, const struct phone *to)
{
    char question[160];

    if (a->yes)
        return true;
    snprintf(question, sizeof(question), "send one real message through %s to %s?", name, to->e164);
    if (print_ask(question))
        return true;
    fprintf(stderr, "postrider %s: nothing was sent\n", command);
    return false;
}

/* ---- afterwards ---------------------------------------------------------------------------- */

/* Until the vendor shows the message, or should have. */
static int look_up(struct trial *t, struct err *err)
{
    int64_t delay = plugin_caps(t->plugin)->ask_delay_ms, pause = delay / 8;
    int64_t until = clock_boot_ms() + delay;
    struct timespec wait;
    int rc;

    pause = pause < 500 ? 500 : pause > 10000 ? 10000 : pause;
    wait = (struct timespec){.tv_sec = pause / 1000, .tv_nsec = pause % 1000 * 1000000};
    for (;;) {
        rc = trial_ask(t, err);
        if (rc < 0 || t->finding == PROVIDER_HAS_IT || t->finding == PROVIDER_REFUSED_IT ||
            clock_boot_ms() >= until)
            return rc;
        fprintf(stderr, "not shown yet; the vendor may take %s\n", words_duration(delay).text);
        nanosleep(&wait, NULL);
    }
}

static int send_it(const struct test_args *a, struct trial *t, struct err *err)
{
    bool taken;
    int rc = trial_send(t, err);

    if (rc < 0)
        return cli_fail(command, EXIT_FAILED, err);
    taken = t->outcome == OUTCOME_ACCEPTED;
    if (a->ask && t->sent) {
        rc = look_up(t, err);
        if (rc < 0)
            cli_fail(command, EXIT_FAILED, err);
        /* It may settle what the answer left open, and nothing else. */
        if (rc == 0 && t->outcome == OUTCOME_UNKNOWN)
            taken = t->finding == PROVIDER_HAS_IT;
    }
    return taken ? EXIT_DONE : EXIT_FAILED;
}

static int go(const struct test_args *a, struct trial *t, const struct phone *to, struct err *err)
{
    if (!a->dry_run && !agreed(a, t->conf->name, to))
        return EXIT_FAILED;
    if (trial_login(t, a->dry_run, err) < 0)
        return cli_fail(command, EXIT_FAILED, err);
    if (trial_build(t, to->e164, a->text ? a->text : "Test message", a->sender, err) < 0)
        return cli_fail(command, EXIT_FAILED, err);
    return a->dry_run ? EXIT_DONE : send_it(a, t, err);
}

static int run(const struct test_args *a, const struct config_provider *p, const struct phone *to)
{
    struct trial t = {0};
    struct err err = ERR_INIT;
    int code;

    if (trial_open(&t, a->common.config, p, &err) < 0) {
        err_prefix(&err, "provider \"%s\"", p->name);
        code = cli_fail(command, EXIT_CONFIG, &err);
    } else if (a->ask && !plugin_asks(t.plugin)) {
        code = cli_usage(command, "--ask: this vendor cannot be asked what became of a message");
    } else {
        code = go(a, &t, to, &err);
        if (a->common.json)
            print_json_take(json_incref(t.doc));
        else
            print_trial(a, &t);
    }
    trial_done(&t);
    err_done(&err);
    return code;
}

static int check_words(const struct test_args *a, struct phone *to)
{
    enum phone_fault fault;

    if (!a->common.config)
        return cli_usage(command, "--config is missing");
    if (!a->to)
        return cli_usage(command, "--to is missing");
    fault = phone_normalize(a->to, strlen(a->to), to);
    if (fault != PHONE_OK)
        return cli_usage(command, "--to is no phone number: %s", phone_fault_text(fault));
    if (a->text && !*a->text)
        return cli_usage(command, "--text is empty");
    if (a->dry_run && (a->ask || a->yes))
        return cli_usage(command, "--dry-run goes with neither --ask nor --yes");
    if (!a->dry_run && !a->yes && isatty(STDIN_FILENO) != 1)
        return cli_usage(command, "this sends a real message: say --yes, or --dry-run to see it");
    return EXIT_DONE;
}

int provider_test(int argc, char **argv)
{
    struct test_args args = {0};
    const struct config_provider *p = NULL;
    struct config *config = NULL;
    struct err err = ERR_INIT;
    struct phone to;
    char **names = NULL;
    int n = 0, code = cli_parse(&spec, argc, argv, &args, &names, &n);

    if (code != CLI_GO)
        return code;
    code = check_words(&args, &to);
    if (code == EXIT_DONE && config_load(args.common.config, &config, &err) < 0)
        code = cli_fail(command, EXIT_CONFIG, &err);
    if (code == EXIT_DONE)
        code = find(config, names[0], &p);
    if (code == EXIT_DONE)
        code = run(&args, p, &to);
    config_free(config);
    err_done(&err);
    return code;
}
