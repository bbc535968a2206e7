/* The commands whose names are kept: they say so, and never pretend. */
#include <stdio.h>
#include <string.h>

#include "worker/cli/cli.h"

int cmd_later(int argc, char **argv)
{
    const struct command *c = cli_commands;

    while (c->summary && !(c->name && strcmp(c->name, argv[0]) == 0))
        c++;
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        printf("usage: postrider %s\n\nNot in this version. It will be: %s.\n", argv[0],
               c->summary ? c->summary : "");
        return EXIT_DONE;
    }
    fprintf(stderr, "postrider %s: not in this version\n", argv[0]);
    return EXIT_USAGE;
}
