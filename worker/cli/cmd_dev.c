/* postrider dev: everything, privately, in one terminal, and nothing left of it afterwards. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/cli/cli.h"
#include "worker/cli/dev.h"
#include "worker/cli/options.h"
#include "worker/core/err.h"
#include "worker/io/clock.h"

struct dev_args {
    int64_t port, seconds;
};

static const struct cli_option options[] = {
    CLI_GROUP_ROW("options"),
    CLI_INT_ROW(struct dev_args, port, "port", "N", 0, 65535,
                "of the dashboard; default: a free one"),
    CLI_INT_ROW(struct dev_args, seconds, "seconds", "N", 1, 86400 * 365,
                "ends by itself after so long"),
    CLI_END,
};

static const struct cli_spec spec = {
    .name = "dev",
    .usage = "[--port N] [--seconds N]",
    .about =
        "Starts a private PostgreSQL, a simulated vendor and a worker, and prints a line to send\n"
        "the first message with. Ctrl-C stops and removes everything. Nothing of it can be\n"
        "reached from outside this host.",
    .options = options,
    .more = "PostgreSQL's server programs are taken from POSTRIDER_PGBIN, PATH or\n"
            "/usr/lib/postgresql/NN/bin. As root they run as user postgres or nobody.",
};

struct stage {
    struct dev dev;
    struct child server, migrate, sandbox, worker;
    char self[4096]; /* this program */
    char config[128];
    char *dsn;
};

static int find_self(struct stage *s, struct err *err)
{
    ssize_t n = readlink("/proc/self/exe", s->self, sizeof(s->self) - 1);

    if (n < 0)
        return err_set(err, -errno, "cannot read /proc/self/exe: %s", strerror(errno));
    s->self[n] = '\0';
    return 0;
}

static int start_migrate(struct stage *s, struct err *err)
{
    const char *const argv[] = {s->self, "migrate", "--dsn", s->dsn, NULL};
    int rc = child_start(&s->dev, &s->migrate, argv, false, err);

    return rc == 0 ? child_wait(&s->dev, &s->migrate, err) : rc;
}

static int start_sandbox(struct stage *s, struct err *err)
{
    const char *const argv[] = {s->self,         "sandbox",       "--listen",
                                "127.0.0.1:0",   "--latency-p50", "50",
                                "--latency-p99", "200",           NULL};
    int rc = child_start(&s->dev, &s->sandbox, argv, false, err);

    return rc == 0 ? child_wait_address(&s->dev, &s->sandbox, err) : rc;
}

static json_t *config_of(const struct stage *s, int64_t port)
{
    char listen[32];

    snprintf(listen, sizeof(listen), "127.0.0.1:%" PRId64, port);
    return json_pack("{s:s, s:s, s:{s:{s:s, s:{s:s+, s:{s:s, s:s, s:s, s:s, s:s}, s:{s:s, s:i}, "
                     "s:{s:[i, i, i], s:s}}}}}",
                     "database", s->dsn, "listen", listen, "providers", "sandbox", "plugin", "http",
                     "settings", "url", s->sandbox.address, "/messages", "body", "to",
                     "{{recipient}}", "text", "{{body}}", "key", "{{key}}", "lane", "{{kind}}", "t",
                     "{{created_ms}}", "dedup", "header", "Idempotency-Key", "window_s", 86400,
                     "accepted", "status", 200, 201, 202, "id", "/id");
}

static int start_worker(struct stage *s, int64_t port, struct err *err)
{
    const char *const argv[] = {s->self, "worker", "--config", s->config, "--dsn", s->dsn, NULL};
    json_t *config = config_of(s, port);
    int rc;

    snprintf(s->config, sizeof(s->config), "%s/config.json", s->dev.dir);
    if (!config || json_dump_file(config, s->config, JSON_INDENT(2)) != 0) {
        json_decref(config);
        return err_set(err, -EIO, "could not write %s", s->config);
    }
    json_decref(config);
    rc = child_start(&s->dev, &s->worker, argv, false, err);
    return rc == 0 ? child_wait_address(&s->dev, &s->worker, err) : rc;
}

static void print_banner(const struct stage *s)
{
    printf("\n"
           "  dashboard   http://%s/\n"
           "  vendor      %s (figures: /api/stats, the phones: /api/ledger)\n"
           "  config      %s\n"
           "\n"
           "  send a code from another terminal:\n"
           "    psql '%s' -c \"select postrider.send('+998901234567', 'Kodingiz: 482913', kind => "
           "'otp')\"\n"
           "  or without psql:\n"
           "    '%s' send --dsn '%s' --kind otp --wait 10 +998901234567 'Kodingiz: 482913'\n"
           "\n"
           "  Ctrl-C stops and removes everything\n\n",
           s->worker.address, s->sandbox.address, s->config, s->dsn, s->self, s->dsn);
    fflush(stdout);
}

/* Until we are told to stop, the time is up or a child that should live has ended. */
static int live(struct stage *s, int64_t seconds, struct err *err)
{
    const struct child *const all[] = {&s->worker, &s->sandbox, &s->server};
    int64_t end = seconds > 0 ? clock_boot_ms() + seconds * 1000 : INT64_MAX;

    while (s->dev.stops == 0 && clock_boot_ms() < end) {
        dev_turn(&s->dev, 200);
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
            if (all[i]->ended && s->dev.stops == 0)
                return err_set(err, -ECHILD, "%s has ended; stopping the rest", all[i]->name);
        }
    }
    return 0;
}

static int start_all(struct stage *s, const struct dev_args *a, struct err *err)
{
    int rc = find_self(s, err);

    if (rc == 0)
        rc = dev_signals(&s->dev);
    if (rc == 0)
        rc = dev_folder(&s->dev, err);
    if (rc == 0) {
        printf("starting PostgreSQL in %s\n", s->dev.dir);
        rc = dev_postgres(&s->dev, &s->server, &s->dsn, err);
    }
    if (rc == 0)
        rc = start_migrate(s, err);
    if (rc == 0)
        rc = start_sandbox(s, err);
    if (rc == 0)
        rc = start_worker(s, a->port, err);
    return rc;
}

static void stop_all(struct stage *s)
{
    puts("stopping");
    child_stop(&s->dev, &s->worker);
    child_stop(&s->dev, &s->migrate);
    child_stop(&s->dev, &s->sandbox);
    child_stop(&s->dev, &s->server);
    dev_folder_remove(&s->dev);
    if (s->dev.signals > 0)
        close(s->dev.signals);
    free(s->dsn);
}

int cmd_dev(int argc, char **argv)
{
    struct dev_args args = {0};
    struct stage *s;
    struct err err = ERR_INIT;
    int rc = cli_parse(&spec, argc, argv, &args, NULL, NULL);

    if (rc != CLI_GO)
        return rc;
    s = calloc(1, sizeof(*s));
    if (!s)
        return cli_fail("dev", EXIT_FAILED, &err);
    /* The server's SIGINT rolls back and ends; its SIGQUIT takes its own children along. */
    s->server = (struct child){.name = "postgres",
                               .wanted = "system is ready to accept connections",
                               .stop_signal = SIGINT,
                               .kill_signal = SIGQUIT};
    s->migrate = (struct child){.name = "migrate", .stop_signal = SIGTERM, .kill_signal = SIGKILL};
    s->sandbox = (struct child){.name = "sandbox",
                                .wanted = "listening on ",
                                .stop_signal = SIGTERM,
                                .kill_signal = SIGKILL};
    s->worker = (struct child){
        .name = "worker", .wanted = "address=", .stop_signal = SIGTERM, .kill_signal = SIGKILL};
    rc = start_all(s, &args, &err);
    if (rc == 0) {
        print_banner(s);
        rc = live(s, args.seconds, &err);
    }
    stop_all(s);
    free(s);
    if (rc < 0 && rc != -ECANCELED)
        rc = cli_fail("dev", EXIT_FAILED, &err);
    else
        rc = EXIT_DONE;
    err_done(&err);
    return rc;
}
