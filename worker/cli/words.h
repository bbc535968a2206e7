/* words.h - how things are called for people: states, outcomes, durations, numbers.
 *
 * The word "sent" alone is never used: a vendor that took a message has not delivered it, and an
 * unknown outcome is no failure. Programs read the stored names, from --json. */
#ifndef POSTRIDER_CLI_WORDS_H
#define POSTRIDER_CLI_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Static; a name that is not known comes back as it is. */
const char *words_state(const char *state);
const char *words_outcome(const char *outcome);
const char *words_phase(const char *phase); /* how far an attempt came */

/* Bounded by the type of the number, not by the input. */
struct words {
    char text[48];
};
struct words words_duration(int64_t ms);  /* "35 ms", "2.4 s", "3 min 20 s", "1 d 4 h" */
struct words words_number(int64_t value); /* "1,234,567" */

/* Text from outside made fit for a terminal: one line, no controls. The caller frees; NULL when
 * out of memory. */
char *words_clean(const char *text);

/* The 36-character form of a UUID. */
bool words_is_uuid(const char *text);

#endif
