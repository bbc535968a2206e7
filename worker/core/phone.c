#include "worker/core/phone.h"

#include "worker/core/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* What people put between digits, in order. sql/002_text.sql has the same list. */
static const struct {
    uint32_t first, last;
} separators[] = {
    {0x09, 0x0d},     /* tab, line ends */
    {' ', ' '},       /* */
    {'(', ')'},       /* */
    {'-', '/'},       /* hyphen, full stop, slash */
    {0x85, 0x85},     /* next line */
    {0xa0, 0xa0},     /* no-break space */
    {0x1680, 0x1680}, /* ogham space */
    {0x2000, 0x2015}, /* spaces, zero width and direction marks, hyphens and dashes */
    {0x2028, 0x202f}, /* line and paragraph separator, embeddings, narrow no-break space */
    {0x205f, 0x2060}, /* mathematical space, word joiner */
    {0x2066, 0x2069}, /* direction isolates */
    {0x2212, 0x2212}, /* minus */
    {0x3000, 0x3000}, /* ideographic space */
    {0xfeff, 0xfeff}, /* zero width no-break space */
};

static bool is_separator(uint32_t code)
{
    for (size_t i = 0; i < sizeof(separators) / sizeof(*separators); i++) {
        if (code <= separators[i].last)
            return code >= separators[i].first;
    }
    return false;
}

/* What is left of the input when separators are gone: digits, and whether a plus led them. */
struct digits {
    bool plus;
    size_t count;
    char digit[PHONE_DIGITS_MAX + 2]; /* room for a leading 00 */
};

static enum phone_fault take(struct digits *d, uint32_t code)
{
    if (is_separator(code))
        return PHONE_OK;
    if (code == '+') {
        if (d->plus || d->count > 0)
            return PHONE_PLUS;
        d->plus = true;
        return PHONE_OK;
    }
    if (code > 0x7f)
        return PHONE_FOREIGN;
    if (code < '0' || code > '9')
        return PHONE_CHARACTER;
    if (d->count == sizeof(d->digit))
        return PHONE_LONG;
    d->digit[d->count++] = (char)code;
    return PHONE_OK;
}

static enum phone_fault settle(const struct digits *d, struct phone *ret)
{
    bool international = d->plus;
    const char *digit = d->digit;
    size_t count = d->count;

    if (count == 0)
        return PHONE_EMPTY;
    if (!international && count >= 2 && digit[0] == '0' && digit[1] == '0') {
        international = true;
        digit += 2;
        count -= 2;
    }
    if (count > 0 && digit[0] == '0')
        return PHONE_ZERO;
    if (count < (international ? PHONE_DIGITS_MIN : PHONE_BARE_DIGITS_MIN))
        return PHONE_SHORT;
    if (count > PHONE_DIGITS_MAX)
        return PHONE_LONG;
    ret->e164[0] = '+';
    memcpy(ret->e164 + 1, digit, count);
    ret->e164[count + 1] = '\0';
    return PHONE_OK;
}

enum phone_fault phone_normalize(const char *utf8, size_t len, struct phone *ret)
{
    struct digits d = {0};
    uint32_t code;

    for (size_t at = 0; at < len;) {
        if (utf8_next(utf8, len, &at, &code) < 0)
            return PHONE_NOT_UTF8;
        enum phone_fault fault = take(&d, code);

        if (fault != PHONE_OK)
            return fault;
    }
    return settle(&d, ret);
}

const char *phone_fault_text(enum phone_fault fault)
{
    static const char *const text[] = {
        [PHONE_OK] = "a valid number",
        [PHONE_EMPTY] = "there is no digit in it",
        [PHONE_NOT_UTF8] = "it is not valid UTF-8",
        [PHONE_CHARACTER] = "it has a letter or sign that belongs in no number",
        [PHONE_FOREIGN] = "it has a character outside ASCII, such as a full-width digit",
        [PHONE_PLUS] = "only one plus may stand in it, before all digits",
        [PHONE_ZERO] = "it begins with 0, so the country code is missing",
        [PHONE_SHORT] = "it has too few digits, 7 to 15 are needed (8 to 15 without a plus)",
        [PHONE_LONG] = "it has more than 15 digits",
    };

    return (unsigned int)fault < PHONE_FAULT_MAX_ ? text[fault] : "it is not a number";
}
