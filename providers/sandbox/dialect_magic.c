#include <string.h>

#include "providers/sandbox/world.h"

static const struct sb_magic_row table[] = {
    {"9901", SB_MAGIC_DELIVERED, "taken, delivered: like every other ending"},
    {"9902", SB_MAGIC_UNDELIVERED, "taken, the receipt says undelivered"},
    {"9903", SB_MAGIC_NO_ANSWER, "taken, the answer is lost (by drop_mode); later ones are not"},
    {"9904", SB_MAGIC_REFUSED, "refused: no such number"},
    {"9905", SB_MAGIC_NO_RECEIPT, "taken and delivered, no receipt"},
    {"9906", SB_MAGIC_LATE_RECEIPT, "taken, the receipt comes after receipt_late_ms"},
    {"9907", SB_MAGIC_THROTTLED_ONCE, "throttled the first time, then taken"},
    {"9908", SB_MAGIC_OPTED_OUT, "refused: the person said STOP"},
    {"9909", SB_MAGIC_LATER_ONCE,
     "try later, the first time; an unproven 5xx where the vendor has\n"
     "        no such answer; then taken"},
    {"9910", SB_MAGIC_ACCOUNT_ONCE, "trouble with the account, the first time, then taken"},
    {"9911", SB_MAGIC_EXPIRED, "taken, the receipt says expired"},
};

const struct sb_magic_row *sb_magic_table(size_t *ret_count)
{
    *ret_count = sizeof(table) / sizeof(table[0]);
    return table;
}

enum sb_magic sb_magic_of(const char *number)
{
    size_t len = strlen(number);

    for (size_t i = 0; len >= 4 && i < sizeof(table) / sizeof(table[0]); i++)
        if (strcmp(number + len - 4, table[i].digits) == 0)
            return table[i].magic;
    return SB_MAGIC_NONE;
}
