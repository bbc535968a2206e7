/* Case H6: sender ids a network would cut or drop are refused before the vendor sees them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "providers/kit/request.h"
#include "providers/kit/sender.h"

#include <stdlib.h>

static void h6_kinds_of_sender(void **state)
{
    static const struct {
        const char *sender;
        enum sender_kind kind;
    } rows[] = {
        {"INFO", SENDER_NAME},
        {"MYLONGCOMPANY", SENDER_BAD},
        {"ELEVEN CHAR", SENDER_NAME},
        {"TWELVE CHARS", SENDER_BAD},
        {"A", SENDER_NAME},
        {"24-7", SENDER_BAD}, /* no letter: a phone shows it as a number */
        {"Acme & Co", SENDER_NAME},
        {"Şirkət", SENDER_BAD},
        {"tab\there", SENDER_BAD},
        {"+123456789012345", SENDER_NUMBER},
        {"123456789012345", SENDER_NUMBER},
        {"1234567890123456", SENDER_BAD},
        {"1234567", SENDER_NUMBER},
        {"123456", SENDER_SHORT},
        {"911", SENDER_SHORT},
        {"11", SENDER_BAD},
        {"+911", SENDER_BAD},
        {"+ACME", SENDER_BAD},
        {"+", SENDER_BAD},
        {"", SENDER_BAD},
        {NULL, SENDER_BAD},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (sender_kind(rows[i].sender) != rows[i].kind)
            fail_msg("\"%s\" is %d", rows[i].sender ? rows[i].sender : "(none)",
                     (int)sender_kind(rows[i].sender));
}

static void credentials(void **state) /* RFC 7617, 2 and 2.1; RFC 6750, 2.1 */
{
    char *basic = request_basic("Aladdin", "open sesame");
    char *utf8 = request_basic("test", "123£");
    char *bearer = request_bearer("mF_9.B5f-4.1JqM");

    (void)state;
    assert_string_equal(basic, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    assert_string_equal(utf8, "Basic dGVzdDoxMjPCow==");
    assert_string_equal(bearer, "Bearer mF_9.B5f-4.1JqM");
    free(basic);
    free(utf8);
    free(bearer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(h6_kinds_of_sender),
        cmocka_unit_test(credentials),
    };

    return cmocka_run_group_tests_name("kit_sender", tests, NULL, NULL);
}
