/* phone.h - one number, one spelling.
 *
 * People write a number in many ways; only E.164 ("+", a country code, at most 15 digits:
 * ITU-T E.164 §6.2.1) may reach a vendor or a unique index. What is taken off: white space of
 * any script, invisible marks that come along when a number is copied, hyphens and dashes,
 * ( ) . and /. A leading 00 means "+". Eight to fifteen bare digits that do not begin with 0
 * are taken as international. Everything else is refused, never repaired: a number with a
 * digit too few is somebody else's number.
 *
 * Digits of other scripts (full-width, Arabic) are refused. No list of countries: lengths and
 * codes change, and the vendor knows them. Pure. sql/002_text.sql gives the same answers. */
#ifndef POSTRIDER_CORE_PHONE_H
#define POSTRIDER_CORE_PHONE_H

#include <stddef.h>

enum { PHONE_DIGITS_MAX = 15, PHONE_DIGITS_MIN = 7, PHONE_BARE_DIGITS_MIN = 8 };

/* Bounded by the standard, not by the input: "+", 15 digits, NUL. */
struct phone {
    char e164[PHONE_DIGITS_MAX + 2];
};

enum phone_fault {
    PHONE_OK = 0,
    PHONE_EMPTY,     /* no digit in it */
    PHONE_NOT_UTF8,  /* the bytes are not text */
    PHONE_CHARACTER, /* a letter or sign that belongs in no number */
    PHONE_FOREIGN,   /* a character outside ASCII, such as a full-width digit */
    PHONE_PLUS,      /* a plus that is not the first sign */
    PHONE_ZERO,      /* begins with 0: a national form, or no country code */
    PHONE_SHORT,     /* fewer than 7 digits, or 8 when bare */
    PHONE_LONG,      /* more than 15 digits */
    PHONE_FAULT_MAX_ /* keep last */
};

/* Normalises len bytes. PHONE_OK and *ret set, or the first fault found and *ret untouched. */
enum phone_fault phone_normalize(const char *utf8, size_t len, struct phone *ret);

/* The fault for people, lower case, without the number itself. Static. */
const char *phone_fault_text(enum phone_fault fault);

#endif
