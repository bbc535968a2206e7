#!/usr/bin/python3
"""Rules about the sources that no general tool knows: layers, libraries, banned calls, sizes.

Prints `file:line: reason` for each breach. Exit code 1 if there is one. A line that must break a
rule ends in a comment `lint: allow RULE, why`."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Who may include whom; a layer's own folder is always allowed. Everything points down.
LAYERS = {
    "worker/core": (),
    "worker/web": (),
    "worker/io": ("worker/core", "worker/web"),
    "worker/engine": ("worker/core", "worker/io", "worker/web"),
    "worker/cli": ("worker/core", "worker/io", "worker/engine", "worker/web", "providers/sandbox"),
    "worker/main.c": ("worker/core", "worker/io", "worker/engine", "worker/cli",
                      "providers/sandbox"),
    "providers/sandbox": ("worker/core", "worker/io", "providers/kit"),
    "providers/kit": ("worker/core",),
    "providers": ("worker/core", "providers/kit"),
}
CONTRACT = "providers/provider.h"  # the plugin border: every layer may know it

# Where a library's header may be included: paths that start so.
LIBRARIES = {
    "libpq-fe.h": ("worker/io/",),
    "curl/": ("worker/io/",),
    "microhttpd.h": ("worker/io/", "providers/sandbox/"),
    "ev.h": ("worker/io/", "worker/engine/", "worker/cli/", "worker/main.c", "providers/sandbox/"),
    "jansson.h": ("worker/engine/config", "worker/engine/report", "worker/cli/", "providers/"),
    "dlfcn.h": ("worker/engine/", "worker/io/"),
}

BANNED = {
    "strcpy": "no bound", "strcat": "no bound", "sprintf": "no bound", "vsprintf": "no bound",
    "gets": "no bound", "strncpy": "may leave no zero byte", "strncat": "its bound misleads",
    "strtok": "hidden state", "atoi": "no errors", "atol": "no errors", "atoll": "no errors",
    "atof": "no errors", "sscanf": "overflow is undefined", "system": "runs a shell",
    "popen": "runs a shell", "localtime": "static buffer, local zone", "gmtime": "static buffer",
    "ctime": "static buffer", "asctime": "static buffer", "rand": "poor and global",
    "alloca": "no failure to see", "sleep": "blocks the loop", "usleep": "blocks the loop",
    "signal": "use sigaction",
}
BANNED_RE = re.compile(r"(?<![\w.>])(" + "|".join(BANNED) + r")\s*\(")

# Core is told the time and the bytes; it asks nobody.
IMPURE_RE = re.compile(r"(?<![\w.>])(time|clock_gettime|gettimeofday|printf|fprintf|fputs|puts|fopen|"
                       r"open|read|write|send|recv|socket|getenv|random|getrandom|syslog|abort|"
                       r"exit)\s*\(")

MAX_LINES = 500
INCLUDE_RE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
ALLOW_RE = re.compile(r"lint: allow (\w+), \w")

problems = []


def complain(path, line, rule, reason, text=""):
    allowed = ALLOW_RE.search(text)
    if not (allowed and allowed.group(1) == rule):
        problems.append(f"{path}:{line}: {reason}")


def code_only(text):
    """The text with comments, strings and character constants blanked; lines stay where they are."""
    def blank(match):
        kept = "".join("\n" if c == "\n" else " " for c in match.group(0))
        return kept
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text,
                  flags=re.DOTALL)


def layer_of(path):
    """The longest key of LAYERS that holds this path."""
    fits = [key for key in LAYERS if path == key or path.startswith(key + "/")]
    return max(fits, key=len, default=None)


def check_include(path, number, quote, target, line):
    if quote == "<":
        for header, homes in LIBRARIES.items():
            hit = target == header or (header.endswith("/") and target.startswith(header))
            if hit and not path.startswith(homes):
                complain(path, number, "library",
                         f"<{target}> belongs to {', '.join(homes)} only", line)
        return
    if target.startswith(".") or not (ROOT / target).exists():
        complain(path, number, "include", f'"{target}" is no path from the root of the checkout', line)
        return
    own, other = layer_of(path), layer_of(target)
    if target == CONTRACT or own is None or other is None:
        return
    same_plugin = own == "providers" and path.split("/")[1] == target.split("/")[1]
    if (own == other and own != "providers") or same_plugin or other in LAYERS[own]:
        return
    complain(path, number, "layer", f"{own} must not include {other} (\"{target}\"): "
             "dependencies point down", line)


def check_c(path, text):
    lines = text.splitlines()
    code = code_only(text).splitlines()
    ours = path.startswith(("worker/", "providers/"))
    for number, line in enumerate(lines, 1):
        found = INCLUDE_RE.match(line)
        if found and ours:
            check_include(path, number, found.group(1), found.group(2), line)
    for number, (line, full) in enumerate(zip(code, lines), 1):
        for found in BANNED_RE.finditer(line):
            if ours:
                name = found.group(1)
                complain(path, number, "banned", f"{name}() is banned: {BANNED[name]}", full)
        if path.startswith("worker/core/"):
            for found in IMPURE_RE.finditer(line):
                complain(path, number, "pure", f"core is pure: {found.group(1)}() asks the world", full)
        if ours and re.search(r"\btypedef\s+(struct|union|enum)\b", line):
            complain(path, number, "typedef", "no typedef of a struct, union or enum", full)
    if ours and len(lines) > MAX_LINES:
        complain(path, len(lines), "size", f"{len(lines)} lines, at most {MAX_LINES}: two jobs?")


def check_python(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        if path.startswith("tests/e2e/") and re.search(r"\btime\.sleep\(", line):
            complain(path, number, "sleep", "a sleep is a guess: wait_until() a condition", line)


def check_migrations(paths):
    numbers = [int(re.match(r"sql/(\d+)_", p).group(1)) for p in paths if re.match(r"sql/\d+_", p)]
    for path in paths:
        if path.endswith(".sql") and not re.fullmatch(r"sql/\d{3}_[a-z0-9_]+\.sql", path):
            complain(path, 1, "name", "a migration is named NNN_topic.sql")
    if sorted(numbers) != list(range(1, len(numbers) + 1)):
        complain("sql", 1, "name", f"migrations do not count 1, 2, 3…: {sorted(numbers)}")


def check_words(files):
    """A checkout may name words it must not publish, one regular expression a line, in
    .git/info/lint-words: names of people, machines, customers."""
    words = ROOT / ".git/info/lint-words"
    if not words.exists():
        return
    lines = [w for w in words.read_text().splitlines() if w and not w.startswith("#")]
    if not lines:
        return
    pattern = re.compile("|".join(f"(?:{w})" for w in lines), re.IGNORECASE)
    for path, text in files.items():
        for number, line in enumerate(text.splitlines(), 1):
            found = pattern.search(line)
            if found:
                complain(path, number, "word", f'"{found.group(0)}" must not be published', line)


def sources():
    """Text files that git knows or would take, as {path: text}; all files where git is missing."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others",
                                 "--exclude-standard"], cwd=ROOT, capture_output=True,
                                check=True).stdout.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):
        listed = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*")
                  if "build" not in p.parts and ".git" not in p.parts]
    files = {}
    for name in sorted(set(listed)):
        path = ROOT / name
        if name and path.is_file():
            try:
                files[name] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
    return files


def main():
    files = sources()
    for path, text in files.items():
        if path.endswith((".c", ".h")):
            check_c(path, text)
        elif path.endswith(".py"):
            check_python(path, text)
    check_migrations([p for p in files if re.match(r"sql/[^/]+\.sql$", p)])
    check_words(files)
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
