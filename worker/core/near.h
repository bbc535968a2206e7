/* near.h - what was probably meant: the nearest known word to a mistyped one.
 *
 * Distance is insertions, deletions, replacements and swaps of neighbours (optimal string
 * alignment), over bytes. Words longer than 63 bytes are near to nothing.
 *
 *     struct near near;
 *     near_init(&near, "in_fligth");
 *     for each known word: near_try(&near, word);
 *     near_best(&near)  ->  "in_flight"
 *
 * Pure; nothing is copied: the words must outlive the struct. */
#ifndef POSTRIDER_CORE_NEAR_H
#define POSTRIDER_CORE_NEAR_H

struct near {
    const char *word;
    const char *best;
    unsigned distance;
};

void near_init(struct near *near, const char *word);
void near_try(struct near *near, const char *known);

/* The nearest word tried, the first among equals; NULL when none is near enough to be worth
 * suggesting (more than a third of the word would have to change, or more than three bytes). */
const char *near_best(const struct near *near);

#endif
