/* body.h - a text given as an operand, or on standard input when that is "-". */
#ifndef POSTRIDER_CLI_BODY_H
#define POSTRIDER_CLI_BODY_H

struct body {
    const char *text; /* NUL-terminated; valid until body_done */
    char *owned;      /* what was read */
};

/* An exit code; failures are printed. From standard input one line end at the end is dropped; a
 * NUL byte or more than 64 KiB is refused. Borrows `operand`. */
int body_read(const char *command, const char *operand, struct body *ret);
void body_done(struct body *body);

#endif
