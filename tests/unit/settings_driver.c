/* Prints the tables of settings as the README shows them, for tests/e2e/test_readme.py. */
#include <inttypes.h>
#include <stdio.h>

#include "worker/engine/config.h"

static void print_list(const char *choices)
{
    for (; *choices; choices++)
        fputs(*choices == '|' ? ", " : (const char[]){*choices, '\0'}, stdout);
}

static void print_row(const struct config_setting *s)
{
    printf("| `%s` | ", s->name);
    if (s->required)
        fputs("required", stdout);
    else if (s->type == CONFIG_INT)
        printf("%" PRId64, s->def);
    else
        fputs(s->def_text ? s->def_text : "–", stdout);
    fputs(" | ", stdout);
    if (s->type == CONFIG_INT)
        printf("%" PRId64 " to %" PRId64, s->min, s->max);
    else if (s->type == CONFIG_CHOICE)
        print_list(s->choices);
    else
        fputs(s->type == CONFIG_OBJECT ? "object" : "text", stdout);
    printf(" | %s | %s |\n", s->reloadable ? "yes" : "–", s->help);
}

static void print_table(const char *what, const struct config_setting *s)
{
    printf("| %s | default | range | reload | what |\n|---|---|---|---|---|\n", what);
    for (; s->name; s++)
        print_row(s);
}

int main(void)
{
    print_table("setting", config_settings);
    putchar('\n');
    print_table("of each provider", config_provider_settings);
    return 0;
}
