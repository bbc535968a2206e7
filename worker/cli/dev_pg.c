/* A private PostgreSQL: its own folder and socket, no port, gone at the end. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/cli/cli.h"
#include "worker/cli/dev.h"
#include "worker/core/err.h"
#include "worker/io/clock.h"
#include "worker/io/pg.h"

#define FOLDER "/tmp/postrider-dev-"

enum { ANSWER_MS = 30000, PATH_LENGTH = 4096 };

/* ---- folder -------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void remove_tree(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void dev_folder_remove(const struct dev *d)
{
    if (*d->dir)
        remove_tree(d->dir);
}

/* The folder's owner.pid names a process that is no more. */
static bool is_orphan(const char *dir)
{
    char path[128], text[24] = "";
    struct stat st;
    int64_t pid;
    FILE *f;

    if (lstat(dir, &st) != 0 || !S_ISDIR(st.st_mode))
        return false;
    snprintf(path, sizeof(path), "%s/owner.pid", dir);
    f = fopen(path, "re");
    if (!f)
        return false;
    if (!fgets(text, sizeof(text), f))
        text[0] = '\0';
    fclose(f);
    return cli_int(text, 2, INT32_MAX, &pid) && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

static void remove_orphans(void)
{
    glob_t found = {0};

    if (glob(FOLDER "*", GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            if (is_orphan(found.gl_pathv[i]))
                remove_tree(found.gl_pathv[i]);
        }
    }
    globfree(&found);
}

/* PostgreSQL refuses root. */
static int choose_user(struct dev *d, struct err *err)
{
    static const char *const users[] = {"postgres", "nobody"};

    if (geteuid() != 0)
        return 0;
    for (size_t i = 0; i < sizeof(users) / sizeof(users[0]); i++) {
        /* cppcheck-suppress getpwnamCalled ; there is one thread */
        const struct passwd *pw = getpwnam(users[i]);

        if (!pw || pw->pw_uid == 0)
            continue;
        d->user = users[i];
        d->uid = pw->pw_uid;
        d->gid = pw->pw_gid;
        return 0;
    }
    err_set(err, -EPERM,
            "PostgreSQL does not run as root, and there is no user postgres or nobody");
    err_hint(err, "run this as an ordinary user");
    return -EPERM;
}

int dev_folder(struct dev *d, struct err *err)
{
    char path[128];
    FILE *f;

    remove_orphans();
    if (choose_user(d, err) < 0)
        return -EPERM;
    snprintf(d->dir, sizeof(d->dir), "%s", FOLDER "XXXXXX");
    if (!mkdtemp(d->dir)) {
        d->dir[0] = '\0';
        return err_set(err, -errno, "could not make a folder in /tmp: %s", strerror(errno));
    }
    snprintf(path, sizeof(path), "%s/owner.pid", d->dir);
    f = fopen(path, "we");
    if (!f || fprintf(f, "%ld", (long)getpid()) < 0 || fclose(f) != 0 ||
        (d->uid != 0 && chown(d->dir, d->uid, d->gid) != 0))
        return err_set(err, -EIO, "could not prepare %s: %s", d->dir, strerror(errno));
    return 0;
}

/* ---- programs ------------------------------------------------------------------------------ */

static bool has_program(const char *dir, size_t len, const char *name)
{
    char path[PATH_LENGTH];
    int n = snprintf(path, sizeof(path), "%.*s/%s", (int)len, dir, name);

    return n > 0 && n < PATH_LENGTH && access(path, X_OK) == 0;
}

/* The newest of /usr/lib/postgresql/NN/bin, where Debian keeps them out of PATH. */
static char *debian_bin(void)
{
    glob_t found = {0};
    int64_t newest = -1, version;
    char *best = NULL;

    if (glob("/usr/lib/postgresql/*/bin", 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            const char *dir = found.gl_pathv[i], *number = dir + strlen("/usr/lib/postgresql/");
            char text[16];

            snprintf(text, sizeof(text), "%.*s", (int)strcspn(number, "/"), number);
            if (cli_int(text, 1, 1000, &version) && version > newest &&
                has_program(dir, strlen(dir), "initdb")) {
                newest = version;
                free(best);
                best = strdup(dir);
            }
        }
    }
    globfree(&found);
    return best;
}

static char *find_bin(struct err *err)
{
    const char *named = getenv("POSTRIDER_PGBIN"), *path = getenv("PATH");
    char *debian;

    if (named && *named) {
        if (has_program(named, strlen(named), "initdb"))
            return strdup(named);
        err_set(err, -ENOENT, "POSTRIDER_PGBIN is \"%s\", but there is no initdb in it", named);
        return NULL;
    }
    while (path && *path) {
        size_t len = strcspn(path, ":");

        if (len > 0 && has_program(path, len, "initdb") && has_program(path, len, "postgres"))
            return strndup(path, len);
        path += len + (path[len] == ':');
    }
    debian = debian_bin();
    if (!debian) {
        err_set(err, -ENOENT, "PostgreSQL's server programs were not found");
        err_hint(err, "install PostgreSQL (Debian: apt install postgresql), or set "
                      "POSTRIDER_PGBIN to the folder of initdb");
    }
    return debian;
}

/* ---- server -------------------------------------------------------------------------------- */

static int init_db(struct dev *d, const char *bin, const char *data, struct err *err)
{
    struct child c = {
        .name = "initdb", .quiet = true, .stop_signal = SIGTERM, .kill_signal = SIGKILL};
    char program[PATH_LENGTH];
    const char *const argv[] = {program,     "-D",    data, "-U",   "postgres",
                                "-A",        "trust", "-E", "UTF8", "--locale=C.UTF-8",
                                "--no-sync", NULL};
    int rc;

    snprintf(program, sizeof(program), "%s/initdb", bin);
    rc = child_start(d, &c, argv, true, err);
    if (rc == 0)
        rc = child_wait(d, &c, err);
    if (rc < 0)
        child_stop(d, &c);
    d->children_n = 0; /* the first child, and gone */
    return rc;
}

static int start_server(struct dev *d, struct child *server, const char *bin, const char *data,
                        struct err *err)
{
    char program[PATH_LENGTH], socket[128];
    const char *const argv[] = {program,
                                "-D",
                                data,
                                "-c",
                                "listen_addresses=",
                                "-c",
                                socket,
                                "-c",
                                "port=5432",
                                "-c",
                                "shared_buffers=64MB",
                                "-c",
                                "log_line_prefix=",
                                NULL};

    snprintf(program, sizeof(program), "%s/postgres", bin);
    snprintf(socket, sizeof(socket), "unix_socket_directories=%s", d->dir);
    return child_start(d, server, argv, true, err);
}

/* It says that it is ready a moment before it answers. */
static int wait_answer(struct dev *d, struct child *server, struct pg_sync **ret, struct err *err)
{
    int64_t end = clock_boot_ms() + ANSWER_MS;
    char dsn[256];
    int rc = child_wait_address(d, server, err);

    if (rc < 0)
        return rc;
    snprintf(dsn, sizeof(dsn), "host=%s port=5432 user=postgres dbname=postgres", d->dir);
    for (;;) {
        rc = pg_sync_open(dsn, ret, err);
        if (rc == 0 || server->ended || d->stops > 0 || clock_boot_ms() >= end)
            return d->stops > 0 && rc < 0 ? -ECANCELED : rc;
        dev_turn(d, 50);
    }
}

int dev_postgres(struct dev *d, struct child *server, char **ret_dsn, struct err *err)
{
    struct pg_sync *pg = NULL;
    char data[128], *bin = find_bin(err);
    int rc = bin ? 0 : -ENOENT;

    snprintf(data, sizeof(data), "%s/data", d->dir);
    if (rc == 0)
        rc = init_db(d, bin, data, err);
    if (rc == 0)
        rc = start_server(d, server, bin, data, err);
    if (rc == 0)
        rc = wait_answer(d, server, &pg, err);
    if (rc == 0)
        rc = pg_sync_exec(pg, "CREATE DATABASE postrider", NULL, NULL, NULL, err);
    if (rc == 0 &&
        asprintf(ret_dsn, "postgresql:///postrider?host=%s&port=5432&user=postgres", d->dir) < 0)
        rc = -ENOMEM;
    pg_sync_close(pg);
    free(bin);
    return rc;
}
