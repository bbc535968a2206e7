#include "providers/kit/sender.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { DIGITS_MAX = 15, NAME_MAX_LEN = 11, SHORT_MIN = 3, NUMBER_MIN = 7 };

static bool is_letter(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

enum sender_kind sender_kind(const char *sender)
{
    bool plus = sender && *sender == '+', letter = false;
    const char *digits = sender ? sender + plus : "";
    size_t len = strlen(digits);

    if (len > 0 && strspn(digits, "0123456789") == len) {
        if (len >= NUMBER_MIN && len <= DIGITS_MAX)
            return SENDER_NUMBER;
        return !plus && len >= SHORT_MIN && len < NUMBER_MIN ? SENDER_SHORT : SENDER_BAD;
    }
    if (plus || len == 0 || len > NAME_MAX_LEN)
        return SENDER_BAD;
    for (size_t i = 0; i < len; i++) {
        if (digits[i] < ' ' || digits[i] > '~')
            return SENDER_BAD;
        letter |= is_letter(digits[i]);
    }
    return letter ? SENDER_NAME : SENDER_BAD;
}
