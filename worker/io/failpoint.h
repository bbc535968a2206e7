/* failpoint.h - named places where a test makes this process die or stand still.
 *
 * Always compiled in and inert: without the environment variable POSTRIDER_FAILPOINT a point costs
 * one look at a flag. `POSTRIDER_FAILPOINT=call_permitted:3=kill` ends the process when it comes
 * to that point the third time (without ":N" the first):
 *
 *     kill  SIGKILL to itself     stop  SIGSTOP: continues with SIGCONT     exit  _exit(70)
 *
 * The points stand along the way of a message, named by what has happened last or has not
 * happened yet; failpoint.c lists them. */
#ifndef POSTRIDER_IO_FAILPOINT_H
#define POSTRIDER_IO_FAILPOINT_H

#include <stdbool.h>

struct err;

extern bool failpoint_armed; /* written by failpoint_arm only */
void failpoint_hit(const char *name);

/* Once, before the loop; `spec` may be NULL. -EINVAL when it cannot be read or names no point: a
 * test that misspells one must not pass. */
int failpoint_arm(const char *spec, struct err *err);

static inline void failpoint(const char *name)
{
    if (failpoint_armed)
        failpoint_hit(name);
}

#endif
