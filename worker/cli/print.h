/* print.h - data on stdout: JSON for programs, fields of the same JSON for people. */
#ifndef POSTRIDER_CLI_PRINT_H
#define POSTRIDER_CLI_PRINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Both print and free; NULL means out of memory. EXIT_DONE or EXIT_FAILED. */
int print_json_take(json_t *json);
int print_json_line_take(json_t *json); /* on one line */

/* A member; "", -1 or false where there is none. Borrowed. */
const char *member_text(const json_t *object, const char *name);
int64_t member_number(const json_t *object, const char *name);
bool member_true(const json_t *object, const char *name);

/* "label     text" with the text cleaned; nothing when the text is NULL or empty. */
void print_field(const char *label, const char *text);

/* Asks on the terminal; false when the answer is not yes, or there is no terminal to ask. */
bool print_ask(const char *question);

#endif
