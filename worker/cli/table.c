#include "worker/cli/table.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "worker/cli/words.h"

enum { COLUMNS_MAX = 16 };

struct table {
    const char *align;
    size_t columns;
    char **cells;
    size_t n, cap;
    bool failed;
};

struct table *table_new(const char *align)
{
    struct table *t = calloc(1, sizeof(*t));

    if (t) {
        t->align = align;
        t->columns = strnlen(align, COLUMNS_MAX);
    }
    return t;
}

struct table *table_free(struct table *t)
{
    if (t) {
        for (size_t i = 0; i < t->n; i++)
            free(t->cells[i]);
        free(t->cells);
        free(t);
    }
    return NULL;
}

static bool grow(struct table *t)
{
    size_t cap = t->cap ? t->cap * 2 : 64;
    char **more = reallocarray(t->cells, cap, sizeof(*more));

    if (!more)
        return false;
    t->cells = more;
    t->cap = cap;
    return true;
}

void table_cell(struct table *t, const char *text)
{
    if (!t || t->failed)
        return;
    t->failed = t->n == t->cap && !grow(t);
    if (t->failed)
        return;
    t->cells[t->n] = words_clean(text ? text : "");
    t->failed = !t->cells[t->n];
    t->n += !t->failed;
}

void table_number(struct table *t, int64_t value)
{
    table_cell(t, words_number(value).text);
}

/* Code points: columns, for the scripts that names and numbers are written in. */
static size_t width_of(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void print_cell(const struct table *t, size_t i, const size_t *widths, FILE *out)
{
    size_t column = i % t->columns;
    const char *text = t->cells[i];
    int gap = (int)(widths[column] - width_of(text));

    if (t->align[column] == 'r')
        fprintf(out, "  %*s%s", gap, "", text);
    else if (column + 1 < t->columns)
        fprintf(out, "  %s%*s", text, gap, "");
    else
        fprintf(out, "  %s", text);
    if (column + 1 == t->columns)
        fputc('\n', out);
}

void table_print(const struct table *t, FILE *out)
{
    size_t widths[COLUMNS_MAX] = {0};

    if (!t || t->failed) {
        fputs("  out of memory\n", out);
        return;
    }
    for (size_t i = 0; i < t->n; i++) {
        size_t width = width_of(t->cells[i]);

        if (width > widths[i % t->columns])
            widths[i % t->columns] = width;
    }
    for (size_t i = 0; i < t->n; i++)
        print_cell(t, i, widths, out);
}
