"""What people see while something runs: one line that moves, or plain lines elsewhere."""

import os
import shutil
import sys
import time

PLAIN_EVERY_S = 2.0


def human(seconds):
    seconds = int(seconds + 0.5)
    return f"{seconds // 60} min {seconds % 60:02} s" if seconds >= 60 else f"{seconds} s"


class Progress:
    """A bar on a terminal, a line every two seconds elsewhere; say() keeps a line above it."""

    def __init__(self, total, title="", out=None):
        self.out = out or sys.stdout
        self.total = max(1, total)
        self.title = title
        self.live = self.out.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
        self.began = time.monotonic()
        self.shown = 0.0
        self.marks = [(self.began, 0)]

    def seconds(self):
        return time.monotonic() - self.began

    def rate(self, done):
        """Messages a second over the last three seconds."""
        now = time.monotonic()
        if now - self.marks[-1][0] >= 0.2:
            self.marks.append((now, done))
        while len(self.marks) > 2 and now - self.marks[1][0] > 3:
            self.marks.pop(0)
        then, before = self.marks[0]
        return max(0.0, (done - before) / max(now - then, 0.001))

    def show(self, done, note=""):
        rate = self.rate(done)
        if not self.live and time.monotonic() - self.shown < PLAIN_EVERY_S:
            return
        self.shown = time.monotonic()
        left = max(0, self.total - done)
        eta = f"~{human(left / rate)}" if left and rate * 3600 > left else ""
        figures = "  ".join(filter(None, (f"{rate:,.0f}/s", f"{left:,} left", eta, note)))
        figures = f"{done:,} of {self.total:,}  {figures}"
        if not self.live:
            print(f"{self.seconds():5.0f} s  {self.title}{figures}".rstrip(), file=self.out, flush=True)
            return
        width = shutil.get_terminal_size().columns - 1
        cells = max(6, min(30, width - len(self.title) - len(figures) - 3))
        filled = min(cells, cells * done // self.total)
        line = f"{self.title}[{'#' * filled}{'.' * (cells - filled)}] {figures}"
        self.out.write(f"\r\033[K{line[:width]}")
        self.out.flush()

    def say(self, text):
        self.clear()
        print(f"{self.seconds():5.0f} s  {text}", file=self.out, flush=True)

    def clear(self):
        if self.live:
            self.out.write("\r\033[K")
            self.out.flush()


def table(heads, rows, out=None):
    """Text columns; the first is left, the others right."""
    texts = [[str(h) for h in heads]] + [[f"{c:,}" if isinstance(c, int) else str(c) for c in row] for row in rows]
    widths = [max(len(row[i]) for row in texts) for i in range(len(heads))]
    for at, row in enumerate(texts):
        cells = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]
        print("  " + "  ".join(cells).rstrip(), file=out or sys.stdout, flush=True)
        if at == 0:
            print("  " + "  ".join("-" * w for w in widths), file=out or sys.stdout, flush=True)
