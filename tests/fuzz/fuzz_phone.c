/* Any bytes: a number that is taken is E.164, is made of the input's own digits in their order,
 * and stays the same when normalised again. */
#include "worker/core/phone.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(truth) ((truth) ? (void)0 : abort())

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The input's ASCII digits without a leading 00 are the number's: none lost, none invented. */
static void check_digits(const char *text, size_t len, const char *number)
{
    size_t expected = strlen(number), found = 0, zeros = 0;

    for (size_t i = 0; i < len; i++) {
        if (!is_digit(text[i]))
            continue;
        if (found == 0 && text[i] == '0') {
            zeros++;
            continue;
        }
        MUST(found < expected && text[i] == number[found]);
        found++;
    }
    MUST(found == expected && (zeros == 0 || zeros == 2));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct phone p, again;
    enum phone_fault fault;

    memset(&p, 'x', sizeof(p));
    fault = phone_normalize(text, size, &p);
    MUST(phone_fault_text(fault) != NULL);
    if (fault != PHONE_OK) {
        MUST(p.e164[0] == 'x');
        return 0;
    }
    size_t len = strnlen(p.e164, sizeof(p.e164));

    MUST(len >= 8 && len <= 16 && p.e164[0] == '+' && p.e164[1] >= '1');
    MUST(strspn(p.e164 + 1, "0123456789") == len - 1);
    check_digits(text, size, p.e164 + 1);
    MUST(phone_normalize(p.e164, len, &again) == PHONE_OK && strcmp(p.e164, again.e164) == 0);
    return 0;
}
