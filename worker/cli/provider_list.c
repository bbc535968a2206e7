/* postrider provider list: what each provider can prove, and whether its door is open. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/cli/cli.h"
#include "worker/cli/connect.h"
#include "worker/cli/print.h"
#include "worker/cli/proof.h"
#include "worker/cli/provider.h"
#include "worker/cli/words.h"
#include "worker/core/err.h"
#include "worker/engine/config.h"
#include "worker/engine/plugin.h"
#include "worker/io/pg.h"

struct list_args {
    struct cli_common common;
};

static const struct cli_option options[] = {
    CLI_GROUP_ROW("output"),
    CLI_JSON(struct list_args, common),
    CLI_GROUP_ROW("connection"),
    {"config", 'c', CLI_TEXT, offsetof(struct list_args, common.config), "FILE",
     "configuration: its providers, opened and asked", 0, 0},
    CLI_TEXT_ROW(struct list_args, common.dsn, "dsn", "DSN",
                 "database to ask for doors; default: POSTRIDER_DSN,\n"
                 "then \"database\" of --config, then libpq's environment"),
    CLI_END,
};

static const struct cli_spec spec = {
    .name = "provider list",
    .usage = "[--config FILE] [--dsn DSN] [--json]",
    .about =
        "Lists the providers of a configuration with all that their vendors can prove, or, "
        "without\n"
        "--config, those that workers of a database declared. The door is what the workers that\n"
        "are alive said in their last beat (every 5 s): open, paused (the vendor throttles or\n"
        "fails) or held (login, balance or set-up).",
    .options = options,
    .more = "exit codes: 0 listed, 1 no database where one was named or is the only source,\n"
            "        2 usage, 3 the configuration is refused",
};

/* Without a configuration: as declared. Doors: one row a living worker that told of one. */
#define DECLARED                                                                                   \
    "SELECT coalesce(json_agg(json_build_object('name', name, 'plugin', plugin, 'dedup', "         \
    "caps->'dedup', 'dedup_window_ms', (caps->>'window_s')::bigint * 1000, 'askable', "            \
    "caps->'askable', 'timeout_ms', caps->'timeout_ms') ORDER BY name), '[]')::text "              \
    "FROM postrider.providers"
#define DOORS                                                                                      \
    "SELECT d.name, d.said->>'door', d.said->>'why', count(*) FROM postrider.workers AS w, "       \
    "jsonb_each(w.stats->'doors') AS d(name, said) WHERE w.alive "                                 \
    "GROUP BY 1, 2, 3 ORDER BY 1, 4 DESC, 2"

/* ---- what is known ------------------------------------------------------------------------- */

static int list_config(const struct config *config, json_t *list, struct err *err)
{
    for (size_t i = 0; i < config->providers_count; i++) {
        const struct config_provider *p = &config->providers[i];
        struct plugin *plugin = NULL;
        int rc = plugin_open(NULL, p->plugin, p->settings_json, &plugin, err);

        if (rc < 0) {
            err_prefix(err, "provider \"%s\"", p->name);
            return rc;
        }
        json_array_append_new(list, proof_doc(config, p, plugin));
        plugin_close(plugin);
    }
    return 0;
}

static int list_declared(struct pg_sync *pg, json_t *list, struct err *err)
{
    struct pg_result *r = NULL;
    int rc = cli_try(pg, DECLARED, NULL, &r, err);
    json_t *all = rc == 0 ? json_loads(pg_text(r, 0, 0), 0, NULL) : NULL;

    if (all)
        json_array_extend(list, all);
    json_decref(all);
    pg_result_free(r);
    return rc;
}

static json_t *named(const json_t *list, const char *name)
{
    size_t i;
    json_t *p;

    json_array_foreach (list, i, p) {
        if (strcmp(member_text(p, "name"), name) == 0)
            return p;
    }
    return NULL;
}

static int add_doors(struct pg_sync *pg, json_t *list, struct err *err)
{
    struct pg_result *r = NULL;
    int rc = cli_try(pg, DOORS, NULL, &r, err);

    for (size_t i = 0; rc == 0 && i < pg_rows(r); i++) {
        json_t *p = named(list, pg_text(r, i, 0)), *doors;

        if (!p)
            continue;
        if (!json_object_get(p, "doors"))
            json_object_set_new(p, "doors", json_array());
        doors = json_object_get(p, "doors");
        json_array_append_new(doors, json_pack("{s:s, s:s?, s:I}", "door", pg_text(r, i, 1), "why",
                                               pg_is_null(r, i, 2) ? NULL : pg_text(r, i, 2),
                                               "workers", (json_int_t)pg_i64(r, i, 3)));
    }
    pg_result_free(r);
    return rc;
}

/* ---- for people ---------------------------------------------------------------------------- */

static void print_doors(const json_t *p)
{
    const json_t *doors = json_object_get(p, "doors");
    size_t i;
    json_t *d;

    if (json_array_size(doors) == 0)
        puts("  door: not known, as no worker that is alive told");
    json_array_foreach (doors, i, d) {
        const char *why = member_text(d, "why");
        int64_t n = member_number(d, "workers");
        char *clean = words_clean(why);

        printf("  door: %s at %s worker%s%s%s\n", member_text(d, "door"), words_number(n).text,
               n == 1 ? "" : "s", *why && clean ? ": " : "", clean ? clean : "");
        free(clean);
    }
}

/* What a database keeps of a provider is less than what its plugin says. */
static void print_declared(const json_t *p)
{
    struct words window = words_duration(member_number(p, "dedup_window_ms"));

    if (strcmp(member_text(p, "dedup"), "none") == 0)
        puts("  cannot de-duplicate: a request sent twice is two messages");
    else
        printf("  de-duplicates: knows a key for %s\n", window.text);
    puts(member_true(p, "askable") ? "  can be asked what became of a message"
                                   : "  cannot be asked what became of a message");
}

static void print_list(const json_t *list)
{
    size_t i, j;
    json_t *p, *line;

    if (json_array_size(list) == 0)
        puts("no provider: no worker has declared one");
    json_array_foreach (list, i, p) {
        const json_t *proves = json_object_get(p, "proves");

        printf("%s%s (plugin %s)\n", i > 0 ? "\n" : "", member_text(p, "name"),
               member_text(p, "plugin"));
        print_doors(p);
        if (!proves)
            print_declared(p);
        json_array_foreach (proves, j, line) {
            printf("  %s\n", json_string_value(line));
        }
    }
}

/* ---- the command --------------------------------------------------------------------------- */

/* A database that nobody named may be away: the configuration says enough. */
static int ask_database(const struct list_args *a, const struct config *config, json_t *list)
{
    const char *dsn = a->common.dsn ? a->common.dsn : cli_env_dsn();
    bool needed = dsn || !config;
    struct pg_sync *pg = NULL;
    struct err err = ERR_INIT;
    int rc = cli_try_connect(dsn || !config ? dsn : config->database, &pg, &err);

    if (rc == 0 && !config)
        rc = list_declared(pg, list, &err);
    if (rc == 0)
        rc = add_doors(pg, list, &err);
    if (rc < 0 && needed)
        cli_fail("provider list", EXIT_FAILED, &err);
    else if (rc < 0)
        fprintf(stderr, "postrider provider list: doors are not known: %s\n", err_text(&err));
    pg_sync_close(pg);
    err_done(&err);
    return rc < 0 && needed ? EXIT_FAILED : EXIT_DONE;
}

static int list_all(const struct list_args *a, json_t *list)
{
    struct config *config = NULL;
    struct err err = ERR_INIT;
    int rc = a->common.config ? config_load(a->common.config, &config, &err) : 0, code;

    if (rc == 0 && config)
        rc = list_config(config, list, &err);
    code = rc < 0 ? cli_fail("provider list", EXIT_CONFIG, &err) : ask_database(a, config, list);
    config_free(config);
    err_done(&err);
    return code;
}

int provider_list(int argc, char **argv)
{
    struct list_args args = {0};
    json_t *list = json_array();
    int code = cli_parse(&spec, argc, argv, &args, NULL, NULL);

    if (code == CLI_GO) {
        code = list_all(&args, list);
        if (code == EXIT_DONE && args.common.json)
            code = print_json_take(json_pack("{s:O}", "providers", list));
        else if (code == EXIT_DONE)
            print_list(list);
    }
    json_decref(list);
    return code;
}
