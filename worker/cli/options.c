#include "worker/cli/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/cli/cli.h"
#include "worker/core/near.h"

enum { OPTIONS_MAX = 32, HELP_VALUE = 255, VALUE_BASE = 256, HELP_COLUMN = 26 };

/* ---- help ---------------------------------------------------------------------------------- */

/* The cursor is `at` characters into the line; each line of the text begins at `column`. */
static void print_lines(const char *lines, int at, int column)
{
    while (*lines) {
        const char *end = strchrnul(lines, '\n');

        if (at + 2 > column) {
            putchar('\n');
            at = 0;
        }
        printf("%*s%.*s", column - at, "", (int)(end - lines), lines);
        at = column;
        lines = *end ? end + 1 : end;
    }
    putchar('\n');
}

static void print_option(const struct cli_option *o)
{
    int n = o->letter ? printf("  -%c, --%s", o->letter, o->name) : printf("      --%s", o->name);

    if (o->arg)
        n += printf(" %s", o->arg);
    print_lines(o->help, n, HELP_COLUMN);
}

static void print_usage(const struct cli_spec *spec)
{
    const char *line = spec->usage, *lead = "usage:";

    do {
        const char *end = strchrnul(line, '\n');

        printf("%s postrider %s %.*s\n", lead, spec->name, (int)(end - line), line);
        lead = "      ";
        line = *end ? end + 1 : end;
    } while (*line);
}

static void print_help(const struct cli_spec *spec)
{
    static const struct cli_option help = {"help", 'h', CLI_FLAG, 0, NULL, "this text", 0, 0};

    print_usage(spec);
    printf("\n%s\n", spec->about);
    for (const struct cli_option *o = spec->options; o->help; o++) {
        if (o->type == CLI_GROUP)
            printf("\n%s:\n", o->help);
        else
            print_option(o);
    }
    print_option(&help);
    if (spec->more)
        printf("\n%s\n", spec->more);
}

/* ---- reading ------------------------------------------------------------------------------- */

static int value_of(const struct cli_option *options, size_t i)
{
    return options[i].letter ? options[i].letter : VALUE_BASE + (int)i;
}

static const struct cli_option *option_of(const struct cli_spec *spec, int value)
{
    for (size_t i = 0; spec->options[i].help; i++) {
        if (spec->options[i].type != CLI_GROUP && value_of(spec->options, i) == value)
            return &spec->options[i];
    }
    return NULL;
}

/* getopt's two forms of the table. */
static void tables(const struct cli_spec *spec, struct option *longs, char *letters)
{
    size_t n = 0;

    *letters++ = ':';
    for (size_t i = 0; spec->options[i].help && n < OPTIONS_MAX; i++) {
        const struct cli_option *o = &spec->options[i];

        if (o->type == CLI_GROUP)
            continue;
        longs[n++] = (struct option){o->name, o->type == CLI_FLAG ? no_argument : required_argument,
                                     NULL, value_of(spec->options, i)};
        if (o->letter) {
            *letters++ = o->letter;
            if (o->type != CLI_FLAG)
                *letters++ = ':';
        }
    }
    longs[n++] = (struct option){"help", no_argument, NULL, HELP_VALUE};
    longs[n] = (struct option){0};
    *letters++ = 'h';
    *letters = '\0';
}

static int refuse_unknown(const struct cli_spec *spec, const char *word)
{
    const char *best;
    struct near near;

    near_init(&near, word + strspn(word, "-"));
    for (size_t i = 0; spec->options[i].help; i++) {
        if (spec->options[i].name)
            near_try(&near, spec->options[i].name);
    }
    best = near_best(&near);
    if (best && strncmp(word, "--", 2) == 0)
        return cli_usage(spec->name, "unknown option \"%s\"; did you mean --%s?", word, best);
    return cli_usage(spec->name, "unknown option \"%s\"", word);
}

static int refuse_option(const struct cli_spec *spec, int opt, char **argv)
{
    const struct cli_option *o = option_of(spec, optopt);
    char letter[3] = {'-', (char)optopt, '\0'};

    if (opt == ':')
        return cli_usage(spec->name, "--%s needs %s", o ? o->name : "?",
                         o && o->arg ? o->arg : "a value");
    if (o)
        return cli_usage(spec->name, "--%s takes no value", o->name);
    if (optopt > 0 && optopt < HELP_VALUE)
        return refuse_unknown(spec, letter);
    return refuse_unknown(spec, argv[optind - 1]);
}

static int store(const struct cli_spec *spec, const struct cli_option *o, void *into)
{
    void *to = (char *)into + o->offset;

    if (o->type == CLI_FLAG)
        *(bool *)to = true;
    else if (o->type == CLI_TEXT)
        *(const char **)to = optarg;
    else if (!cli_int(optarg, o->min, o->max, to))
        return cli_usage(spec->name, "--%s is \"%s\", must be a number from %lld to %lld", o->name,
                         optarg, (long long)o->min, (long long)o->max);
    return CLI_GO;
}

static int count_operands(const struct cli_spec *spec, int n, char **args)
{
    if (n < spec->args_min)
        return cli_usage(spec->name, "%s is missing", spec->missing);
    if (spec->args_max >= 0 && n > spec->args_max)
        return cli_usage(spec->name, "unexpected \"%s\"", args[spec->args_max]);
    return CLI_GO;
}

int cli_parse(const struct cli_spec *spec, int argc, char **argv, void *into, char ***ret_args,
              int *ret_n)
{
    struct option longs[OPTIONS_MAX + 2];
    char letters[OPTIONS_MAX * 2 + 3];
    int opt, rc;

    tables(spec, longs, letters);
    opterr = 0;
    while ((opt = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
        if (opt == 'h' || opt == HELP_VALUE) {
            print_help(spec);
            return EXIT_DONE;
        }
        if (opt == '?' || opt == ':')
            return refuse_option(spec, opt, argv);
        rc = store(spec, option_of(spec, opt), into);
        if (rc != CLI_GO)
            return rc;
    }
    rc = count_operands(spec, argc - optind, argv + optind);
    if (rc == CLI_GO && ret_args) {
        *ret_args = argv + optind;
        *ret_n = argc - optind;
    }
    return rc;
}

bool cli_int(const char *text, int64_t min, int64_t max, int64_t *ret)
{
    char *end = NULL;

    if (*text == '\0' || strspn(text, "-0123456789") != strlen(text))
        return false;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0' || n < min || n > max)
        return false;
    *ret = n;
    return true;
}
