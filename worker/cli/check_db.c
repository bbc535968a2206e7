/* The database: is it the one to send from, of this version, and does it keep what it commits? */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/cli/check.h"
#include "worker/cli/cli.h"
#include "worker/cli/connect.h"
#include "worker/core/err.h"
#include "worker/io/pg.h"

#define VERSION "SELECT coalesce(max(version), 0) FROM postrider.schema_version"
#define HOUSE   "SELECT identity, adopted, durable FROM postrider.check_house()"

static bool any_hold(const struct check *c)
{
    for (size_t i = 0; i < c->kinds_n; i++) {
        if (c->kinds[i].policy.on_unknown == ON_UNKNOWN_HOLD)
            return true;
    }
    return false;
}

static int check_version(struct check *c, struct pg_sync *pg, json_t *doc, struct err *err)
{
    struct pg_result *r = NULL;
    char what[80];
    int64_t found;
    int rc = cli_try(pg, VERSION, NULL, &r, err);

    if (rc < 0)
        return rc;
    found = pg_i64(r, 0, 0);
    pg_result_free(r);
    json_object_set_new(doc, "schema_version", json_integer(found));
    json_object_set_new(doc, "schema_wanted", json_integer(cli_schema_version()));
    if (found == cli_schema_version())
        return 0;
    snprintf(what, sizeof(what), "the database has schema version %lld, this program needs %d",
             (long long)found, cli_schema_version());
    check_fault(c, EXIT_FAILED, what,
                found < cli_schema_version() ? "run: postrider migrate"
                                             : "use the newer postrider that migrated it");
    return -ESTALE; /* told; what follows may not even exist */
}

static int check_house(struct check *c, struct pg_sync *pg, json_t *doc, struct err *err)
{
    struct pg_result *r = NULL;
    int rc = cli_try(pg, HOUSE, NULL, &r, err);

    if (rc < 0)
        return rc;
    bool adopted = strcmp(pg_text(r, 0, 0), pg_text(r, 0, 1)) == 0;
    bool durable = pg_bool(r, 0, 2);

    json_object_set_new(doc, "identity", json_string(pg_text(r, 0, 0)));
    json_object_set_new(doc, "adopted", json_boolean(adopted));
    json_object_set_new(doc, "durable", json_boolean(durable));
    if (!adopted)
        check_fault(c, EXIT_FAILED, "this is not the database that was adopted: nothing is sent",
                    "if this copy shall send, run: postrider adopt");
    if (!durable && any_hold(c))
        check_fault(c, EXIT_FAILED,
                    "commits are not durable, and kinds with on_unknown hold need that: after a "
                    "crash of the database a message could be handed over twice",
                    "turn fsync, full_page_writes and synchronous_commit on");
    else if (!durable)
        check_warn(c, "commits are not durable: a crash of the database may lose or double");
    pg_result_free(r);
    return 0;
}

int check_database(struct check *c, struct pg_sync *pg, struct err *err)
{
    json_t *doc = json_object();
    int rc;

    if (!doc)
        return -ENOMEM;
    json_object_set_new(c->doc, "database", doc);
    rc = check_version(c, pg, doc, err);
    if (rc == 0)
        rc = check_kinds_load(c, pg, err);
    if (rc == 0)
        rc = check_house(c, pg, doc, err);
    return rc == -ESTALE ? 0 : rc;
}
