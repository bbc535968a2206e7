/* progress.h - how far something long has come, with rate and time left.
 *
 * On stderr: a bar that redraws itself on a terminal, a plain line every few seconds elsewhere.
 * Work that is over before the first of those is not talked about. */
#ifndef POSTRIDER_CLI_PROGRESS_H
#define POSTRIDER_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what; /* borrowed: "messages" */
    int64_t total;    /* an estimate; 0: not known */
    int64_t done;
    int64_t began_ms, shown_ms;
    bool terminal, shown;
};

void progress_begin(struct progress *p, const char *what, int64_t total);
void progress_add(struct progress *p, int64_t n);
/* The last state, if any was shown, and the end of its line. */
void progress_end(struct progress *p);

#endif
