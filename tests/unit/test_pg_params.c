/* What PostgreSQL is sent: arrays byte by byte, as its own array_send writes them (asked of
 * PostgreSQL 15: select array_send('{1,-2}'::int8[])), and what is refused before it is sent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/err.h"
#include "worker/io/pg_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void assert_binary(const struct pg_params *p, int at, Oid type, const char *hex)
{
    char *got = calloc(1, (size_t)p->lengths[at] * 2 + 1);

    assert_non_null(got);
    assert_int_equal(p->error, 0);
    for (int i = 0; i < p->lengths[at]; i++)
        snprintf(got + (size_t)i * 2, 3, "%02x", (unsigned char)p->values[at][i]);
    assert_string_equal(got, hex);
    assert_int_equal(p->types[at], type);
    assert_int_equal(p->formats[at], 1);
    free(got);
}

static void test_i64_array(void **state)
{
    struct pg_params *p = pg_params_new();

    (void)state;
    pg_add_i64_array(p, (const int64_t[]){1, -2}, 2);
    assert_binary(p, 0, 1016,
                  "000000010000000000000014000000020000000100000008000000000000000100000008"
                  "fffffffffffffffe");
    pg_params_free(p);
}

static void test_empty_array_has_no_dimension(void **state)
{
    struct pg_params *p = pg_params_new();

    (void)state;
    pg_add_i64_array(p, NULL, 0);
    pg_add_text_array(p, NULL, 0);
    assert_int_equal(p->count, 2);
    assert_binary(p, 0, 1016, "000000000000000000000014");
    assert_binary(p, 1, 1009, "000000000000000000000019");
    pg_params_free(p);
}

static void test_i32_array(void **state)
{
    struct pg_params *p = pg_params_new();

    (void)state;
    pg_add_i32_array(p, (const int32_t[]){1, INT32_MIN}, 2);
    assert_binary(p, 0, 1007,
                  "000000010000000000000017000000020000000100000004000000010000000480000000");
    pg_params_free(p);
}

static void test_text_array_with_null(void **state)
{
    struct pg_params *p = pg_params_new();

    (void)state;
    pg_add_text_array(p, (const char *const[]){"a", NULL, "", "\xc5\xbe\x42"}, 4);
    assert_binary(p, 0, 1009,
                  "00000001000000010000001900000004000000010000000161ffffffff0000000000000003"
                  "c5be42");
    pg_params_free(p);
}

static void test_uuid_array(void **state)
{
    struct pg_params *p = pg_params_new();

    (void)state;
    pg_add_uuid_array(p, (const char *const[]){"00112233-4455-6677-8899-AABBccddeeff"}, 1);
    assert_binary(p, 0, 2951,
                  "000000010000000000000b8600000001000000010000001000112233445566778899aabbccdd"
                  "eeff");
    pg_params_free(p);
}

static void test_bytes_array(void **state)
{
    struct pg_params *p = pg_params_new();

    (void)state;
    pg_add_bytes_array(p, (const void *const[]){"\0\xff", NULL}, (const size_t[]){2, 0}, 2);
    assert_binary(p, 0, 1001, "00000001000000000000001100000002000000010000000200ff00000000");
    pg_add_bytes_array(p, NULL, NULL, 0);
    assert_binary(p, 1, 1001, "000000000000000000000011");
    pg_params_free(p);
}

static void test_no_uuid(void **state)
{
    static const char *const rows[] = {
        NULL,
        "",
        "00112233-4455-6677-8899-aabbccddeef",
        "00112233-4455-6677-8899-aabbccddeeff0",
        "00112233445566778899aabbccddeeff",
        "00112233-4455-6677-8899+aabbccddeeff",
        "0011223-34455-6677-8899-aabbccddeeff",
        "00112233-4455-6677-8899-aabbccddeefg",
        "{0112233-4455-6677-8899-aabbccddeef}",
        "00112233-4455-6677-8899-aabbccdd\xc5\xbe\xc5\xbe",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct pg_params *p = pg_params_new();
        pg_add_uuid_array(p, &rows[i], 1);
        if (p->error != -EINVAL)
            fail_msg("%s is taken for a uuid", rows[i] ? rows[i] : "NULL");
        pg_add_i64(p, 1);
        assert_int_equal(p->error, -EINVAL);
        pg_params_free(p);
    }
}

static void test_scalars(void **state)
{
    struct pg_params *p = pg_params_new();
    char text[] = "O'Reilly";

    (void)state;
    pg_add_text(p, text);
    text[0] = 'X'; /* copied */
    pg_add_text(p, NULL);
    pg_add_i64(p, INT64_MIN);
    pg_add_bool(p, true);
    pg_add_bool(p, false);
    assert_int_equal(p->error, 0);
    assert_int_equal(p->count, 5);
    assert_string_equal(p->values[0], "O'Reilly");
    assert_null(p->values[1]);
    assert_string_equal(p->values[2], "-9223372036854775808");
    assert_string_equal(p->values[3], "t");
    assert_string_equal(p->values[4], "f");
    for (int i = 0; i < 5; i++) {
        assert_int_equal(p->types[i], 0);
        assert_int_equal(p->formats[i], 0);
    }
    pg_params_free(p);
}

static void test_too_many(void **state)
{
    struct pg_params *p = pg_params_new();

    (void)state;
    for (int i = 0; i < PG_PARAMS_MAX; i++)
        pg_add_i64(p, i);
    assert_int_equal(p->error, 0);
    pg_add_i64(p, 32);
    assert_int_equal(p->error, -E2BIG);
    assert_int_equal(p->count, PG_PARAMS_MAX);
    pg_params_free(p);
}

static void test_array_beyond_what_postgres_takes(void **state)
{
    struct pg_params *p = pg_params_new();

    (void)state;
    pg_add_i32_array(p, (const int32_t[]){0}, SIZE_MAX / 16); /* refused before it is read */
    assert_int_equal(p->error, -E2BIG);
    assert_int_equal(p->count, 0);
    pg_params_free(p);
}

/* Passwords in none of the words, whatever was mistyped: case S (secrets). */
static void test_connection_strings(void **state)
{
    static const struct {
        const char *dsn;
        int want;
    } rows[] = {
        {NULL, 0},
        {"", 0},
        {"postrider", 0},
        {"postgresql://u:S3cr3t@h/db", 0},
        {"postgres://u:S3cr3t@h1:5432,h2:5433/db?target_session_attrs=any", 0},
        {"postgresql:///db?host=/run/postgresql&user=a@b", 0},
        {"postgresql://u:S3cr3t%40x@h/db", 0},
        {"host=h password='S3 cr3t'", 0},
        {"host=/tmp port=5433 dbname=x", 0},
        {"postgresql://u:S3cr3t@x@h/db", -EINVAL},
        {"postgresql://u:S3cr3t/x@h/db", -EINVAL},
        {"postgresql://u:1234/S3cr3t@h/db", -EINVAL},
        {"postgresql://u:S3cr3t", -EINVAL},
        {"postgresql://u:S3cr3t%zz@h/db", -EINVAL},
        {"postgresql://u@h/db?S3cr3t", -EINVAL},
        {"host=h password=S3 cr3t", -EINVAL},
        {"host=h password='S3cr3t", -EINVAL},
        {"host=h pasword=S3cr3t", -EINVAL},
        {"host=h port=S3cr3t", -EINVAL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct err err = ERR_INIT;
        int rc = pg_dsn_check(rows[i].dsn, &err);
        if (rc != rows[i].want)
            fail_msg("\"%s\": %d, want %d", rows[i].dsn ? rows[i].dsn : "", rc, rows[i].want);
        if (rc) {
            assert_non_null(err.message);
            assert_null(strstr(err.message, "cr3t"));
            assert_null(strstr(err.hint, "cr3t"));
        }
        err_done(&err);
    }
}

static void test_one_line(void **state)
{
    static const struct {
        const char *text, *one, *last;
    } rows[] = {
        {"", "", ""},
        {"plain\n", "plain", "plain"},
        {"refused\n\tIs the server running?\n", "refused", "refused"},
        {"first\n\tmore\nsecond\n", "first; second", "second"},
        {"a\x1b[2Jb\r\n", "a [2Jb", "a [2Jb"},
        {"a\n\tb\n\tc", "a", "a"},
        {"\n\n", "", ""},
        {"a\r\n\r\nb\n\n\n", "a; b", "b"},
        {"two  spaces ", "two spaces", "two spaces"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *one = pg_one_line(rows[i].text);
        char *last = pg_last_line(rows[i].text);
        assert_string_equal(one, rows[i].one);
        assert_string_equal(last, rows[i].last);
        free(one);
        free(last);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_i64_array),
        cmocka_unit_test(test_empty_array_has_no_dimension),
        cmocka_unit_test(test_i32_array),
        cmocka_unit_test(test_text_array_with_null),
        cmocka_unit_test(test_uuid_array),
        cmocka_unit_test(test_bytes_array),
        cmocka_unit_test(test_no_uuid),
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_array_beyond_what_postgres_takes),
        cmocka_unit_test(test_connection_strings),
        cmocka_unit_test(test_one_line),
    };

    return cmocka_run_group_tests_name("pg_params", tests, NULL, NULL);
}
