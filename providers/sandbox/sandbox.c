#include "providers/sandbox/sandbox.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "providers/sandbox/api.h"
#include "providers/sandbox/mix.h"
#include "providers/sandbox/server.h"
#include "providers/sandbox/state.h"
#include "providers/sandbox/world.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

#define MAX_KEYS_DEFAULT   10000000u
#define MAX_KEYS_MAX       500000000u
#define KEEP_TEXTS_DEFAULT 1000u
#define KEEP_TEXTS_MANY    1000000u /* --keep-texts without a number */
#define KEEP_TEXTS_MAX     100000000u
#define OPTIONS_MAX        64
#define SETS_MAX           32

struct options {
    struct sb_knobs knobs;
    char host[256];
    uint16_t port;
    uint64_t max_keys, keep_texts;
    const char *ledger_file, *dialect; /* borrowed from argv, as are: */
    const char *sets[SETS_MAX];
    size_t sets_n;
    bool summary, help;
};

/* getopt's codes for options that are not knobs; a knob's code is KNOB_BASE + its index. */
enum {
    OPT_LISTEN = 1,
    OPT_MAX_KEYS,
    OPT_KEEP_TEXTS,
    OPT_LEDGER_FILE,
    OPT_SUMMARY,
    OPT_HELP,
    OPT_DIALECT,
    OPT_DIALECT_SET
};
enum { KNOB_BASE = 1000 };

double sb_mono_exact_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

int64_t sb_mono_ms(void)
{
    return (int64_t)sb_mono_exact_ms();
}

int64_t sb_wall_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

double sb_elapsed_s(const struct sandbox *sb)
{
    return (sb_mono_exact_ms() - (double)sb->start_ms) / 1000.0;
}

/* --- options ---------------------------------------------------------------------------- */

static void print_help(void)
{
    size_t count = 0;
    const struct sb_knob *table = sb_knobs_table(&count);

    printf("usage: postrider sandbox [OPTION...]\n\n"
           "A simulated SMS vendor with phones behind it. It takes POST /messages, counts what\n"
           "reached each phone, and shows and steers it all under /api/.\n\n"
           "  --listen HOST:PORT   where to listen; port 0 takes a free one (127.0.0.1:9000)\n"
           "  --max-keys N         keys remembered; then 507 answers (%u)\n"
           "  --keep-texts[=N]     deliveries whose text is kept (%u; %u without N)\n"
           "  --ledger-file PATH   append a line for each request\n"
           "  --dialect NAME       speak as this vendor does (below); without it: POST /messages\n"
           "  --dialect-set N=V    one of the dialect's settings\n"
           "  --summary            print the figures as one JSON line at the end\n"
           "  --help               this text\n\n"
           "Knobs (also live, with PUT /api/knobs):\n",
           MAX_KEYS_DEFAULT, KEEP_TEXTS_DEFAULT, KEEP_TEXTS_MANY);
    for (size_t i = 0; i < count; i++) {
        printf("  --");
        for (const char *c = table[i].name; *c; c++)
            putchar(*c == '_' ? '-' : *c);
        printf(" %s\n", table[i].help);
    }
    sb_world_help(stdout);
}

static int parse_count(const char *name, const char *s, uint64_t min, uint64_t max, uint64_t *ret,
                       struct err *err)
{
    uint64_t value = 0;

    if (!sb_parse_u64(s, &value) || value < min || value > max)
        return err_set(err, -EINVAL, "%s is \"%s\", must be %llu to %llu", name, s,
                       (unsigned long long)min, (unsigned long long)max);
    *ret = value;
    return 0;
}

static int parse_listen(struct options *o, const char *s, struct err *err)
{
    const char *colon = strrchr(s, ':');
    uint64_t port = 0;

    if (!colon || colon == s || !sb_parse_u64(colon + 1, &port) || port > 65535)
        return err_set(err, -EINVAL, "listen is \"%s\", must be HOST:PORT", s);
    size_t len = (size_t)(colon - s);
    if (*s == '[' && len > 2 && s[len - 1] == ']') { /* [::1]:9000 */
        s++;
        len -= 2;
    }
    if (len >= sizeof(o->host))
        return err_set(err, -EINVAL, "listen: the host is too long");
    memcpy(o->host, s, len);
    o->host[len] = '\0';
    o->port = (uint16_t)port;
    return 0;
}

static int take_option(struct options *o, int code, struct err *err)
{
    size_t count = 0;
    const struct sb_knob *table = sb_knobs_table(&count);

    switch (code) {
    case OPT_LISTEN:
        return parse_listen(o, optarg, err);
    case OPT_MAX_KEYS:
        return parse_count("max-keys", optarg, 1, MAX_KEYS_MAX, &o->max_keys, err);
    case OPT_KEEP_TEXTS:
        o->keep_texts = KEEP_TEXTS_MANY;
        if (!optarg)
            return 0;
        return parse_count("keep-texts", optarg, 0, KEEP_TEXTS_MAX, &o->keep_texts, err);
    case OPT_LEDGER_FILE:
        o->ledger_file = optarg;
        return 0;
    case OPT_SUMMARY:
        o->summary = true;
        return 0;
    case OPT_HELP:
        o->help = true;
        return 0;
    case OPT_DIALECT:
        o->dialect = optarg;
        return sb_dialect_find(optarg)
                   ? 0
                   : err_set(err, -EINVAL, "no dialect is called \"%s\"; see --help", optarg);
    case OPT_DIALECT_SET:
        if (o->sets_n >= SETS_MAX)
            return err_set(err, -EINVAL, "dialect-set: at most %d", SETS_MAX);
        o->sets[o->sets_n++] = optarg;
        return 0;
    default:
        break;
    }
    if (code < KNOB_BASE || (size_t)(code - KNOB_BASE) >= count)
        return -EINVAL; /* getopt has said why */
    return sb_knob_set(&o->knobs, &table[code - KNOB_BASE], optarg, err);
}

/* Option names are the knobs' with '-' for '_'; they live as long as the table does. */
static void make_options(struct option longs[OPTIONS_MAX], char names[OPTIONS_MAX][32])
{
    static const struct option fixed[] = {{"listen", required_argument, NULL, OPT_LISTEN},
                                          {"max-keys", required_argument, NULL, OPT_MAX_KEYS},
                                          {"keep-texts", optional_argument, NULL, OPT_KEEP_TEXTS},
                                          {"ledger-file", required_argument, NULL, OPT_LEDGER_FILE},
                                          {"dialect", required_argument, NULL, OPT_DIALECT},
                                          {"dialect-set", required_argument, NULL, OPT_DIALECT_SET},
                                          {"summary", no_argument, NULL, OPT_SUMMARY},
                                          {"help", no_argument, NULL, OPT_HELP}};
    size_t n = sizeof(fixed) / sizeof(fixed[0]);
    size_t count = 0;
    const struct sb_knob *table = sb_knobs_table(&count);

    memcpy(longs, fixed, sizeof(fixed));
    for (size_t i = 0; i < count && n < OPTIONS_MAX - 1; i++, n++) {
        snprintf(names[i], sizeof(names[i]), "%s", table[i].name);
        for (char *c = names[i]; *c; c++)
            *c = *c == '_' ? '-' : *c;
        longs[n] = (struct option){names[i], required_argument, NULL, KNOB_BASE + (int)i};
    }
    memset(&longs[n], 0, sizeof(longs[n]));
}

static int parse_options(struct options *o, int argc, char **argv, struct err *err)
{
    struct option longs[OPTIONS_MAX];
    char names[OPTIONS_MAX][32];
    int code;

    *o = (struct options){.host = "127.0.0.1",
                          .port = 9000,
                          .max_keys = MAX_KEYS_DEFAULT,
                          .keep_texts = KEEP_TEXTS_DEFAULT};
    sb_knobs_init(&o->knobs);
    make_options(longs, names);
    optind = 0; /* the caller may have used getopt before */
    while ((code = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        int rc = take_option(o, code, err);
        if (rc < 0 || o->help)
            return rc;
    }
    if (optind < argc)
        return err_set(err, -EINVAL, "unexpected argument \"%s\"", argv[optind]);
    if (o->sets_n > 0 && !o->dialect)
        return err_set(err, -EINVAL, "dialect-set needs a dialect");
    return sb_knobs_check(&o->knobs, err);
}

/* --- running ---------------------------------------------------------------------------- */

static void on_signal(struct ev_loop *loop, ev_signal *w, int revents)
{
    (void)w;
    (void)revents;
    ev_break(loop, EVBREAK_ALL);
}

static void announce(const struct sandbox *sb)
{
    bool v6 = strchr(sb->host, ':') != NULL;

    printf("sandbox listening on http://%s%s%s:%u\n", v6 ? "[" : "", sb->host, v6 ? "]" : "",
           sb->port);
    fflush(stdout);
}

static void print_summary(struct sandbox *sb)
{
    json_t *o = sb_stats_json(sb);
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;

    if (text)
        puts(text);
    fflush(stdout);
    free(text);
    json_decref(o);
}

static int sandbox_init(struct sandbox *sb, const struct options *o, struct err *err)
{
    struct timespec ts;

    memset(sb, 0, sizeof(*sb));
    clock_gettime(CLOCK_REALTIME, &ts);
    sb->instance =
        sb_mix((uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec) ^ (uint64_t)getpid();
    sb->knobs = o->knobs;
    sb->port = o->port;
    memcpy(sb->host, o->host, sizeof(sb->host));
    sb->start_ms = sb_mono_ms();
    if (sb_ledger_new(o->max_keys, &sb->ledger) < 0 || sb_inbox_new(o->keep_texts, &sb->inbox) < 0)
        return err_set(err, -ENOMEM, "out of memory for %llu keys",
                       (unsigned long long)o->max_keys);
    if (o->ledger_file && !(sb->log = fopen(o->ledger_file, "ae")))
        return err_set(err, -errno, "could not open \"%s\": %s", o->ledger_file, strerror(errno));
    sb->loop = ev_loop_new(EVFLAG_AUTO);
    if (!sb->loop)
        return err_set(err, -EIO, "could not start the event loop");
    if (o->dialect) {
        int rc = sb_world_new(sb, o->dialect, o->sets, o->sets_n, &sb->world, err);
        if (rc < 0)
            return rc;
    }
    return sb_server_start(sb, err);
}

static int sandbox_done(struct sandbox *sb, struct err *err)
{
    int rc = 0;

    sb_server_stop(sb);
    sb->world = sb_world_free(sb->world);
    if (sb->log && fclose(sb->log) != 0)
        rc = err_set(err, -errno, "could not write the ledger file: %s", strerror(errno));
    if (sb->loop)
        ev_loop_destroy(sb->loop);
    for (unsigned i = 0; i < SB_LANES; i++)
        free(sb->delay[i]);
    sb_inbox_free(sb->inbox);
    sb_ledger_free(sb->ledger);
    return rc;
}

static void sandbox_run(struct sandbox *sb)
{
    ev_signal term;
    ev_signal intr;
    const struct sigaction ignore = {.sa_handler = SIG_IGN};

    ev_signal_init(&term, on_signal, SIGTERM);
    ev_signal_init(&intr, on_signal, SIGINT);
    ev_signal_start(sb->loop, &term);
    ev_signal_start(sb->loop, &intr);
    sigaction(SIGPIPE, &ignore, NULL);
    announce(sb);
    ev_run(sb->loop, 0);
    ev_signal_stop(sb->loop, &term);
    ev_signal_stop(sb->loop, &intr);
}

int sandbox_main(int argc, char **argv)
{
    struct err err = ERR_INIT;
    struct options o;
    struct sandbox sb;

    int rc = parse_options(&o, argc, argv, &err);
    if (rc < 0) {
        if (err.message)
            fprintf(stderr, "postrider sandbox: %s\n", err_text(&err));
        fprintf(stderr, "try \"postrider sandbox --help\"\n");
        err_done(&err);
        return EXIT_USAGE;
    }
    if (o.help) {
        print_help();
        return EXIT_DONE;
    }
    rc = sandbox_init(&sb, &o, &err);
    if (rc == 0) {
        sandbox_run(&sb);
        if (o.summary)
            print_summary(&sb);
    }
    int end = sandbox_done(&sb, rc == 0 ? &err : NULL);
    if (rc < 0 || end < 0)
        fprintf(stderr, "postrider sandbox: %s\n", err_text(&err));
    err_done(&err);
    return rc < 0 || end < 0 ? EXIT_FAILED : EXIT_DONE;
}
