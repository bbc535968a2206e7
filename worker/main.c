/* postrider - delivers SMS and one-time codes from PostgreSQL. */
#include <stdio.h>
#include <string.h>

#include "worker/cli/cli.h"
#include "worker/core/near.h"

static void print_help(FILE *out)
{
    fputs(
        "usage: postrider COMMAND [OPTIONS]\n"
        "\n"
        "Delivers SMS and one-time codes from PostgreSQL: nothing accepted is lost, nothing is\n"
        "doubled where the vendor can prevent it, and what cannot be known is named and counted.\n",
        out);
    for (const struct command *c = cli_commands; c->summary; c++) {
        if (c->name)
            fprintf(out, "  %-10s %s\n", c->name, c->summary);
        else
            fprintf(out, "\n%s:\n", c->summary);
    }
    fputs("\npostrider COMMAND --help tells more; postrider --version tells which this is.\n"
          "exit codes: 0 done, 1 failed, 2 usage, 3 configuration\n",
          out);
}

static int refuse(const char *word)
{
    struct near near;

    near_init(&near, word);
    for (const struct command *c = cli_commands; c->summary; c++) {
        if (c->name)
            near_try(&near, c->name);
    }
    fprintf(stderr, "postrider: unknown command \"%s\"\n", word);
    if (near_best(&near))
        fprintf(stderr, "did you mean: postrider %s\n", near_best(&near));
    fputs("try: postrider --help\n", stderr);
    return EXIT_USAGE;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("postrider " POSTRIDER_VERSION);
        return EXIT_DONE;
    }
    for (const struct command *c = cli_commands; c->summary; c++) {
        if (c->name && strcmp(argv[1], c->name) == 0)
            return c->run(argc - 1, argv + 1);
    }
    return refuse(argv[1]);
}

int main(int argc, char **argv)
{
    int code = run(argc, argv);

    /* A full disk must not look like success. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == EXIT_DONE) {
        fputs("postrider: could not write all of the output\n", stderr);
        code = EXIT_FAILED;
    }
    return code;
}
