/* postrider migrate: brings a database to the schema this program was built for. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "worker/cli/cli.h"
#include "worker/cli/connect.h"
#include "worker/cli/migrations.h"
#include "worker/core/err.h"
#include "worker/io/pg.h"

struct migrate_args {
    struct cli_common common;
    bool check, grants;
};

static const struct cli_option options[] = {
    CLI_GROUP_ROW("options"),
    CLI_FLAG_ROW(struct migrate_args, check, "check",
                 "changes nothing; exits 1 when a migration is missing"),
    CLI_FLAG_ROW(struct migrate_args, grants, "grants",
                 "also repeats the grants to the postrider roles"),
    CLI_CONNECTION(struct migrate_args, common),
    CLI_END,
};

static const struct cli_spec spec = {
    .name = "migrate",
    .usage = "[OPTIONS]",
    .about =
        "Creates or upgrades the schema \"postrider\". Each migration is one transaction; running\n"
        "it again, or from two hosts at once, is safe. A database that is newer than this\n"
        "program is refused.",
    .options = options,
};

/* One lock for all: taken in each transaction, so that no session state is needed. */
#define LOCK  "SELECT pg_advisory_xact_lock(hashtext('postrider.migrate'))"

#define FOUND "SELECT coalesce(max(version), 0), max(name) FROM postrider.schema_version"

static int found_version(struct pg_sync *pg, int *ret, struct err *err)
{
    struct pg_result *r = NULL;
    int rc = pg_sync_exec(pg, FOUND, NULL, &r, NULL, err);

    if (rc == 0)
        *ret = (int)pg_i64(r, 0, 0);
    pg_result_free(r);
    return rc;
}

static int run(struct pg_sync *pg, const char *sql, struct err *err)
{
    return pg_sync_script(pg, sql, err);
}

static int bootstrap(struct pg_sync *pg, struct err *err)
{
    return run(pg,
               "BEGIN; " LOCK "; CREATE SCHEMA IF NOT EXISTS postrider;"
               "CREATE TABLE IF NOT EXISTS postrider.schema_version ("
               " version integer CONSTRAINT schema_version_pkey PRIMARY KEY, name text NOT NULL,"
               " applied_at timestamptz NOT NULL DEFAULT now());"
               "COMMENT ON SCHEMA postrider IS 'SMS and one-time codes, delivered by postrider.';"
               "COMMENT ON TABLE postrider.schema_version IS 'Migrations applied.'; COMMIT",
               err);
}

static int record(struct pg_sync *pg, const struct migration *m, struct err *err)
{
    struct pg_params *p = pg_params_new();

    pg_add_i64(p, m->version);
    pg_add_text(p, m->name);
    return pg_sync_exec(pg,
                        "INSERT INTO postrider.schema_version (version, name) VALUES ($1::int, $2)",
                        p, NULL, NULL, err);
}

/* Applies one migration unless another host was faster. */
static int apply(struct pg_sync *pg, const struct migration *m, struct err *err)
{
    int version, rc = run(pg, "BEGIN; " LOCK, err);

    if (rc == 0)
        rc = found_version(pg, &version, err);
    if (rc == 0 && version >= m->version)
        return run(pg, "COMMIT", err);
    if (rc == 0)
        rc = run(pg, (const char *)m->sql, err);
    if (rc == 0)
        rc = record(pg, m, err);
    if (rc == 0)
        rc = run(pg, "COMMIT", err);
    if (rc < 0) {
        err_prefix(err, "migration %s", m->name);
        run(pg, "ROLLBACK", NULL);
        return rc;
    }
    printf("applied %s\n", m->name);
    fflush(stdout);
    return 0;
}

static int refuse_newer(int found, struct err *err)
{
    err_set(err, -EINVAL, "the database has schema version %d, this program knows up to %d", found,
            cli_schema_version());
    err_hint(err, "run the newer postrider that migrated it");
    return -EINVAL;
}

static int migrate(struct pg_sync *pg, bool check, struct err *err)
{
    int found = 0, rc = check ? 0 : bootstrap(pg, err);

    if (rc == 0)
        rc = found_version(pg, &found, err);
    if (rc < 0)
        return rc;
    if (found > cli_schema_version())
        return refuse_newer(found, err);
    if (check && found < cli_schema_version()) {
        err_set(err, -ENOENT, "the database has schema version %d of %d", found,
                cli_schema_version());
        err_hint(err, "run: postrider migrate");
        return -ENOENT;
    }
    for (size_t i = 0; !check && i < migrations_count; i++) {
        if (migrations[i].version <= found)
            continue;
        rc = apply(pg, &migrations[i], err);
        if (rc < 0)
            return rc;
    }
    printf("schema version %d\n", cli_schema_version());
    return 0;
}

int cmd_migrate(int argc, char **argv)
{
    struct migrate_args args = {0};
    struct pg_sync *pg = NULL;
    struct err err = ERR_INIT;
    int code = cli_parse(&spec, argc, argv, &args, NULL, NULL);

    if (code != CLI_GO)
        return code;
    code = cli_connect("migrate", &args.common, &pg);
    if (code == EXIT_DONE && migrate(pg, args.check, &err) < 0)
        code = cli_fail("migrate", EXIT_FAILED, &err);
    if (code == EXIT_DONE && args.grants)
        code = cli_query("migrate", pg, "SELECT postrider.grant_roles()", NULL, NULL);
    pg_sync_close(pg);
    err_done(&err);
    return code;
}
