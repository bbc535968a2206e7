"""Turns a plugin's fixtures into inputs for its fuzzer, tests/fuzz/plugin_any.c tells the form.

    tests/fuzz/seeds.py PLUGIN FOLDER
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
JUDGE, ASK, LOGIN, RECEIPT, BUILD = range(5)


def plugins():
    """Every plugin with source files, as the Makefile sees them."""
    return sorted({path.parent.name for path in (ROOT / "providers").glob("*/*.c")} - {"kit", "sandbox"})


def text(value):
    return str(value or "").encode("utf-8", "surrogatepass").replace(b"\0", b"")


def body(holder):
    value = holder.get("body") or ""
    if isinstance(value, dict):
        value = json.dumps(value.get("$json"), ensure_ascii=False)
    return value.encode("utf-8", "surrogatepass")


def headers(holder):
    return "\n".join(f"{k}:{v}" for k, v in (holder.get("headers") or {}).items())


def seed(what, settings, fields, holder, flags=0):
    status = int(holder.get("status") or 0)
    return (bytes([what, settings, flags, status >> 8 & 255, status & 255])
            + b"".join(text(f) + b"\0" for f in fields) + body(holder))


def asked(question):
    message = question.get("message") or {}
    return [message.get("recipient"), message.get("body"), message.get("sender"),
            question.get("vendor_id"), question.get("cursor"), question.get("from_ms") or 0]


def seeds_of(case, settings):
    """The inputs one case gives: none, one or two."""
    reply = case.get("reply")
    flags = int(reply is not None and reply.get("complete") is False)
    if "question" in case:
        reply = reply or {}
        yield seed(ASK, settings, [*asked(case["question"]), headers(reply)], reply, flags)
    elif reply is not None:
        yield seed(JUDGE, settings, [headers(reply)], reply, flags)
    if "message" in case and "change" not in case and isinstance(case["message"], dict):
        yield seed(BUILD, settings, [*asked(case), ""], {})
    if "login_reply" in case:
        yield seed(LOGIN, settings, [headers(case["login_reply"])], case["login_reply"])
    if "callback" in case:
        call = case["callback"]
        yield seed(RECEIPT, settings, [call.get("now_ms") or 1700000000000, call.get("url"), headers(call)],
                   call, 2 if call.get("method") == "GET" else 0)


def write(plugin, folder):
    """Writes the seeds of one plugin; returns how many."""
    count = 0
    # By name in byte order, as glob(3) sorts in the C locale.
    for settings, path in enumerate(sorted((ROOT / "providers" / plugin / "fixtures").glob("*.json"))):
        for case in json.loads(path.read_text(encoding="utf-8")).get("cases", []):
            for data in seeds_of(case, settings):
                pathlib.Path(folder, f"{path.stem}-{count:04}").write_bytes(data)
                count += 1
    return count


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(write(sys.argv[1], sys.argv[2]))
