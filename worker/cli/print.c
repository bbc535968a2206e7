#include "worker/cli/print.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "worker/cli/cli.h"
#include "worker/cli/words.h"

static int print_take(json_t *json, size_t flags)
{
    int rc = json ? json_dumpf(json, stdout, flags) : -1;

    json_decref(json);
    if (rc != 0) {
        fputs("postrider: out of memory\n", stderr);
        return EXIT_FAILED;
    }
    putchar('\n');
    fflush(stdout);
    return EXIT_DONE;
}

int print_json_take(json_t *json)
{
    return print_take(json, JSON_INDENT(2));
}

int print_json_line_take(json_t *json)
{
    return print_take(json, JSON_COMPACT);
}

const char *member_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text ? text : "";
}

int64_t member_number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);

    return json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
}

bool member_true(const json_t *object, const char *name)
{
    return json_is_true(json_object_get(object, name));
}

void print_field(const char *label, const char *text)
{
    char *clean = text && *text ? words_clean(text) : NULL;

    if (clean)
        printf("%-10s %s\n", label, clean);
    free(clean);
}

bool print_ask(const char *question)
{
    char answer[16];

    if (isatty(STDIN_FILENO) != 1)
        return false;
    fprintf(stderr, "%s [y/N] ", question);
    if (!fgets(answer, sizeof(answer), stdin))
        return false;
    return answer[0] == 'y' || answer[0] == 'Y';
}
