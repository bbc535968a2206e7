/* clean.h - outside words made fit for a log line or an attempt row.
 *
 * Vendors answer with whatever they like: half a page of HTML, terminal escapes, line ends
 * that forge a log entry, bytes in no encoding, the code we have just sent. The result here
 * is valid UTF-8 on one line, without controls, of bounded length, and cleaning it again
 * changes nothing (so two layers may both do it).
 *
 *   - line feed, return, tab become \n \r \t, other controls below U+0100 \u{1b} and the
 *     like. A backslash stays as it is: the text is for eyes, not for reading back;
 *   - invisible and direction-changing characters above that, and each byte that is not
 *     UTF-8, become U+FFFD;
 *   - with CLEAN_MASK_DIGITS every digit of a run of four or more becomes '*', whatever
 *     script it is in; one blank, hyphen, full stop or unseen character between
 *     digits does not end a run ("482-913", phone numbers). Three digits stay: a status code is
 * worth reading. Codes made of letters cannot be known here; do not log bodies at all;
 *   - what does not fit is cut at a character (an escape is never cut either) and ends in
 *     an ellipsis.
 *
 * Pure: no allocation; the caller's buffer is the bound. */
#ifndef POSTRIDER_CORE_CLEAN_H
#define POSTRIDER_CORE_CLEAN_H

#include <stddef.h>

enum clean_flag {
    CLEAN_MASK_DIGITS = 1u << 0,
};

/* Writes at most size - 1 bytes and a NUL to dst; returns the bytes without the NUL. size 0
 * writes nothing. dst must not overlap text. Reads no more of text than the answer needs,
 * one run of digits aside. */
size_t clean_text(char *dst, size_t size, const char *text, size_t len, unsigned int flags);

#endif
