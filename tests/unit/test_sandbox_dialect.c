/* What stands behind a dialect: paths, texts, ids, stored messages, tokens, fates by number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "providers/sandbox/world.h"

static struct sandbox sandbox;
static struct sb_dialect dialect;
static struct sb_world world = {.sb = &sandbox, .d = &dialect};
static struct sb_call_priv priv;
static struct sb_call call = {.world = &world, .priv_ = &priv};

static int begin(void **state)
{
    (void)state;
    memset(&sandbox, 0, sizeof(sandbox));
    memset(&dialect, 0, sizeof(dialect));
    sandbox.instance = UINT64_C(0xfffffffffffffff0); /* counters wrap around */
    sb_knobs_init(&sandbox.knobs);
    return sb_store_new(1000, &world.store) < 0 || sb_tokens_new(&world.tokens) < 0;
}

static int end(void **state)
{
    (void)state;
    sb_call_done(&call);
    world.store = sb_store_free(world.store);
    world.tokens = sb_tokens_free(world.tokens);
    return 0;
}

/* --- paths ------------------------------------------------------------------------------ */

static void test_paths(void **state)
{
    static const struct {
        const char *pattern, *path;
        bool fits;
        const char *a, *b; /* the parts */
    } rows[] = {
        {"/messages", "/messages", true, NULL, NULL},
        {"/messages", "/messages/", false, NULL, NULL},
        {"/messages", "/message", false, NULL, NULL},
        {"/", "/", true, NULL, NULL},
        {"/v1/{a}/sms", "/v1/plan/sms", true, "plan", NULL},
        {"/v1/{a}/sms", "/v1//sms", false, NULL, NULL},
        {"/v1/{a}/sms", "/v1/x/y/sms", false, NULL, NULL},
        {"/{a}/Messages/{b}.json", "/AC1/Messages/SM2.json", true, "AC1", "SM2"},
        {"/{a}/Messages/{b}.json", "/AC1/Messages/SM.2.json", true, "AC1", "SM.2"},
        {"/{a}/Messages/{b}.json", "/AC1/Messages/.json", false, NULL, NULL},
        {"/{a}", "/", false, NULL, NULL},
        {"/{a}.{b}", "/x.y.z", true, "x", "y.z"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sb_pairs parts = {0};
        assert_int_equal(sb_path_fits(rows[i].pattern, rows[i].path, &parts), rows[i].fits);
        assert_int_equal(parts.n, (rows[i].a != NULL) + (rows[i].b != NULL));
        if (rows[i].a)
            assert_string_equal(sb_pairs_get(&parts, "a"), rows[i].a);
        if (rows[i].b)
            assert_string_equal(sb_pairs_get(&parts, "b"), rows[i].b);
        sb_pairs_done(&parts);
    }
}

/* --- texts ------------------------------------------------------------------------------ */

static void test_utf16(void **state)
{
    (void)state;
    /* Unicode 15, table 3-6: U+004D, U+0430, U+4E8C, U+10302 */
    assert_string_equal(sb_call_utf16be_hex(&call, "004D04304e8cD800DF02"),
                        "M\xd0\xb0\xe4\xba\x8c\xf0\x90\x8c\x82");
    assert_string_equal(sb_call_utf16be_hex(&call, "D83DDE00"), "\xf0\x9f\x98\x80");
    assert_string_equal(sb_call_utf16be_hex(&call, ""), "");
    assert_null(sb_call_utf16be_hex(&call, "D83D"));     /* half a pair */
    assert_null(sb_call_utf16be_hex(&call, "DE00D83D")); /* the wrong way round */
    assert_null(sb_call_utf16be_hex(&call, "0000"));
    assert_null(sb_call_utf16be_hex(&call, "004"));
    assert_null(sb_call_utf16be_hex(&call, "00zz"));
    assert_null(sb_call_utf16be(&call, "\0A\0", 3));
}

static void header(const char *name, const char *value)
{
    sb_pairs_done(&priv.headers);
    assert_int_equal(sb_pairs_add(&priv.headers, name, value), 0);
}

static void test_authorization(void **state)
{
    (void)state;
    header("authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="); /* RFC 7617, section 2 */
    assert_true(sb_call_basic(&call, "Aladdin", "open sesame"));
    assert_true(sb_call_basic(&call, NULL, "open sesame"));
    assert_true(sb_call_basic(&call, "Aladdin", NULL));
    assert_false(sb_call_basic(&call, "Aladdin", "open"));
    assert_false(sb_call_basic(&call, "aladdin", "open sesame"));
    assert_null(sb_call_bearer(&call, "Bearer"));
    header("Authorization", "bearer  tok");
    assert_string_equal(sb_call_bearer(&call, "Bearer"), "tok");
    assert_false(sb_call_basic(&call, NULL, NULL));
    header("Authorization", "Bearer ");
    assert_null(sb_call_bearer(&call, "Bearer"));
    header("Content-Type", "Application/JSON; charset=utf-8");
    assert_true(sb_call_type(&call, "application/json"));
    header("Content-Type", "application/jsonx");
    assert_false(sb_call_type(&call, "application/json"));
}

/* --- ids -------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void ids_never_repeat(void (*make)(size_t i, char buf[SB_ID_SIZE]))
{
    enum { COUNT = 4096 };
    char(*all)[SB_ID_SIZE] = calloc(COUNT, sizeof(*all));

    assert_non_null(all);
    for (size_t i = 0; i < COUNT; i++)
        make(i, all[i]);
    qsort(all, COUNT, sizeof(*all), by_text);
    for (size_t i = 1; i < COUNT; i++)
        assert_string_not_equal(all[i - 1], all[i]);
    free(all);
}

static void hex8(size_t i, char buf[SB_ID_SIZE])
{
    struct sb_msg m = {.no = 1 + i / 4};
    sb_id_hex(&world, &m, i % 4, "x", 8, buf);
    assert_int_equal(strlen(buf), 9);
    assert_int_equal(strspn(buf + 1, "0123456789abcdef"), 8);
}

static void hex16(size_t i, char buf[SB_ID_SIZE])
{
    struct sb_msg m = {.no = 1 + i / 4};
    sb_id_hex(&world, &m, i % 4, "", 16, buf);
    assert_int_equal(strlen(buf), 16);
}

static void uuid(size_t i, char buf[SB_ID_SIZE])
{
    struct sb_msg m = {.no = 1 + i / 4};
    sb_id_uuid(&world, &m, i % 4, buf);
    assert_int_equal(strlen(buf), 36);
    assert_int_equal(buf[14], '4'); /* RFC 9562: version 4, variant 10xx */
    assert_int_equal(buf[19], '8');
}

static void digits9(size_t i, char buf[SB_ID_SIZE])
{
    struct sb_msg m = {.no = 1 + i / 4};
    sb_id_digits(&world, &m, i % 4, 9, buf);
    assert_int_equal(strlen(buf), 9);
    assert_int_equal(strspn(buf, "0123456789"), 9);
    assert_true(buf[0] != '0');
}

static void test_ids(void **state)
{
    (void)state;
    ids_never_repeat(hex8);
    ids_never_repeat(hex16);
    ids_never_repeat(uuid);
    ids_never_repeat(digits9);
}

/* --- stored messages -------------------------------------------------------------------- */

static struct sb_msg *store(const char *to, const char *key, const char *text)
{
    struct sb_msg *m = NULL;

    assert_int_equal(
        sb_store_add(&world, &(struct sb_send){.to = to, .key = key, .text = text}, 7, &m), 0);
    return m;
}

static size_t count(const struct sb_filter *f)
{
    size_t n = 0;
    uint64_t no = UINT64_MAX;

    for (const struct sb_msg *m = NULL; (m = sb_msg_next(&world, f, m)); n++) {
        assert_true(m->no < no); /* newest first */
        no = m->no;
    }
    return n;
}

static void test_store(void **state)
{
    char long_text[200];
    size_t part = 9;

    (void)state;
    memset(long_text, 'x', 161);
    long_text[161] = '\0';
    dialect.id_per_part = true;
    const struct sb_msg *a = store("+998900000001", "k1", "one");
    const struct sb_msg *b = store("998900000001", "k2", long_text);
    store("998900000002", NULL, "");
    assert_int_equal(a->ids_n, 1);
    assert_int_equal(b->ids_n, 2); /* 161 septets */
    assert_ptr_equal(sb_msg_by_id(&world, b->ids[1], &part), b);
    assert_int_equal(part, 1);
    assert_null(sb_msg_by_id(&world, "nobody", NULL));
    assert_int_equal(count(&(struct sb_filter){0}), 3);
    assert_int_equal(count(&(struct sb_filter){.to = "+998900000001"}), 2);
    assert_int_equal(count(&(struct sb_filter){.to = "998900000001", .key = "k1"}), 1);
    assert_int_equal(count(&(struct sb_filter){.key = "k9"}), 0);
    assert_int_equal(count(&(struct sb_filter){.from_ms = INT64_MAX}), 0);
    assert_int_equal(count(&(struct sb_filter){.to_ms = 1}), 0);
    sandbox.knobs.lookup_delay_ms = 3600000;
    assert_int_equal(count(&(struct sb_filter){0}), 0);
    assert_null(sb_msg_by_id(&world, b->ids[0], NULL));
    assert_ptr_equal(sb_store_by_key(world.store, "k1"), a); /* the vendor itself knows */
    sandbox.knobs.lookup_delay_ms = 0;
    uint64_t last = sb_store_latest(world.store)->no;
    sb_store_clear(world.store);
    assert_null(sb_store_at(world.store, last));
    assert_int_equal(count(&(struct sb_filter){.to = "998900000001"}), 0);
    assert_int_equal(store("1", "k1", "x")->no, last + 1);
}

/* --- tokens ----------------------------------------------------------------------------- */

static void test_tokens(void **state)
{
    int64_t life_s = 0;
    json_auto_t *claims = json_pack("{s:s}", "sub", "me");

    (void)state;
    assert_false(sb_token_ok(&world, NULL));
    assert_false(sb_token_ok(&world, ""));
    dialect.token_s = 2592000;
    const char *one = sb_token_issue(&call, NULL, &life_s);
    assert_non_null(one);
    assert_int_equal(life_s, 2592000);
    sandbox.knobs.token_s = 60; /* the knob goes first */
    const char *two = sb_token_issue(&call, claims, &life_s);
    assert_int_equal(life_s, 60);
    assert_string_not_equal(one, two);
    assert_true(sb_token_ok(&world, one) && sb_token_ok(&world, two));
    assert_non_null(strchr(two, '.')); /* a JWT */
    assert_false(sb_token_ok(&world, "other"));
    assert_true(sb_token_age_ok(&world, 0));
    sb_tokens_expire(world.tokens, 1000999);
    assert_false(sb_token_age_ok(&world, 999));
    assert_true(sb_token_age_ok(&world, 1000)); /* of that very second: it may be younger */
    assert_false(sb_token_ok(&world, one) || sb_token_ok(&world, two));
    assert_true(sb_token_ok(&world, sb_token_issue(&call, NULL, NULL)));
}

/* --- fates and the table ---------------------------------------------------------------- */

static void test_magic(void **state)
{
    (void)state;
    assert_int_equal(sb_magic_of("+998901239904"), SB_MAGIC_REFUSED);
    assert_int_equal(sb_magic_of("9911"), SB_MAGIC_EXPIRED);
    assert_int_equal(sb_magic_of("+99890123990"), SB_MAGIC_NONE);
    assert_int_equal(sb_magic_of("904"), SB_MAGIC_NONE);
    assert_int_equal(sb_magic_of(""), SB_MAGIC_NONE);
}

/* Every dialect says all that the sandbox needs to hear of it. */
static void test_table(void **state)
{
    const char *before = "";

    (void)state;
    for (size_t i = 0; sb_dialect_at(i); i++) {
        const struct sb_dialect *d = sb_dialect_at(i);
        assert_true(strcmp(before, d->name) < 0);
        before = d->name;
        if (!d->read)
            continue;
        assert_ptr_equal(sb_dialect_find(d->name), d);
        assert_non_null(d->help);
        assert_non_null(d->accept);
        assert_non_null(d->refuse);
        assert_non_null(d->routes);
        bool takes = false;
        for (const struct sb_dialect_route *r = d->routes; r->method; r++)
            takes |= r->serve == NULL;
        assert_true(takes);
    }
    assert_null(sb_dialect_find("pigeon"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
        cmocka_unit_test_setup_teardown(test_utf16, begin, end),
        cmocka_unit_test_setup_teardown(test_authorization, begin, end),
        cmocka_unit_test_setup_teardown(test_ids, begin, end),
        cmocka_unit_test_setup_teardown(test_store, begin, end),
        cmocka_unit_test_setup_teardown(test_tokens, begin, end),
        cmocka_unit_test(test_magic),
        cmocka_unit_test(test_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
