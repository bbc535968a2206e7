/* postrider check: tests a configuration without sending anything, and says what it promises. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/provider.h"
#include "worker/cli/check.h"
#include "worker/cli/cli.h"
#include "worker/cli/connect.h"
#include "worker/cli/print.h"
#include "worker/cli/proof.h"
#include "worker/core/err.h"
#include "worker/engine/config.h"
#include "worker/engine/plugin.h"
#include "worker/io/pg.h"

struct check_args {
    struct cli_common common;
    bool offline;
};

static const struct cli_option options[] = {
    CLI_GROUP_ROW("options"),
    {"config", 'c', CLI_TEXT, offsetof(struct check_args, common.config), "FILE",
     "the configuration (JSON)", 0, 0},
    CLI_TEXT_ROW(struct check_args, common.dsn, "dsn", "DSN",
                 "database to look at, too; default: POSTRIDER_DSN,\n"
                 "then the config's \"database\", then libpq's environment"),
    CLI_FLAG_ROW(struct check_args, offline, "offline", "does not look at a database"),
    CLI_JSON(struct check_args, common),
    CLI_END,
};

static const struct cli_spec spec = {
    .name = "check",
    .usage = "--config FILE [--dsn DSN | --offline] [--json]",
    .about =
        "Reads a configuration, opens every plugin, sends nothing. Says what each provider can\n"
        "prove and what follows for each kind when a call's outcome is unknown; compares the\n"
        "times with the lease; looks whether the database is fit to send from.",
    .options = options,
    .more = "exit codes: 0 no fault, 1 the database is not fit (or cannot be reached, when it was\n"
            "named by --dsn or POSTRIDER_DSN), 2 usage, 3 the configuration is refused",
};

/* ---- findings ------------------------------------------------------------------------------ */

void check_fault(struct check *c, int code, const char *what, const char *cure)
{
    json_array_append_new(json_object_get(c->doc, "faults"),
                          json_pack("{s:s, s:s?, s:i}", "what", what, "cure", cure, "exit", code));
    if (code > c->code)
        c->code = code;
    fprintf(stderr, "postrider check: %s\n", what);
    if (cure)
        fprintf(stderr, "hint: %s\n", cure);
}

static void fault(struct check *c, int code, const struct err *err)
{
    check_fault(c, code, err_text(err), err->hint);
}

void check_warn(struct check *c, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    json_array_append_new(json_object_get(c->doc, "warnings"), json_string(text));
    free(text);
}

static void on_warning(void *arg, const char *text)
{
    check_warn(arg, "%s", text);
}

/* ---- the parts ----------------------------------------------------------------------------- */

/* Every plugin is opened, so that all faults are seen at once. */
static bool open_plugins(struct check *c, struct plugin **plugins)
{
    bool all = true;

    for (size_t i = 0; i < c->config->providers_count; i++) {
        const struct config_provider *p = &c->config->providers[i];
        struct err err = ERR_INIT;
        int rc = plugin_open(NULL, p->plugin, p->settings_json, &plugins[i], &err);

        if (rc < 0)
            err_prefix(&err, "provider \"%s\"", p->name);
        else
            rc = config_check_plugin(c->config, p, plugin_caps(plugins[i]), &err);
        if (rc < 0)
            fault(c, EXIT_CONFIG, &err);
        all = all && rc == 0;
        err_done(&err);
    }
    return all;
}

/* A vendor that would tell, and is not asked to. A token without the rest is config_warnings'. */
static void judge_receipts(struct check *c, struct plugin *const *plugins)
{
    for (size_t i = 0; i < c->config->providers_count; i++) {
        const struct config_provider *p = &c->config->providers[i];
        const char *missing = proof_receipts_missing(c->config, p);

        if (plugin_takes_receipts(plugins[i]) && !p->receipt_token)
            check_warn(c,
                       "provider \"%s\": its vendor sends receipts, but %s %s not set: whether a "
                       "message arrived is not learnt",
                       p->name, missing, strstr(missing, " and ") ? "are" : "is");
    }
}

/* Looking at a database nobody named fails quietly: a configuration can be tested anywhere. */
static void look_at_database(struct check *c, const struct check_args *a)
{
    const char *named = a->common.dsn ? a->common.dsn : cli_env_dsn();
    struct pg_sync *pg = NULL;
    struct err err = ERR_INIT;

    if (cli_try_connect(named ? named : c->config->database, &pg, &err) < 0) {
        if (named)
            fault(c, EXIT_FAILED, &err);
        else
            check_warn(c, "the database was not looked at: %s", err_text(&err));
    } else if (check_database(c, pg, &err) < 0) {
        fault(c, EXIT_FAILED, &err);
    }
    pg_sync_close(pg);
    err_done(&err);
}

static json_t *lease_doc(const struct config *config)
{
    int64_t longest = 0, lease = config->lease_s * 1000, margin = config_lease_margin_ms(config);

    for (size_t i = 0; i < config->providers_count; i++) {
        if (config->providers[i].timeout_ms > longest)
            longest = config->providers[i].timeout_ms;
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "lease_ms", (json_int_t)lease, "longest_call_ms",
                     (json_int_t)longest, "settle_allowance_ms",
                     (json_int_t)config->settle_allowance_ms, "margin_ms", (json_int_t)margin,
                     "spare_ms",
                     (json_int_t)(lease - longest - config->settle_allowance_ms - margin));
}

static void describe(struct check *c, struct plugin *const *plugins)
{
    json_t *list = json_object_get(c->doc, "providers");

    for (size_t i = 0; i < c->config->providers_count; i++) {
        const struct config_provider *p = &c->config->providers[i];
        json_t *doc = proof_doc(c->config, p, plugins[i]);

        json_object_set_new(doc, "kinds", check_kinds_doc(c, p, plugins[i]));
        json_array_append_new(list, doc);
    }
}

/* ---- the command --------------------------------------------------------------------------- */

static void run(struct check *c, const struct check_args *a)
{
    size_t n = c->config->providers_count;
    struct plugin **plugins = calloc(n, sizeof(*plugins));
    struct err err = ERR_INIT;
    bool opened = plugins && open_plugins(c, plugins);

    config_warnings(c->config, on_warning, c);
    if (!a->offline)
        look_at_database(c, a);
    if (!c->kinds_read && c->kinds_n == 0 && check_kinds_load(c, NULL, &err) < 0)
        fault(c, EXIT_FAILED, &err);
    if (opened) {
        judge_receipts(c, plugins);
        check_kinds_judge(c, plugins);
        describe(c, plugins);
        json_object_set_new(c->doc, "lease", lease_doc(c->config));
    }
    for (size_t i = 0; plugins && i < n; i++)
        plugin_close(plugins[i]);
    free(plugins);
    err_done(&err);
}

static int check(const struct check_args *a)
{
    struct check c = {.doc = json_pack("{s:s, s:[], s:[], s:[]}", "config", a->common.config,
                                       "providers", "faults", "warnings")};
    struct config *config = NULL;
    struct err err = ERR_INIT;

    if (!c.doc)
        return cli_fail("check", EXIT_FAILED, &err);
    if (config_load(a->common.config, &config, &err) < 0) {
        fault(&c, EXIT_CONFIG, &err);
    } else {
        c.config = config;
        run(&c, a);
    }
    json_object_set_new(c.doc, "ok", json_boolean(c.code == EXIT_DONE));
    if (a->common.json) {
        print_json_take(c.doc);
    } else {
        if (json_array_size(json_object_get(c.doc, "providers")) > 0)
            check_print(c.doc);
        json_decref(c.doc);
    }
    check_kinds_free(&c);
    config_free(config);
    err_done(&err);
    return c.code;
}

int cmd_check(int argc, char **argv)
{
    struct check_args args = {0};
    int code = cli_parse(&spec, argc, argv, &args, NULL, NULL);

    if (code != CLI_GO)
        return code;
    if (!args.common.config)
        return cli_usage("check", "--config is missing");
    if (args.offline && args.common.dsn)
        return cli_usage("check", "--dsn and --offline exclude each other");
    return check(&args);
}
