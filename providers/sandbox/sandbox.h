/* sandbox.h - a simulated HTTP SMS vendor with the phones behind it.
 *
 * The sandbox is the judge in every test: what reached a phone, how often and when is
 * counted here and nowhere else. See README.md beside this file for options and API. */
#ifndef POSTRIDER_SANDBOX_SANDBOX_H
#define POSTRIDER_SANDBOX_SANDBOX_H

/* Runs `postrider sandbox` until SIGTERM or SIGINT. argv[0] is the command's name. Prints one
 * line "sandbox listening on http://HOST:PORT" once requests can be sent. Returns the exit
 * code: 0 done, 1 failed, 2 usage. */
int sandbox_main(int argc, char **argv);

#endif
