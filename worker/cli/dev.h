/* dev.h - the private installation behind `postrider dev`: a folder, a few child processes, and
 * a loop that prints what they say.
 *
 * Everything dies with us: children are told by the kernel when we do, the folder is removed at
 * the end, and one left by a SIGKILL is removed by the next run. */
#ifndef POSTRIDER_CLI_DEV_H
#define POSTRIDER_CLI_DEV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct err;

enum { DEV_LINE_MAX = 4096, DEV_CHILDREN_MAX = 8 };

struct child {
    const char *name;   /* before each of its lines */
    const char *wanted; /* a line with this tells where it listens; NULL: not looked for */
    char *address;      /* what followed `wanted`, up to a blank; owned */
    bool quiet;         /* prints only when it failed */
    int stop_signal, kill_signal;
    pid_t pid;
    int fd; /* its stdout and stderr; -1: closed */
    bool ended;
    int status; /* of waitpid, once ended */
    char line[DEV_LINE_MAX];
    size_t line_n;
};

struct dev {
    char dir[64];
    uid_t uid; /* whom PostgreSQL runs as; 0: nobody else than we are */
    gid_t gid;
    const char *user;
    int signals;    /* signalfd */
    unsigned stops; /* how often we were told to stop */
    struct child *children[DEV_CHILDREN_MAX];
    size_t children_n;
};

/* ---- dev_child.c ---- */

/* Blocks the signals that dev_turn handles. 0 or -errno. */
int dev_signals(struct dev *d);

/* Starts argv[0] (a path). As the server's user when `as_server`. The child's struct outlives it
 * and is zeroed but for name, wanted, quiet and signals. 0 or -Exxx. */
int child_start(struct dev *d, struct child *c, const char *const argv[], bool as_server,
                struct err *err);

/* One turn: prints lines, notices ends and signals. Waits at most timeout_ms. */
void dev_turn(struct dev *d, int timeout_ms);

/* Turns until the child has ended: 0 when it ended well, -ECANCELED when we were told to stop,
 * -ECHILD with words when it failed. */
int child_wait(struct dev *d, struct child *c, struct err *err);

/* Turns until the child said where it listens; -ECHILD when it ended instead. */
int child_wait_address(struct dev *d, struct child *c, struct err *err);

/* Asks it to stop, and kills it when it does not within 15 s or we are told again. */
void child_stop(struct dev *d, struct child *c);

/* ---- dev_pg.c ---- */

/* The folder, and the user for PostgreSQL. 0 or -Exxx. */
int dev_folder(struct dev *d, struct err *err);
void dev_folder_remove(const struct dev *d);

/* initdb, the server, the database. *ret_dsn is freed by the caller. */
int dev_postgres(struct dev *d, struct child *server, char **ret_dsn, struct err *err);

#endif
