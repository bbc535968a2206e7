/* analyzer.h - for clang-tidy only: errno is positive where a function reads it.
 *
 * Without this the analyzer believes that `return -errno` may return 0, and follows the caller
 * into a success that cannot be. */
#ifndef POSTRIDER_LINT_ANALYZER_H
#define POSTRIDER_LINT_ANALYZER_H

#include <errno.h>

static inline int *lint_errno(void)
{
    int *location = __errno_location();

    if (*location <= 0)
        __builtin_unreachable();
    return location;
}

#undef errno
#define errno (*lint_errno())

#endif
