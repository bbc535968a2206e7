/* Child processes whose lines are printed behind their name. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/cli/dev.h"
#include "worker/cli/words.h"
#include "worker/core/err.h"
#include "worker/io/clock.h"

enum { STOP_MS = 15000, START_MS = 30000 };

int dev_signals(struct dev *d)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGPIPE); /* a closed terminal must not keep us from cleaning up */
    sigprocmask(SIG_BLOCK, &set, NULL);
    d->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return d->signals < 0 ? -errno : 0;
}

/* ---- start --------------------------------------------------------------------------------- */

/* In the child. Does not return. */
static void become(const struct dev *d, const struct child *c, const char *const argv[], int out,
                   pid_t parent, bool as_server)
{
    sigset_t none;
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);

    setpgid(0, 0); /* Ctrl-C is ours: we stop them in order */
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    if (as_server && d->uid != 0 &&
        (initgroups(d->user, d->gid) != 0 || setgid(d->gid) != 0 || setuid(d->uid) != 0 ||
         chdir(d->dir) != 0))
        _exit(126);
    prctl(PR_SET_PDEATHSIG, c->kill_signal); /* after setuid, which clears it */
    if (getppid() != parent)
        _exit(126);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(argv[0], (char *const *)argv);
    _exit(127);
}

int child_start(struct dev *d, struct child *c, const char *const argv[], bool as_server,
                struct err *err)
{
    pid_t parent = getpid();
    int ends[2];

    c->fd = -1;
    if (d->children_n == DEV_CHILDREN_MAX || pipe2(ends, O_CLOEXEC) != 0)
        return err_set(err, -EMFILE, "could not start %s", c->name);
    fflush(NULL);
    c->pid = fork();
    if (c->pid == 0)
        become(d, c, argv, ends[1], parent, as_server);
    close(ends[1]);
    if (c->pid < 0) {
        close(ends[0]);
        return err_set(err, -errno, "could not start %s: %s", c->name, strerror(errno));
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    c->fd = ends[0];
    d->children[d->children_n++] = c;
    return 0;
}

/* ---- what they say ------------------------------------------------------------------------- */

static void look_for_address(struct child *c)
{
    const char *at = c->wanted && !c->address ? strstr(c->line, c->wanted) : NULL;

    if (at) {
        at += strlen(c->wanted);
        c->address = strndup(at, strcspn(at, " \""));
    }
}

static void end_line(struct child *c)
{
    char *clean;

    c->line[c->line_n] = '\0';
    look_for_address(c);
    clean = words_clean(c->line);
    if (clean && c->line_n > 0 && !c->quiet)
        printf("%-8s | %s\n", c->name, clean);
    free(clean);
    c->line_n = 0;
}

static void take(struct child *c, const char *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (data[i] == '\n' || c->line_n == DEV_LINE_MAX - 1)
            end_line(c);
        if (data[i] != '\n')
            c->line[c->line_n++] = data[i];
    }
}

static void drain(struct child *c)
{
    char buffer[4096];
    ssize_t n;

    while (c->fd >= 0 && (n = read(c->fd, buffer, sizeof(buffer))) != 0) {
        if (n < 0) {
            if (errno == EAGAIN || errno == EINTR)
                return;
            break;
        }
        take(c, buffer, (size_t)n);
    }
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

static void reap(struct dev *d)
{
    for (size_t i = 0; i < d->children_n; i++) {
        struct child *c = d->children[i];

        if (c->ended || waitpid(c->pid, &c->status, WNOHANG) != c->pid)
            continue;
        c->ended = true;
        drain(c);
        if (c->line_n > 0)
            end_line(c);
        if (c->fd >= 0)
            close(c->fd);
        c->fd = -1;
    }
}

static void read_signals(struct dev *d)
{
    struct signalfd_siginfo info;

    while (read(d->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP)
            d->stops++;
    }
    reap(d);
}

void dev_turn(struct dev *d, int timeout_ms)
{
    struct pollfd fds[DEV_CHILDREN_MAX + 1] = {{.fd = d->signals, .events = POLLIN}};

    for (size_t i = 0; i < d->children_n; i++)
        fds[i + 1] = (struct pollfd){.fd = d->children[i]->fd, .events = POLLIN};
    if (poll(fds, d->children_n + 1, timeout_ms) <= 0)
        return;
    for (size_t i = 0; i < d->children_n; i++) {
        if (fds[i + 1].revents)
            drain(d->children[i]);
    }
    if (fds[0].revents)
        read_signals(d);
    fflush(stdout);
}

/* ---- waiting and stopping ------------------------------------------------------------------ */

static int failed(const struct child *c, struct err *err)
{
    if (WIFSIGNALED(c->status))
        return err_set(err, -ECHILD, "%s was killed by signal %d", c->name, WTERMSIG(c->status));
    return err_set(err, -ECHILD, "%s ended with exit code %d", c->name, WEXITSTATUS(c->status));
}

int child_wait(struct dev *d, struct child *c, struct err *err)
{
    while (!c->ended && d->stops == 0)
        dev_turn(d, 1000);
    if (!c->ended)
        return -ECANCELED;
    return WIFEXITED(c->status) && WEXITSTATUS(c->status) == 0 ? 0 : failed(c, err);
}

int child_wait_address(struct dev *d, struct child *c, struct err *err)
{
    int64_t end = clock_boot_ms() + START_MS;

    while (!c->address && !c->ended && d->stops == 0 && clock_boot_ms() < end)
        dev_turn(d, 100);
    if (d->stops > 0)
        return -ECANCELED;
    if (c->ended)
        return failed(c, err);
    return c->address ? 0 : err_set(err, -ETIMEDOUT, "%s does not listen", c->name);
}

void child_stop(struct dev *d, struct child *c)
{
    int64_t end = clock_boot_ms() + STOP_MS;
    unsigned stops = d->stops;

    if (c->pid > 0 && !c->ended)
        kill(c->pid, c->stop_signal);
    while (c->pid > 0 && !c->ended && clock_boot_ms() < end && d->stops == stops)
        dev_turn(d, 100);
    if (c->pid > 0 && !c->ended)
        kill(c->pid, c->kill_signal);
    for (end = clock_boot_ms() + STOP_MS; c->pid > 0 && !c->ended && clock_boot_ms() < end;)
        dev_turn(d, 100);
    if (c->pid > 0 && !c->ended)
        kill(-c->pid, SIGKILL);
    free(c->address);
    c->address = NULL;
}
