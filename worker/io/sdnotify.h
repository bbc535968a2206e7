/* sdnotify.h - tells the service manager how the worker is (sd_notify(3)).
 *
 * The protocol is one datagram of NAME=VALUE lines to the socket named in NOTIFY_SOCKET; it is
 * public and stable. It is sent from here and not by libsystemd for one reason: libsystemd's
 * sd_notify waits while the manager's queue is full (measured with 252: ten datagrams unread, and
 * the eleventh call does not return), and nothing in our loop may wait. It would also bring five
 * libraries into every worker for one sendto.
 *
 * Outside systemd (no NOTIFY_SOCKET) everything does nothing and returns 0.
 * Returns: 1 told, 0 nobody asked, -Exxx could not (never a reason to stop; log it once): -EAGAIN
 * is a full socket, -EINVAL a NOTIFY_SOCKET that is neither a path nor '@name'. One thread. */
#ifndef POSTRIDER_IO_SDNOTIFY_H
#define POSTRIDER_IO_SDNOTIFY_H

/* READY=1 with a STATUS (NULL = none): after start, and again when a reload ended. */
int sdnotify_ready(const char *status);
/* RELOADING=1 with MONOTONIC_USEC; to be followed by sdnotify_ready. */
int sdnotify_reloading(void);
int sdnotify_stopping(void);
/* STATUS=, one line for `systemctl status`: a line break ends it, 200 bytes are kept. */
int sdnotify_status(const char *status);
/* WATCHDOG=1. Call it from a timer of the loop, so that a loop that stands still is noticed. */
int sdnotify_watchdog(void);

/* How often to call sdnotify_watchdog, in seconds: half of WATCHDOG_USEC if that is meant for this
 * process (WATCHDOG_PID); 0 = no watchdog is set. */
double sdnotify_watchdog_interval(void);

#endif
