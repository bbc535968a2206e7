#!/usr/bin/python3
"""Line coverage of an instrumented build, a file a line: tests/coverage.py build/coverage

Sums what gcov reports for each source under worker/ and providers/. Processes killed with SIGKILL
write no counters, so the figure is a lower bound."""

import collections
import json
import pathlib
import subprocess
import sys


def main(folder):
    hit = collections.defaultdict(lambda: collections.defaultdict(int))
    for notes in sorted(pathlib.Path(folder).rglob("*.gcno")):
        done = subprocess.run(["gcov", "--json-format", "--stdout", str(notes)],
                              capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            for source in json.loads(line)["files"]:
                name = source["file"].removeprefix("./")
                if name.startswith(("worker/", "providers/")) and name.endswith(".c"):
                    for counted in source["lines"]:
                        hit[name][counted["line_number"]] += counted["count"]
    all_lines = all_hit = 0
    for name, lines in sorted(hit.items()):
        covered = sum(1 for count in lines.values() if count)
        all_lines += len(lines)
        all_hit += covered
        print(f"{100 * covered / len(lines):5.1f} %  {covered:5} of {len(lines):5}  {name}")
    if not all_lines:
        print(f"no counters under {folder}", file=sys.stderr)
        return 1
    print(f"{100 * all_hit / all_lines:5.1f} %  {all_hit:5} of {all_lines:5}  total")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
