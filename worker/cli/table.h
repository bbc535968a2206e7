/* table.h - rows printed in columns.
 *
 * Cells are copied, and cleaned for a terminal. Memory that runs out is remembered and makes
 * table_print say so, so that callers need not look at each cell. */
#ifndef POSTRIDER_CLI_TABLE_H
#define POSTRIDER_CLI_TABLE_H

#include <stdint.h>
#include <stdio.h>

struct table;

/* `align` (borrowed) has an 'l' or 'r' a column. NULL when out of memory; every function takes
 * that NULL. */
struct table *table_new(const char *align);
struct table *table_free(struct table *t);

/* The next cell, row by row; a NULL text is an empty cell. */
void table_cell(struct table *t, const char *text);
void table_number(struct table *t, int64_t value);

/* Prints with two blanks before each column. */
void table_print(const struct table *t, FILE *out);

#endif
