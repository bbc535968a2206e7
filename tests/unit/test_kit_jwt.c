/* JSON Web Tokens: RFC 7515 A.1, tokens made with Python's hmac, one signed by OpenSSL's command
 * line, and the ways to forge one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "providers/kit/sign.h"
#include "tests/unit/kit_keys.h"

#include <stdlib.h>
#include <string.h>

static const char of_rfc[] =
    "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9."
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlf"
    "Q.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
static const char key_of_rfc[] =
    "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";

static bool verifies(const char *token, const char *key, int64_t now_s, int64_t leeway_s)
{
    json_t *claims = sign_jwt_hs_verify(token, strlen(token), key, strlen(key), now_s, leeway_s);
    bool ok = claims != NULL;

    json_decref(claims);
    return ok;
}

static void the_example_of_rfc_7515(void **state)
{
    size_t n = 0;
    uint8_t *key = sign_unbase64url(key_of_rfc, strlen(key_of_rfc), &n);
    json_t *claims;

    (void)state;
    assert_non_null(key);
    assert_int_equal(n, 64);
    claims = sign_jwt_hs_verify(of_rfc, strlen(of_rfc), key, n, 1300819379, 0);
    assert_non_null(claims);
    assert_string_equal(json_string_value(json_object_get(claims, "iss")), "joe");
    json_decref(claims);
    assert_null(sign_jwt_hs_verify(of_rfc, strlen(of_rfc), key, n, 1300819381, 0));
    claims = sign_jwt_hs_verify(of_rfc, strlen(of_rfc), key, n, 1300819381, 5);
    assert_non_null(claims);
    json_decref(claims);
    assert_null(sign_jwt_hs_verify(of_rfc, strlen(of_rfc) - 1, key, n, 1300819379, 0));
    key[0] ^= 1;
    assert_null(sign_jwt_hs_verify(of_rfc, strlen(of_rfc), key, n, 1300819379, 0));
    free(key);
}

static void hashes_and_times(void **state)
{
    static const char hs384[] =
        "eyJhbGciOiJIUzM4NCJ9.eyJuYmYiOjEwMDAsImV4cCI6MjAwMH0.XAvsW3LLmxzIGFHQcZgBYQNw-"
        "d3rwfJK_drWhWaLVV3Xiv35T_iN6b6l25W1_A5A";
    static const char hs512[] =
        "eyJhbGciOiJIUzUxMiJ9.eyJuYmYiOjEwMDAsImV4cCI6MjAwMH0.smFnRNKIPbdnxB7U3qO4ukEyGzWk4uc-"
        "UoEyR0q16Zk6WB6dy_rOdSanxp5oLlk1Fs8C8yXVCnUPx6dF-JkIww";

    (void)state;
    assert_true(verifies(hs384, "secret", 1500, 0));
    assert_true(verifies(hs512, "secret", 1500, 0));
    assert_false(verifies(hs512, "Secret", 1500, 0));
    assert_true(verifies(hs512, "secret", 1000, 0));
    assert_false(verifies(hs512, "secret", 999, 0));
    assert_true(verifies(hs512, "secret", 999, 1));
    assert_true(verifies(hs512, "secret", 2000, 0));
    assert_false(verifies(hs512, "secret", 2001, 0));
    assert_true(verifies(hs512, "secret", 2060, 60));
}

static void forgeries(void **state)
{
    static const struct {
        const char *name, *key, *token;
    } rows[] = {
        {"alg none", "secret", "eyJhbGciOiJub25lIn0.eyJpc3MiOiJ4In0."},
        {"alg RS256, signed with HMAC", "secret",
         "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJ0ZXN0In0.F_UZEP82P7apAKwGLt7Lx-ZivBchW2WEEa9Hi2HV-mI"},
        {"an empty key", "",
         "eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJ0ZXN0In0.8Fn3-9uehhM-m8Zuc1xWQDV2FCP8d57LrS7oUFQNtGI"},
        {"crit", "secret",
         "eyJhbGciOiJIUzI1NiIsImNyaXQiOlsiYjY0Il19.eyJpc3MiOiJ0ZXN0In0.8etjZrIft0mDaP6IVnEN2psB_"
         "oXPkav8HPPRuSZL7zo"},
        {"exp as a string", "secret",
         "eyJhbGciOiJIUzI1NiJ9.eyJleHAiOiI5OTk5OTk5OTk5In0.cVD9Gi5JropUOO332-cnK-wgOLH4gjwkZ_"
         "ebX1aw8yg"},
        {"no parts", "secret", "abc"},
        {"two parts", "secret", "abc.def"},
        {"nothing", "secret", ""},
        {"dots", "secret", ".."},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (verifies(rows[i].token, rows[i].key, 1500, 0))
            fail_msg("%s was believed", rows[i].name);
}

static void claims_without_trust(void **state)
{
    static const char token[] = "eyJhbGciOiJub25lIn0.eyJpc3MiOiJ4In0.";
    json_t *claims = sign_jwt_claims_untrusted(token, strlen(token));

    (void)state;
    assert_non_null(claims);
    assert_string_equal(json_string_value(json_object_get(claims, "iss")), "x");
    json_decref(claims);
    assert_null(sign_jwt_claims_untrusted("a.b", 3));
    assert_null(sign_jwt_claims_untrusted("a.!!.c", 6));
}

static void making(void **state)
{
    json_t *hs = json_pack("{s:s, s:i}", "iss", "test", "n", 1);
    json_t *rs = json_pack("{s:s, s:I}", "application_id", "abc", "iat", (json_int_t)1700000000);
    char *hs256 = sign_jwt_hs256(hs, "secret", 6), *rs256 = sign_jwt_rs256(rs, rsa_private);

    (void)state;
    assert_non_null(hs256);
    assert_string_equal(hs256, "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJ0ZXN0IiwibiI6MX0."
                               "6WFUTLx6JX72soJ8LAa_qZOE4j_0_lCF7CW8eWaUG24");
    assert_non_null(rs256);
    assert_string_equal(rs256, rs256_token);
    assert_null(sign_jwt_rs256(rs, rsa_locked));
    assert_null(sign_jwt_rs256(rs, "garbage"));
    free(hs256);
    free(rs256);
    json_decref(hs);
    json_decref(rs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_of_rfc_7515),
        cmocka_unit_test(hashes_and_times),
        cmocka_unit_test(forgeries),
        cmocka_unit_test(claims_without_trust),
        cmocka_unit_test(making),
    };

    return cmocka_run_group_tests_name("kit_jwt", tests, NULL, NULL);
}
