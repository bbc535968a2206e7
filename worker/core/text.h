/* text.h - what a body costs on the air: alphabet, units, segments, and why.
 *
 * A body that consists of GSM-7 characters alone travels in septets, 160 in one message or
 * 153 in each part of several. One other character (a "culprit") turns the whole body into
 * UCS-2: 70 units, or 67 a part. Vendors bill parts, so a curly apostrophe may double a bill.
 *
 * Sources: 3GPP TS 23.038 §6.2.1 (default alphabet) and §6.2.1.1 (extension table: escape and
 * a second septet); 3GPP TS 23.040 §9.2.3.24.1 (six octets of concatenation header leave 153
 * septets or 67 units). A part never ends inside an escape pair or a surrogate pair: no
 * handset could show the halves. No national language tables: vendors rarely offer them.
 *
 * UCS-2 stands for UTF-16 here, as handsets have it: a character above U+FFFF is two units.
 * Text is UTF-8 and carries its length. A NUL in it is refused like invalid UTF-8 (PostgreSQL
 * does not store one). Pure: no allocation, no clock. sql/002_text.sql gives the same answers. */
#ifndef POSTRIDER_CORE_TEXT_H
#define POSTRIDER_CORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum text_alphabet {
    TEXT_GSM7 = 0, /* units are septets */
    TEXT_UCS2,     /* units are 16 bits */
};

/* One character that is not in GSM-7. */
struct text_culprit {
    uint32_t code; /* the code point; 0 = there is none */
    size_t at;     /* characters (code points) before it */
};

struct text_measure {
    enum text_alphabet alphabet;
    size_t characters; /* code points */
    size_t units;
    size_t segments;             /* 0 for an empty text */
    struct text_culprit culprit; /* the first; code 0 under TEXT_GSM7 */
};

/* "GSM-7" or "UCS-2". Static. */
const char *text_alphabet_name(enum text_alphabet alphabet);

/* Septets one character takes in GSM-7: 1, 2 (escaped), or 0 when it is not in it. */
unsigned int text_septets(uint32_t code);

/* Measures a whole body. Returns 0, or -EILSEQ with *ret untouched. O(len). */
int text_measure(const char *utf8, size_t len, struct text_measure *ret);

/* Walks over all characters that are not in GSM-7, in order:
 *     struct text_culprits it = TEXT_CULPRITS_OF(body, len);
 *     while (text_culprits_next(&it, &c)) ...
 * Borrows the text. Ends early at invalid UTF-8: measure first. */
struct text_culprits {
    const char *utf8;
    size_t len;
    size_t offset; /* bytes already read */
    size_t at;     /* characters already read */
};

#define TEXT_CULPRITS_OF(text, length)                                                             \
    {                                                                                              \
        (text), (length), 0, 0                                                                     \
    }

/* True and *ret set, or false at the end. */
bool text_culprits_next(struct text_culprits *it, struct text_culprit *ret);

/* One part as it travels: bytes [offset, offset + bytes) of the body. */
struct text_part {
    size_t offset;
    size_t bytes;
    size_t units;
};

/* Moves *io_part (zeroed before the first call) to the next part. `m` must be the measure of
 * this very text. False after the last part; there are m->segments of them. */
bool text_part_next(const char *utf8, size_t len, const struct text_measure *m,
                    struct text_part *io_part);

#endif
