/* Reading vendors' JSON: wrong types say NULL, never crash, never convert what is not a number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "providers/kit/json.h"

#include <stdlib.h>
#include <string.h>

static json_t *parsed(const char *text)
{
    json_t *value = json_body(text, strlen(text));

    assert_non_null(value);
    return value;
}

static void bodies(void **state)
{
    static const char *const no[] = {"",  "\xef\xbb\xbf",       "<html>502</html>", "\"text\"",
                                     "7", "{\"a\":1} trailing", "{\"a\":",          "null"};

    (void)state;
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        if (json_body(no[i], strlen(no[i])))
            fail_msg("read: %s", no[i]);
    assert_null(json_body(NULL, 0));
    json_decref(parsed("\xef\xbb\xbf{\"a\":1}"));
    json_decref(parsed("[]"));
    json_decref(parsed("{\"inbound\":\"a\\u0000b\"}"));
}

static void paths(void **state)
{
    json_t *v = parsed("{\"messages\":[{\"status\":{\"id\":7,\"name\":\"ok\"}}],\"\":1}");

    (void)state;
    assert_string_equal(json_text_at(v, "messages/0/status/name"), "ok");
    assert_null(json_text_at(v, "messages/1/status/name"));
    assert_null(json_text_at(v, "messages/0/status/name/more"));
    assert_null(json_text_at(v, "messages/x/status"));
    assert_null(json_text_at(v, "messages/0000000/status"));
    assert_null(json_text_at(v, "messages/0/status/id"));
    assert_null(json_path(NULL, "a"));
    assert_ptr_equal(json_path(v, ""), v);
    json_decref(v);
}

static void words(void **state)
{
    json_t *v = parsed("{\"s\":\"0007\",\"i\":-7,\"t\":true,\"f\":false,\"n\":null,\"r\":1.5,"
                       "\"o\":{},\"z\":\"a\\u0000b\",\"big\":9223372036854775807}");
    char buf[24], tiny[3];

    (void)state;
    assert_string_equal(json_word_at(v, "s", buf, sizeof(buf)), "0007");
    assert_string_equal(json_word_at(v, "i", buf, sizeof(buf)), "-7");
    assert_string_equal(json_word_at(v, "t", buf, sizeof(buf)), "true");
    assert_string_equal(json_word_at(v, "f", buf, sizeof(buf)), "false");
    assert_string_equal(json_word_at(v, "big", buf, sizeof(buf)), "9223372036854775807");
    assert_null(json_word_at(v, "big", tiny, sizeof(tiny)));
    assert_null(json_word_at(v, "n", buf, sizeof(buf)));
    assert_null(json_word_at(v, "r", buf, sizeof(buf)));
    assert_null(json_word_at(v, "o", buf, sizeof(buf)));
    assert_null(json_word_at(v, "z", buf, sizeof(buf)));
    assert_null(json_text_at(v, "z"));
    assert_null(json_word_at(v, "lacks", buf, sizeof(buf)));
    json_decref(v);
}

static void integers(void **state)
{
    json_t *v = parsed("{\"i\":-7,\"s\":\"42\",\"m\":\"-1\",\"e\":\"\",\"x\":\"4x\",\"b\":\" 4\","
                       "\"p\":\"+4\",\"big\":\"9223372036854775808\",\"r\":1.0,\"d\":\"-\"}");
    static const char *const no[] = {"e", "x", "b", "p", "big", "r", "d", "lacks"};
    int64_t n = 0;

    (void)state;
    assert_true(json_i64_at(v, "i", &n));
    assert_int_equal(n, -7);
    assert_true(json_i64_at(v, "s", &n));
    assert_int_equal(n, 42);
    assert_true(json_i64_at(v, "m", &n));
    assert_int_equal(n, -1);
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        assert_false(json_i64_at(v, no[i], &n));
    assert_int_equal(n, -1);
    json_decref(v);
}

static void texts(void **state)
{
    json_t *v = json_pack("{s:s, s:i}", "text", "oʻ đ 🎉\n\"", "a", 1);
    char *text = json_text(v);

    (void)state;
    assert_string_equal(text, "{\"text\":\"oʻ đ 🎉\\n\\\"\",\"a\":1}");
    free(text);
    json_decref(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies),   cmocka_unit_test(paths), cmocka_unit_test(words),
        cmocka_unit_test(integers), cmocka_unit_test(texts),
    };

    return cmocka_run_group_tests_name("kit_json", tests, NULL, NULL);
}
