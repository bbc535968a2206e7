/* status.h - the JSON of `postrider status`, for people. Both print on stdout. */
#ifndef POSTRIDER_CLI_STATUS_H
#define POSTRIDER_CLI_STATUS_H

#include <jansson.h>

void status_print(const json_t *status);
void status_print_line(const json_t *status); /* the totals on one line */

#endif
