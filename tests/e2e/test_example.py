"""A plugin author's afternoon: providers/README.md's own commands build the example outside the tree,
its fixtures prove it, postrider loads it, and a broken one is found out by the same means."""
import json
import os
import pathlib
import re
import shlex
import subprocess

import pytest

from tests.harness import clean
from tests.harness.procs import binary

README = clean.ROOT / "providers/README.md"
DRIVER = clean.ROOT / os.environ.get("POSTRIDER_TESTS", "build/release/tests") / "test_plugins"


def blocks():
    """The README's shell blocks, in order: build it, prove it."""
    found = re.findall(r"^```sh\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(found) == 2, found
    return found


def shell(script, home):
    """As a reader would: in the root of the checkout, with `postrider` installed."""
    bin_dir = pathlib.Path(home, "bin")
    bin_dir.mkdir(exist_ok=True)
    for name, target in (("postrider", pathlib.Path(binary()).resolve()),):
        link = bin_dir / name
        if not link.exists():
            link.symlink_to(target)
    return subprocess.run(["sh", "-e", "-c", script], cwd=clean.ROOT, check=False, capture_output=True, text=True,
                          timeout=120, env=dict(os.environ, HOME=str(home), PATH=f"{bin_dir}:{os.environ['PATH']}",
                                                CMOCKA_MESSAGE_OUTPUT="TAP"))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home directory with ~/acme/acme.so, built by the README's first block."""
    path = tmp_path_factory.mktemp("home")
    done = shell(blocks()[0], path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" and (path / "acme/acme.so").is_file()
    return path


def prove(home):
    """The README's second block; `build/release/tests` is wherever this run built it."""
    driver = shlex.quote(str(DRIVER))  # the checkout may lie under a path with a space
    script = blocks()[1].replace("build/release/tests/test_plugins", driver)
    assert driver in script
    return shell(script, home)


def test_the_example_is_built_proven_and_loaded_by_the_readme(home):
    done = prove(home)
    assert done.returncode == 0, done.stdout + done.stderr
    cases = json.loads((home / "acme/fixtures/acme.json").read_text(encoding="utf-8"))
    # Every case, every refusal, the capabilities, and that there are fixtures.
    wanted = len(cases["cases"]) + len(cases["refused"]) + 2
    assert len(re.findall(r"^ok \d+ - acme\.so/", done.stdout, re.MULTILINE)) == wanted, done.stdout
    assert not re.search(r"^not ok", done.stdout, re.MULTILINE)
    assert "every plugin opened" in done.stdout and "./acme.so" in done.stdout
    assert "knows a key for 1 d" in done.stdout


def test_a_fixture_that_does_not_hold_is_found(home):
    path = home / "acme/fixtures/acme.json"
    good = path.read_text(encoding="utf-8")
    try:
        path.write_text(good.replace('"outcome": "held"', '"outcome": "accepted"'), encoding="utf-8")
        done = prove(home)
        assert done.returncode != 0
        failed = re.findall(r"^not ok \d+ - (.*)$", done.stdout, re.MULTILINE)
        assert failed == ["acme.so/acme.json: an error inside a success"], done.stdout
    finally:
        path.write_text(good, encoding="utf-8")


def test_settings_it_does_not_know_are_refused_in_its_own_words(home):
    config = json.loads((home / "acme/acme.json").read_text(encoding="utf-8"))
    config["providers"]["main"]["settings"]["api_kee"] = "x"
    (home / "acme/wrong.json").write_text(json.dumps(config), encoding="utf-8")
    done = shell("cd ~/acme && ACME_API_KEY=secret postrider check --offline --config wrong.json", home)
    assert done.returncode == 3
    assert "api_kee" in done.stderr and "settings are api_key and url" in done.stderr
    assert "secret" not in done.stdout + done.stderr
