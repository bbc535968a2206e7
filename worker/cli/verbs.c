#include "worker/cli/verbs.h"

#include <stdio.h>
#include <string.h>

#include "worker/cli/cli.h"
#include "worker/core/near.h"

static int help(const struct verb *verbs, const char *command, const char *about)
{
    printf("usage: postrider %s VERB [OPTIONS]\n\n%s\n\nverbs:\n", command, about);
    for (const struct verb *v = verbs; v->name; v++)
        printf("  %-8s %s%s\n", v->name, v->summary, v->run ? "" : " (not in this version)");
    printf("\npostrider %s VERB --help tells more\n", command);
    return EXIT_DONE;
}

static int refuse(const struct verb *verbs, const char *command, const char *word)
{
    struct near near;

    near_init(&near, word);
    for (const struct verb *v = verbs; v->name; v++)
        near_try(&near, v->name);
    if (near_best(&near))
        return cli_usage(command, "unknown verb \"%s\"; did you mean %s?", word, near_best(&near));
    return cli_usage(command, "unknown verb \"%s\"", word);
}

int verbs_run(const struct verb *verbs, const char *about, int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL;

    if (!word)
        return cli_usage(argv[0], "a verb is missing");
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return help(verbs, argv[0], about);
    for (const struct verb *v = verbs; v->name; v++) {
        if (strcmp(v->name, word) != 0)
            continue;
        if (v->run)
            return v->run(argc - 1, argv + 1);
        fprintf(stderr, "postrider %s %s: not in this version\n", argv[0], word);
        return EXIT_USAGE;
    }
    return refuse(verbs, argv[0], word);
}
