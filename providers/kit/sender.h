/* sender.h - what may stand as a message's sender. Pure.
 *
 * 3GPP TS 23.040 §9.1.2.5 leaves an address 20 semi-octets: eleven characters of the 7-bit
 * alphabet for a name; E.164 leaves a number fifteen digits. Vendors take a longer one and their
 * networks then drop or cut the message: it is refused here (case H6). */
#ifndef POSTRIDER_KIT_SENDER_H
#define POSTRIDER_KIT_SENDER_H

enum sender_kind {
    SENDER_BAD = 0,
    SENDER_NUMBER, /* 7 to 15 digits, with or without + */
    SENDER_SHORT,  /* a short code: 3 to 6 digits */
    SENDER_NAME,   /* 1 to 11 printable ASCII characters, one of them a letter */
};

/* NULL is SENDER_BAD. */
enum sender_kind sender_kind(const char *sender);

/* Why SENDER_BAD is refused, for settings_refuse. */
#define SENDER_RULE                                                                                \
    "is neither a number of up to 15 digits nor a name of up to 11 characters with a letter"

#endif
