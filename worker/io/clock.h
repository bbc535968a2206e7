/* clock.h - the one place where clocks are read.
 *
 * Boot time counts through suspend and is never stepped: leases, timeouts and gates use it
 * (rule R4). Real time may jump; it decides nothing stored (rule R9) and is for log lines,
 * HTTP dates and for noticing that it jumped. Cannot fail; costs no system call. */
#ifndef POSTRIDER_IO_CLOCK_H
#define POSTRIDER_IO_CLOCK_H

#include <stdint.h>

int64_t clock_boot_ms(void);
int64_t clock_boot_us(void);
int64_t clock_real_ms(void); /* since 1970, UTC */

#endif
