"""C, SQL and a slow reference agree on every text and number (cases E1 to E14, N1, D11, D12).

Three implementations that share no code: worker/core (through tests/unit/text_driver.c),
sql/002_text.sql, and the plain one below, whose alphabet is typed from 3GPP TS 23.038.
"""

import pathlib
import random
import re
import subprocess
import unicodedata

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEED = 23038

DEFAULT = set(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
EXTENSION = set("\f^{}\\[~]|€")

CYRILLIC = "абвгдежзийклмнопрстуфхцчшщъыьэюяўқғҳ"
EMOJI = "😀🚀🇺🇿👍"
TRAPS = "`çδ’ʻ\u00a0—•\t\u200b\u2126\uffff\U0010ffff"
LETTERS = sorted(DEFAULT)
MARKS = sorted(EXTENSION)


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Asks the C side: one line for each of the given lines."""
    driver = tmp_path_factory.mktemp("driver") / "text_driver"
    core = [str(ROOT / "worker" / "core" / name) for name in ("text.c", "phone.c", "utf8.c")]
    subprocess.run(
        ["cc", "-std=c17", "-D_GNU_SOURCE", "-O1", "-I", str(ROOT), "-o", str(driver),
         str(ROOT / "tests" / "unit" / "text_driver.c"), *core],
        check=True,
    )

    def run(kind, texts):
        lines = "".join(f"{kind} {text.encode().hex()}\n" for text in texts)
        out = subprocess.run([str(driver)], input=lines, capture_output=True, text=True, check=True)
        answers = out.stdout.splitlines()
        assert len(answers) == len(texts)
        return answers

    return run


@pytest.fixture(scope="module")
def cursor(cluster):
    """A cursor in a database with these functions and nothing else."""
    name = cluster.createdb()
    connection = cluster.connect(cluster.dsn(name))
    with connection.cursor() as cur:
        cur.execute("create schema postrider")
        cur.execute((ROOT / "sql" / "002_text.sql").read_text())
        yield cur
    connection.close()
    cluster.dropdb(name)


def reference(text):
    """(alphabet, units, segments, culprit, place), written for clearness only."""
    foreign = [(place, char) for place, char in enumerate(text)
               if char not in DEFAULT and char not in EXTENSION]
    if foreign:
        alphabet, single, room = "UCS-2", 70, 67
        sizes = [len(char.encode("utf-16-le")) // 2 for char in text]
    else:
        alphabet, single, room = "GSM-7", 160, 153
        sizes = [2 if char in EXTENSION else 1 for char in text]
    units = sum(sizes)
    if units <= single:
        parts = [sizes] if sizes else []
    else:
        parts = [[]]
        for size in sizes:
            if sum(parts[-1]) + size > room:
                parts.append([])
            parts[-1].append(size)
    place, char = foreign[0] if foreign else (0, "\0")
    return alphabet, units, len(parts), ord(char), place


def random_text(rng):
    """Mixtures in which every alphabet, both kinds of pairs and all borders come up."""
    pools = rng.choice((
        [LETTERS], [LETTERS, MARKS], [MARKS], [CYRILLIC], [CYRILLIC, EMOJI], [EMOJI],
        [LETTERS, MARKS, EMOJI], [LETTERS, CYRILLIC, TRAPS], [LETTERS, MARKS, CYRILLIC, EMOJI, TRAPS],
    ))
    borders = (0, 1, 35, 66, 67, 70, 76, 80, 134, 152, 153, 160, 201, 306, 459)
    length = max(0, rng.choice(borders) + rng.randint(-3, 3)) if rng.random() < 0.7 else rng.randint(0, 700)
    weight = rng.random()
    return "".join(
        rng.choice(pools[0] if rng.random() < weight else rng.choice(pools)) for _ in range(length)
    )


def border_texts():
    """A pair pushed over each of the first borders, from every side."""
    for room, one, pair in ((153, "a", "["), (67, "ж", "😀")):
        for parts in range(1, 8):
            for shift in range(-3, 4):
                for tail in (0, 1, room - 1, room):
                    yield one * max(0, parts * room + shift) + pair + one * tail
                    yield pair * max(0, parts * room // 2 + shift) + one + pair * (tail // 2)


def texts():
    rng = random.Random(SEED)
    return list(border_texts()) + [random_text(rng) for _ in range(6000)]


def test_reference_knows_the_published_cases():
    assert (len(DEFAULT), len(EXTENSION)) == (127, 10)
    assert reference("]" * 153)[:3] == ("GSM-7", 306, 3)
    assert reference("{" * 68 + "😀")[:3] == ("UCS-2", 70, 1)
    assert reference("ж" * 66 + "😀" + "ж" * 20)[:3] == ("UCS-2", 88, 2)
    assert reference("a" * 159 + "€")[:3] == ("GSM-7", 161, 2)


def test_measure_is_the_reference(ask):
    given = texts()
    for text, line in zip(given, ask("t", given)):
        alphabet, units, segments, culprit, place = reference(text)
        assert line == f"{alphabet} {units} {segments} {culprit:x} {place}", repr(text)


def test_sql_segments_are_the_reference(cursor):
    given = texts()
    cursor.execute(
        "select postrider.segments(t), postrider.is_gsm7(t)"
        " from unnest(%s::text[]) with ordinality as u(t, n) order by n", (given,))
    for text, (segments, gsm7) in zip(given, cursor.fetchall(), strict=True):
        alphabet, _, want, _, _ = reference(text)
        assert (segments, gsm7) == (want, alphabet == "GSM-7"), repr(text)


def test_body_too_long_is_a_comparison(cursor):
    given = texts()[::4]
    cursor.execute(
        "select n, m from unnest(%s::text[]) with ordinality as u(t, n), generate_series(-1, 9) m"
        " where postrider.body_too_long(t, m) is distinct from (postrider.segments(t) > m)", (given,))
    assert [(given[n - 1], limit) for n, limit in cursor.fetchall()] == []


def test_each_character_alone(ask, cursor):
    """Every character PostgreSQL can store, against the two tables."""
    codes = [code for code in range(1, 0x30000) if not 0xD800 <= code < 0xE000] + [0x10FFFF]
    chars = [chr(code) for code in codes]
    cursor.execute(
        "select array_agg(t order by n) from unnest(%s::text[]) with ordinality as u(t, n)"
        " where postrider.is_gsm7(t)", (chars,))
    in_sql = set(cursor.fetchone()[0])
    in_c = {char for char, line in zip(chars, ask("t", chars)) if line.startswith("GSM-7")}
    assert in_sql == DEFAULT | EXTENSION
    assert in_c == DEFAULT | EXTENSION


def random_number(rng):
    digits = "".join(rng.choice("0123456789") for _ in range(rng.choice((5, 6, 7, 8, 9, 11, 12, 14, 15, 16, 17, 20))))
    if rng.random() < 0.6:
        digits = digits.lstrip("0")
    text = rng.choice(("", "", "+", "00", "0", "++", "+0", "0+", " +", "(+", "000", "＋")) + digits
    strange = rng.choice((" ", " -()./", " \u00a0\u202f\u2009\u200b\ufeff\u2011", "x", "+", "\n", "７", "٣", "\u061c", "é", "_"))
    chars = list(text)
    for _ in range(rng.choice((0, 0, 1, 3))):
        chars.insert(rng.randint(0, len(chars)), rng.choice(strange))
    return "".join(chars)


def reference_number(text):
    """The rule in one line each: separators off, 00 is a plus, 8 to 15 bare digits are whole."""
    def separator(char):
        return (char.isspace() and not "\x1c" <= char <= "\x1f") or unicodedata.category(char) in ("Pd", "Cf") and (
            char in "-\ufeff\u2060" or "\u200b" <= char <= "\u2015" or "\u202a" <= char <= "\u202e"
            or "\u2066" <= char <= "\u2069") or char in "().\u002f\u2212"
    bare = "".join(char for char in text if not separator(char))
    if re.fullmatch("[1-9][0-9]{7,14}", bare):
        return "+" + bare
    bare = re.sub("^00", "+", bare)
    return bare if re.fullmatch(r"\+[1-9][0-9]{6,14}", bare) else None


def numbers():
    rng = random.Random(SEED)
    around = [f"+44770{chr(code)}0900001" for code in range(1, 0x3100)] + ["+44770\ufeff0900001", "+44770\uff110900001"]
    return around + [random_number(rng) for _ in range(10000)]


def test_numbers_are_the_reference(ask, cursor):
    given = numbers()
    cursor.execute(
        "select postrider.normalize_phone(t)"
        " from unnest(%s::text[]) with ordinality as u(t, n) order by n", (given,))
    in_sql = [row[0] for row in cursor.fetchall()]
    want = [reference_number(text) for text in given]
    assert sum(number is not None for number in want) > 1500
    assert sum(number is None for number in want) > 1500
    for text, number, sql, c in zip(given, want, in_sql, ask("p", given), strict=True):
        assert (sql, c) == (number, number or "-"), repr(text)
