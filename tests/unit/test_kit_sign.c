/* Digests, signatures and encodings against published vectors: RFC 1321, FIPS 180 ("abc"),
 * RFC 4231, RFC 2202, RFC 4648, RFC 8032; RSA against OpenSSL's command line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "providers/kit/sign.h"
#include "tests/unit/kit_keys.h"

#include <stdlib.h>
#include <string.h>

static void assert_hex(const uint8_t *data, size_t len, const char *wanted)
{
    char *hex = sign_hex(data, len);

    assert_non_null(hex);
    assert_string_equal(hex, wanted);
    free(hex);
}

static uint8_t *unhex(const char *hex, size_t len)
{
    uint8_t *data = calloc(len + 1, 1);

    assert_non_null(data);
    assert_int_equal(strlen(hex), len * 2);
    for (size_t i = 0; i < len; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], '\0'};

        data[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return data;
}

static void digests(void **state)
{
    static const struct {
        enum sign_hash hash;
        const char *of_abc, *hmac_jefe; /* RFC 2202 and 4231, case 2 */
    } rows[] = {
        {SIGN_MD5, "900150983cd24fb0d6963f7d28e17f72", "750c783e6ab0b503eaa86e310a5db738"},
        {SIGN_SHA1, "a9993e364706816aba3e25717850c26c9cd0d89d",
         "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"},
        {SIGN_SHA256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {SIGN_SHA384,
         "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca1"
         "34c825a7",
         "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ec"
         "fab21649"},
        {SIGN_SHA512,
         "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23"
         "a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
         "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65"
         "f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737"},
    };
    static const char said[] = "what do ya want for nothing?";
    uint8_t out[SIGN_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_hex(out, sign_digest(rows[i].hash, "abc", 3, out), rows[i].of_abc);
        assert_hex(out, sign_hmac(rows[i].hash, "Jefe", 4, said, strlen(said), out),
                   rows[i].hmac_jefe);
    }
    assert_hex(out, sign_digest(SIGN_MD5, "", 0, out), "d41d8cd98f00b204e9800998ecf8427e");
}

static void a_long_hmac_key(void **state) /* RFC 4231, case 6 */
{
    static const char said[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    uint8_t key[131], out[SIGN_MAX];

    (void)state;
    memset(key, 0xaa, sizeof(key));
    assert_hex(out, sign_hmac(SIGN_SHA256, key, sizeof(key), said, strlen(said), out),
               "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

static void base64(void **state) /* RFC 4648, 10 */
{
    static const struct {
        const char *plain, *padded, *bare;
    } rows[] = {
        {"", "", ""},
        {"f", "Zg==", "Zg"},
        {"fo", "Zm8=", "Zm8"},
        {"foo", "Zm9v", "Zm9v"},
        {"foob", "Zm9vYg==", "Zm9vYg"},
        {"fooba", "Zm9vYmE=", "Zm9vYmE"},
        {"foobar", "Zm9vYmFy", "Zm9vYmFy"},
        {"\xfb\xff\xfe", "+//+", "-__-"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t len = strlen(rows[i].plain), n = 99;
        char *padded = sign_base64((const uint8_t *)rows[i].plain, len);
        char *bare = sign_base64url((const uint8_t *)rows[i].plain, len);
        uint8_t *back = sign_unbase64(rows[i].padded, strlen(rows[i].padded), &n);

        assert_string_equal(padded, rows[i].padded);
        assert_string_equal(bare, rows[i].bare);
        assert_non_null(back);
        assert_int_equal(n, len);
        assert_string_equal((const char *)back, rows[i].plain);
        free(back);
        back = sign_unbase64url(rows[i].bare, strlen(rows[i].bare), &n);
        assert_non_null(back);
        assert_int_equal(n, len);
        assert_string_equal((const char *)back, rows[i].plain);
        free(back);
        free(padded);
        free(bare);
    }
}

static void not_base64(void **state)
{
    static const char *const no[] = {
        "Zg",   "Zg=",  "Zg===",    "Zh==",     "Zm9=", "Zm9v\n",         "Z m9v===",
        "-__-", "=Zm9", "Zg==Zg==", "Zm9vYg=a", "====", "Zm9v\xc3\xb1==", "A==="};
    static const char *const no_url[] = {"Zg==", "+//+", "Z", "Zh", "Zm9", "Zm 9"};
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        if (sign_unbase64(no[i], strlen(no[i]), &n))
            fail_msg("\"%s\" was read", no[i]);
    for (size_t i = 0; i < sizeof(no_url) / sizeof(no_url[0]); i++)
        if (sign_unbase64url(no_url[i], strlen(no_url[i]), &n))
            fail_msg("\"%s\" was read", no_url[i]);
    assert_null(sign_unbase64("Zm\0v", 4, &n));
}

static void comparing(void **state)
{
    (void)state;
    assert_true(sign_equal("abc", 3, "abc", 3));
    assert_true(sign_equal("", 0, "", 0));
    assert_false(sign_equal("abc", 3, "abd", 3));
    assert_false(sign_equal("abc", 3, "abcd", 4));
    assert_true(sign_equal_text("abc", "abc"));
    assert_false(sign_equal_text("abc", "ab"));
    assert_false(sign_equal_text(NULL, "ab"));
    assert_false(sign_equal_text("ab", NULL));
    assert_false(sign_equal_text(NULL, NULL));
}

static void ed25519(void **state) /* RFC 8032, 7.1, tests 1 to 3 */
{
    static const struct {
        const char *seed, *key, *signature, *message;
        size_t len;
    } rows[] = {
        {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
         "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
         "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e3970"
         "1cf9b46bd25bf5f0595bbe24655141438e7a100b",
         "", 0},
        {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
         "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
         "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613"
         "d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
         "\x72", 1},
        {"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
         "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
         "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760"
         "984dc6594a7c15e9716ed28dc027beceea1ec40a",
         "\xaf\x82", 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t *key = unhex(rows[i].key, 32), *signature = unhex(rows[i].signature, 64);
        uint8_t *seed = unhex(rows[i].seed, 32), made[64];

        assert_true(sign_ed25519(seed, rows[i].message, rows[i].len, made));
        assert_memory_equal(made, signature, 64);

        assert_true(sign_ed25519_ok(key, signature, rows[i].message, rows[i].len));
        assert_false(sign_ed25519_ok(key, signature, "x", 1));
        signature[5] ^= 1;
        assert_false(sign_ed25519_ok(key, signature, rows[i].message, rows[i].len));
        signature[5] ^= 1;
        key[5] ^= 1;
        assert_false(sign_ed25519_ok(key, signature, rows[i].message, rows[i].len));
        free(seed);
        free(key);
        free(signature);
    }
}

static void rsa(void **state)
{
    static const char said[] = "Message\nhello\n";
    size_t n = 0, n1 = 0, made_n = 0;
    uint8_t *sha256 = sign_unbase64(rsa_sha256_base64, strlen(rsa_sha256_base64), &n);
    uint8_t *sha1 = sign_unbase64(rsa_sha1_base64, strlen(rsa_sha1_base64), &n1);
    uint8_t *made = sign_rsa_sha256(rsa_private, said, strlen(said), &made_n);

    (void)state;
    assert_non_null(sha256);
    assert_non_null(sha1);
    assert_true(sign_rsa_ok(SIGN_SHA256, rsa_certificate, sha256, n, said, strlen(said)));
    assert_true(sign_rsa_ok(SIGN_SHA256, rsa_public, sha256, n, said, strlen(said)));
    assert_true(sign_rsa_ok(SIGN_SHA1, rsa_certificate, sha1, n1, said, strlen(said)));
    assert_false(sign_rsa_ok(SIGN_SHA256, rsa_certificate, sha1, n1, said, strlen(said)));
    assert_false(sign_rsa_ok(SIGN_SHA256, rsa_certificate, sha256, n - 1, said, strlen(said)));
    assert_false(sign_rsa_ok(SIGN_SHA256, rsa_certificate, sha256, n, said, strlen(said) - 1));
    assert_false(sign_rsa_ok(SIGN_SHA256, "garbage", sha256, n, said, strlen(said)));
    assert_false(sign_rsa_ok(SIGN_SHA256, "", sha256, n, said, strlen(said)));
    /* PKCS#1 v1.5 has no randomness: ours is OpenSSL's. */
    assert_non_null(made);
    assert_true(sign_equal(made, made_n, sha256, n));
    sha256[0] ^= 1;
    assert_false(sign_rsa_ok(SIGN_SHA256, rsa_certificate, sha256, n, said, strlen(said)));
    free(made);
    free(sha1);
    free(sha256);
}

static void private_keys(void **state)
{
    size_t n = 0;

    (void)state;
    assert_true(sign_rsa_private_ok(rsa_private));
    assert_false(sign_rsa_private_ok(rsa_public));
    assert_false(sign_rsa_private_ok(rsa_locked)); /* and nobody is asked for a passphrase */
    assert_false(sign_rsa_private_ok(ec_private));
    assert_false(sign_rsa_private_ok("garbage"));
    assert_null(sign_rsa_sha256(rsa_public, "x", 1, &n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digests),    cmocka_unit_test(a_long_hmac_key), cmocka_unit_test(base64),
        cmocka_unit_test(not_base64), cmocka_unit_test(comparing),       cmocka_unit_test(ed25519),
        cmocka_unit_test(rsa),        cmocka_unit_test(private_keys),
    };

    return cmocka_run_group_tests_name("kit_sign", tests, NULL, NULL);
}
