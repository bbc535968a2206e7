/* postrider - delivers SMS and one-time codes from PostgreSQL. */
#include <stdio.h>
#include <string.h>

#include "worker/cli/cli.h"

#define VERSION "0.1.0"

static void print_help(FILE *out)
{
    fputs(
        "usage: postrider COMMAND [OPTIONS]\n"
        "\n"
        "Delivers SMS and one-time codes from PostgreSQL: nothing accepted is lost, nothing is\n"
        "doubled where the vendor can prevent it, and what cannot be known is named and counted.\n"
        "\n",
        out);
    for (const struct command *c = cli_commands; c->name; c++)
        fprintf(out, "  %-10s %s\n", c->name, c->summary);
    fputs("\npostrider COMMAND --help tells more. Exit codes: 0 done, 1 failed, 2 usage, "
          "3 configuration.\n",
          out);
}

int main(int argc, char **argv)
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
        puts("postrider " VERSION);
        return EXIT_DONE;
    }
    for (const struct command *c = cli_commands; c->name; c++) {
        if (strcmp(argv[1], c->name) == 0)
            return c->run(argc - 1, argv + 1);
    }
    fprintf(stderr, "postrider: unknown command \"%s\"\ntry: postrider --help\n", argv[1]);
    return EXIT_USAGE;
}
