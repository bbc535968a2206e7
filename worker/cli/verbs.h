/* verbs.h - commands that have commands of their own: `postrider provider list`. */
#ifndef POSTRIDER_CLI_VERBS_H
#define POSTRIDER_CLI_VERBS_H

struct verb {
    const char *name;
    /* Gets argv with the verb first; NULL: not in this version. */
    int (*run)(int argc, char **argv);
    const char *summary;
};

/* Runs the verb that argv[1] names; `verbs` ends with name NULL. Returns an exit code. */
int verbs_run(const struct verb *verbs, const char *about, int argc, char **argv);

#endif
