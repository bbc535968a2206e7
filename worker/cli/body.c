#include "worker/cli/body.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/cli/cli.h"

enum { BODY_MAX = 64 * 1024 };

static int read_all(const char *command, char *buffer)
{
    size_t n = fread(buffer, 1, BODY_MAX + 1, stdin);

    if (ferror(stdin)) {
        fprintf(stderr, "postrider %s: could not read standard input: %s\n", command,
                strerror(errno));
        return EXIT_FAILED;
    }
    if (n > BODY_MAX) {
        fprintf(stderr, "postrider %s: standard input is longer than %d bytes\n", command,
                BODY_MAX);
        return EXIT_FAILED;
    }
    if (strlen(buffer) != n) {
        fprintf(stderr, "postrider %s: standard input has a NUL byte, no text has one\n", command);
        return EXIT_FAILED;
    }
    if (n > 0 && buffer[n - 1] == '\n')
        buffer[n - 1] = '\0';
    return EXIT_DONE;
}

int body_read(const char *command, const char *operand, struct body *ret)
{
    int code;

    *ret = (struct body){.text = operand};
    if (strcmp(operand, "-") != 0)
        return EXIT_DONE;
    ret->owned = calloc(1, BODY_MAX + 2);
    if (!ret->owned) {
        fprintf(stderr, "postrider %s: out of memory\n", command);
        return EXIT_FAILED;
    }
    code = read_all(command, ret->owned);
    ret->text = ret->owned;
    if (code != EXIT_DONE)
        body_done(ret);
    return code;
}

void body_done(struct body *body)
{
    free(body->owned);
    *body = (struct body){0};
}
