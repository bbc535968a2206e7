#include "worker/core/text.h"

#include "worker/core/utf8.h"

#include <errno.h>

/* 3GPP TS 23.038 by Unicode code point, U+0000 to U+00FF, sixteen a row: the septets each takes. */
static const char latin_septets[] =
    "0000000000102100"  /* LF, FF by escape, CR */
    "0000000000000000"  /* ESC itself is no character */
    "1111111111111111"  /* space to / */
    "1111111111111111"  /* 0 to ? */
    "1111111111111111"  /* @ to O */
    "1111111111122221"  /* [ \ ] ^ by escape */
    "0111111111111111"  /* no backtick */
    "1111111111122220"  /* { | } ~ by escape, no DEL */
    "0000000000000000"  /* C1 controls */
    "0000000000000000"  /* C1 controls */
    "0101110100000000"  /* inverted !, pound, currency, yen, section */
    "0000000000000001"  /* inverted ? */
    "0000111101000000"  /* A umlaut, A ring, AE, C cedilla, E acute */
    "0100001010001001"  /* N tilde, O umlaut, O slash, U umlaut, sharp s */
    "1000111011001000"  /* a grave, a umlaut, a ring, ae, e grave, e acute, i grave */
    "0110001011001000"; /* n tilde, o grave, o umlaut, o slash, u grave, u umlaut */

enum { EURO = 0x20ac };

/* What fits: alone, and in each part of several. */
static const struct {
    size_t single, part;
} limits[] = {
    [TEXT_GSM7] = {160, 153},
    [TEXT_UCS2] = {70, 67},
};

/* Fills parts one after the other with characters of one or two units, never cutting one. */
struct packer {
    size_t part; /* units a part holds */
    size_t units;
    size_t parts;
    size_t used; /* units in the last part */
};

static void pack(struct packer *p, unsigned int units)
{
    p->units += units;
    if (p->parts == 0 || p->used + units > p->part) {
        p->parts++;
        p->used = 0;
    }
    p->used += units;
}

const char *text_alphabet_name(enum text_alphabet alphabet)
{
    return alphabet == TEXT_GSM7 ? "GSM-7" : "UCS-2";
}

unsigned int text_septets(uint32_t code)
{
    if (code <= 0xff)
        return (unsigned int)(latin_septets[code] - '0');
    switch (code) {
    case 0x393: /* Gamma */
    case 0x394: /* Delta */
    case 0x398: /* Theta */
    case 0x39b: /* Lambda */
    case 0x39e: /* Xi */
    case 0x3a0: /* Pi */
    case 0x3a3: /* Sigma */
    case 0x3a6: /* Phi */
    case 0x3a8: /* Psi */
    case 0x3a9: /* Omega */
        return 1;
    case EURO:
        return 2;
    default:
        return 0;
    }
}

static unsigned int ucs2_units(uint32_t code)
{
    return code > 0xffff ? 2 : 1;
}

/* NUL is what libc and PostgreSQL would end the text at, so it counts as broken too. */
static int next_character(const char *utf8, size_t len, size_t *io_at, uint32_t *ret_code)
{
    int r = utf8_next(utf8, len, io_at, ret_code);

    return r == 0 && *ret_code == 0 ? -EILSEQ : r;
}

int text_measure(const char *utf8, size_t len, struct text_measure *ret)
{
    struct packer septets = {.part = limits[TEXT_GSM7].part};
    struct packer ucs2 = {.part = limits[TEXT_UCS2].part};
    struct text_measure m = {.alphabet = TEXT_GSM7};
    const struct packer *used;
    uint32_t code;

    for (size_t at = 0; at < len; m.characters++) {
        int r = next_character(utf8, len, &at, &code);

        if (r < 0)
            return r;
        unsigned int n = text_septets(code);

        if (n == 0 && m.alphabet == TEXT_GSM7) {
            m.alphabet = TEXT_UCS2;
            m.culprit = (struct text_culprit){code, m.characters};
        }
        pack(&septets, n);
        pack(&ucs2, ucs2_units(code));
    }
    used = m.alphabet == TEXT_GSM7 ? &septets : &ucs2;
    m.units = used->units;
    m.segments = used->units <= limits[m.alphabet].single ? used->units > 0 : used->parts;
    *ret = m;
    return 0;
}

bool text_culprits_next(struct text_culprits *it, struct text_culprit *ret)
{
    uint32_t code;

    while (it->offset < it->len) {
        if (next_character(it->utf8, it->len, &it->offset, &code) < 0)
            return false;
        size_t at = it->at++;

        if (text_septets(code) == 0) {
            *ret = (struct text_culprit){code, at};
            return true;
        }
    }
    return false;
}

bool text_part_next(const char *utf8, size_t len, const struct text_measure *m,
                    struct text_part *io_part)
{
    size_t room = m->segments > 1 ? limits[m->alphabet].part : limits[m->alphabet].single;
    struct text_part part = {.offset = io_part->offset + io_part->bytes};
    uint32_t code;

    for (size_t at = part.offset; at < len; part.bytes = at - part.offset) {
        if (next_character(utf8, len, &at, &code) < 0)
            break;
        unsigned int n = m->alphabet == TEXT_GSM7 ? text_septets(code) : ucs2_units(code);

        if (part.units + n > room)
            break;
        part.units += n;
    }
    if (part.bytes == 0)
        return false;
    *io_part = part;
    return true;
}
