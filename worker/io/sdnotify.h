/* sdnotify.h - tells the service manager how the worker is (sd_notify(3)).
 *
 * The protocol is one datagram of NAME=VALUE lines to the socket named in NOTIFY_SOCKET, and is
 * stable and public. We send it ourselves. Outside systemd (no NOTIFY_SOCKET) everything does
 * nothing and returns 0. Returns: 1 told, 0 nobody asked, -Exxx could not (never a reason to stop;
 * log it once). Never waits: a full socket is -EAGAIN. One thread. */
#ifndef POSTRIDER_IO_SDNOTIFY_H
#define POSTRIDER_IO_SDNOTIFY_H

#include <stdint.h>

/* READY=1 with a STATUS (NULL = none): after start, and again when a reload ended. */
int sdnotify_ready(const char *status);
/* RELOADING=1 with MONOTONIC_USEC; to be followed by sdnotify_ready. */
int sdnotify_reloading(void);
int sdnotify_stopping(void);
/* STATUS=one line for `systemctl status`; a line break ends it. */
int sdnotify_status(const char *status);
/* WATCHDOG=1. Call it from a timer of the loop, so that a loop that stands still is noticed. */
int sdnotify_watchdog(void);

/* How often to call sdnotify_watchdog, in seconds: half of WATCHDOG_USEC, if that is meant for this
 * process (WATCHDOG_PID); 0 = no watchdog is set. */
double sdnotify_watchdog_interval(void);

#endif
