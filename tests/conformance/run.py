#!/usr/bin/python3
"""Every plugin, in each of its ways, through every outcome against its vendor's dialect: what it
claims, and what it did.

    tests/conformance/run.py [--json] [--only NAME,…] [--log FILE]

Exit 0: all did what they claim. 1: a case failed."""

import argparse
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.conformance import cases, kit  # noqa: E402
from tests.conformance.variants import VARIANTS  # noqa: E402
from tests.harness.cluster import Cluster  # noqa: E402

MARK = {"ok": "ok", "n/a": "-", "FAIL": "FAIL"}
CLAIMS = ("dedup", "ask", "receipts", "ids")
HEADS = {"throttled": "thrott.", "lost answer": "lost", "half answer": "half", "never seen": "never", "5xx taken": "5xx",
         "vietnamese": "viet.", "10 parts": "10 GSM", "10 parts UCS-2": "10 UCS", "undelivered": "undeliv.",
         "unreached": "unreach.", "duplicate": "dupl."}


def ids(caps):
    return "a part" if caps["several_ids"] else "maybe" if caps["answers_without_id"] else "always"


def table(results, columns, claims=False):
    heads = ["plugin"] + (list(CLAIMS) if claims else []) + [HEADS.get(c, c) for c in columns]
    rows = []
    for name, (caps, got) in results.items():
        said = [caps["dedup"], caps["ask"], caps["receipts"], ids(caps)] if claims else []
        rows.append([name] + said + [MARK[got.get(c, ("FAIL", ""))[0]] for c in columns])
    widths = [max(len(r[i]) for r in rows + [heads]) for i in range(len(heads))]
    return "\n".join("  ".join(x.ljust(w) for x, w in zip(row, widths)).rstrip() for row in [heads] + rows)


def reasons(results):
    """Why a case did not apply: reason -> who and which."""
    why = {}
    for name, (_, got) in results.items():
        for case, (result, reason) in got.items():
            if result == "n/a":
                why.setdefault(reason, {}).setdefault(case, []).append(name)
    return why


def failures(results):
    for name, (_, got) in results.items():
        for case in list(cases.CASES) + [c for c in got if c not in cases.CASES]:
            result, reason = got.get(case, ("FAIL", "did not come to its turn"))
            if result == "FAIL":
                yield name, case, reason


def show(results, seconds):
    print("\nWhat each claims, and what it did at every outcome (- does not apply, see below)\n")
    print(table(results, cases.OUTCOMES, claims=True))
    print("\nTexts byte for byte at the phone, and receipts\n")
    print(table(results, tuple(cases.TEXTS) + cases.RECEIPTS))
    print("\nWhat does not apply, and why")
    for reason, who in sorted(reasons(results).items()):
        print(f"  {reason}")
        for case, names in who.items():
            print(f"      {case}: {', '.join(names)}")
    failed = list(failures(results))
    for name, case, reason in failed:
        print(f"\nFAIL {name}: {case}: {reason}")
    done = [r for _, got in results.values() for r, _ in got.values()]
    print(f"\n{len(results)} variants, {done.count('ok')} cases ok, {done.count('n/a')} not applicable, "
          f"{len(failed)} failed, in {seconds:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="print the results as one JSON object")
    parser.add_argument("--only", help="names of variants, separated by commas")
    parser.add_argument("--log", help="keep the worker's log in this file")
    args = parser.parse_args()
    chosen = [v for v in VARIANTS if not args.only or v.name in args.only.split(",")]
    if not chosen:
        parser.error(f"no such variant; there are {', '.join(v.name for v in VARIANTS)}")
    began = time.monotonic()

    def told(name, case, result, why):
        if result == "FAIL" or not args.json:
            print(f"{time.monotonic() - began:5.0f} s  {name}: {case} {result}"
                  + (f": {why.splitlines()[0][:200]}" if result == "FAIL" else ""), file=sys.stderr, flush=True)
    with Cluster(fsync=True) as cluster:
        results, log = kit.run(cluster, chosen, told=told)
    seconds = time.monotonic() - began
    if args.log:
        pathlib.Path(args.log).write_text(log)
    if args.json:
        print(json.dumps({"seconds": round(seconds, 1), "failed": len(list(failures(results))), "variants": [
            {"name": name, "claims": caps, "cases": {c: {"result": r, "why": w} for c, (r, w) in got.items()}}
            for name, (caps, got) in results.items()]}))
    else:
        show(results, seconds)
    return 1 if any(True for _ in failures(results)) else 0


if __name__ == "__main__":
    sys.exit(main())
