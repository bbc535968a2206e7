#include "worker/core/err.h"
#include "worker/io/pg_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The part of a URI that may hold user and password, or NULL when `dsn` is no URI. */
static const char *after_scheme(const char *dsn)
{
    static const char *const schemes[] = {"postgresql://", "postgres://"};

    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        size_t length = strlen(schemes[i]);
        if (strncmp(dsn, schemes[i], length) == 0)
            return dsn + length;
    }
    return NULL;
}

/* libpq ends the password at the first "@" and the host part at the first "/". A password with
 * one of them bare moves its rest into the host's, port's or database's name, and from there
 * into error messages. */
static bool has_bare_separator(const char *rest)
{
    const char *slash = strchrnul(rest, '/');
    const char *at = strchr(rest, '@');
    const char *end = slash + strcspn(slash, "?");

    if (!at || at >= end)
        return false;
    return at > slash || memchr(at + 1, '@', (size_t)(end - at - 1));
}

static bool ports_are_numbers(const PQconninfoOption *options)
{
    for (const PQconninfoOption *o = options; o->keyword; o++) {
        if (strcmp(o->keyword, "port") == 0 && o->val)
            return o->val[strspn(o->val, "0123456789,")] == '\0';
    }
    return true;
}

int pg_dsn_check(const char *dsn, struct err *err)
{
    const char *rest = dsn ? after_scheme(dsn) : NULL;

    if (!dsn || (!rest && !strchr(dsn, '=')))
        return 0; /* libpq's environment, or a database's name */
    if (rest && has_bare_separator(rest)) {
        err_set(err, -EINVAL, "the connection string has an \"@\" or \"/\" where none can be");
        err_hint(err, "in a URI, write @ as %%40 and / as %%2F inside a password");
        return -EINVAL;
    }
    /* Its words would quote parts of the string, and so perhaps of the password. */
    PQconninfoOption *options = PQconninfoParse(dsn, NULL);
    bool good = options && ports_are_numbers(options);
    PQconninfoFree(options);
    if (good)
        return 0;
    err_set(err, -EINVAL, "cannot read the connection string");
    err_hint(err, "write postgresql://user@host:port/database or \"host=… dbname=…\"; special "
                  "characters of a password are percent-encoded in a URI and quoted in the other "
                  "form");
    return -EINVAL;
}

static void add(struct pg_conninfo *c, size_t *n, const char *key, const char *value)
{
    c->keys[*n] = key;
    c->values[*n] = value;
    ++*n;
}

void pg_conninfo_init(struct pg_conninfo *c, const char *dsn, const char *app_name)
{
    size_t n = 0;

    memset(c, 0, sizeof(*c));
    /* What stands before dbname is overridden by it; but it overrides the environment. */
    if (!getenv("PGTARGETSESSIONATTRS"))
        add(c, &n, "target_session_attrs", "read-write");
    if (!getenv("PGCONNECT_TIMEOUT"))
        add(c, &n, "connect_timeout", "10");
    add(c, &n, "keepalives_idle", "10");
    add(c, &n, "keepalives_interval", "5");
    add(c, &n, "keepalives_count", "3");
    /* Also bounds a connect to a dead host (Linux), so that the next host has its turn. */
    add(c, &n, "tcp_user_timeout", "8000");
    add(c, &n, "dbname", dsn ? dsn : "");
    add(c, &n, "client_encoding", "UTF8");
    add(c, &n, "fallback_application_name", app_name);
}

const char *pg_unfit_encoding(const char *server_encoding)
{
    if (server_encoding && strcmp(server_encoding, "UTF8") == 0)
        return NULL;
    return "the database's encoding is not UTF8; messages would be damaged in it";
}
