"""The program under test as processes: Sandbox, Worker, one-shot commands, and waiting.

Every process writes its log to a file, listens on a port of its own choosing and dies with the
test. Nothing here sleeps a guess: wait_until() polls a condition up to a deadline."""

import copy
import json
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

from . import clean

LISTENING = re.compile(r"listening\b.*?(\d+\.\d+\.\d+\.\d+:\d+)")


def binary():
    """The program: $POSTRIDER (relative to the checkout), else build/postrider."""
    return clean.ROOT / os.environ.get("POSTRIDER", "build/postrider")


def wait_until(cond, timeout=20, what="the condition", interval=0.02):
    """Polls until cond() is true and returns what it gave; fails naming `what`. An OSError from
    cond (nobody answers yet) counts as not yet."""
    deadline = time.monotonic() + timeout
    problem = None
    while True:
        try:
            value = cond()
            if value:
                return value
            problem = None
        except OSError as error:
            problem = error
        if time.monotonic() > deadline:
            raise AssertionError(f"gave up after {timeout} s waiting for {what() if callable(what) else what}"
                                 + (f" (last: {problem})" if problem else ""))
        time.sleep(interval)


def run(*args, dsn=None, env=None, check=True, timeout=60, stdin=None):
    """Runs one `postrider` command; returns the CompletedProcess with text in stdout and stderr.
    With `check` a non-zero exit fails the test and shows what was printed."""
    environ = dict(os.environ, **(env or {}))
    if dsn:
        environ["POSTRIDER_DSN"] = dsn
    process = clean.spawn([binary(), *args], env=environ, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True,
                          stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL)
    try:
        out, err = process.communicate(stdin, timeout)
    except subprocess.TimeoutExpired:
        clean.kill(process)
        out, err = process.communicate()
        raise AssertionError(f"postrider {' '.join(map(str, args))} did not end in {timeout} s\n"
                             f"{out}{err}") from None
    done = subprocess.CompletedProcess([str(a) for a in args], process.returncode, out, err)
    if check and done.returncode != 0:
        raise AssertionError(f"postrider {' '.join(done.args)} exited {done.returncode}\n{out}{err}")
    return done


def migrate(dsn):
    """Brings a database to the newest schema."""
    run("migrate", "--dsn", dsn)


def merged(base, over):
    """base with `over` laid on it, dict into dict; None removes a key."""
    result = copy.deepcopy(base)
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = copy.deepcopy(value)
    return result


class Process:
    """One running `postrider` command with its log file and, once it listens, its address."""

    def __init__(self, name, args, env=None):
        self.dir = clean.temp_dir(name)
        self.log = self.dir / "log"
        self.name = name
        self._address = None
        with open(self.log, "ab") as log:
            self.process = clean.spawn([binary(), *args], env=dict(os.environ, **(env or {})),
                                       stdout=log, stderr=log, cwd=clean.ROOT)
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def log_text(self):
        return self.log.read_text(errors="replace")

    def alive(self):
        return self.process.poll() is None

    def wait_address(self, timeout=20):
        """host:port, read from the line in which the process says that it listens."""
        def look():
            found = LISTENING.search(self.log_text())
            if not found and not self.alive():
                raise AssertionError(f"{self.name} exited {self.process.returncode} before it "
                                     f"listened:\n{self.log_text()[-3000:]}")
            return found and found.group(1)
        if not self._address:
            self._address = wait_until(look, timeout, lambda: f"{self.name} to listen:\n"
                                       f"{self.log_text()[-3000:]}")
        return self._address

    @property
    def url(self):
        return f"http://{self.wait_address()}"

    def http(self, path, method="GET", body=None, headers=None, timeout=10):
        """One request; returns (status, bytes). Statuses like 503 are answers, not exceptions."""
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        request = urllib.request.Request(self.url + path, data=data, method=method,
                                         headers=headers or {})
        if isinstance(body, (dict, list)):
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=timeout) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def kill(self, number=signal.SIGKILL):
        """Sends a signal; for SIGKILL also waits for the end."""
        if self.alive():
            self.process.send_signal(number)
            if number == signal.SIGKILL:
                self.process.wait(10)

    def wait(self, timeout=30):
        """The exit code, once it has ended by itself."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end in {timeout} s:\n"
                                 f"{self.log_text()[-3000:]}") from None

    def stop(self, timeout=20):
        """SIGTERM, and SIGKILL if that is not obeyed in time; returns the exit code."""
        if self.alive():
            self.process.send_signal(signal.SIGCONT)  # a stopped process obeys nothing but KILL
            self.process.terminate()
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                clean.kill(self.process)
        return self.process.returncode


class Sandbox(Process):
    """The simulated vendor: Sandbox("--latency-p50=20", "--dedup=off", ...); its knobs and its API
    are in providers/sandbox/README.md. Send to `.url + "/messages"`."""

    def __init__(self, *args):
        super().__init__("sandbox", ["sandbox", "--listen", "127.0.0.1:0", *args])
        self.wait_address()

    def api(self, path, method="GET", body=None, timeout=60):
        """A call of the sandbox's own JSON API, "/stats" for /api/stats; anything but 2xx fails."""
        path = path if path.startswith("/api/") else "/api" + path
        status, text = self.http(path, method, body, timeout=timeout)
        if not 200 <= status < 300:
            raise AssertionError(f"sandbox {method} {path}: {status} {text[:500]!r}")
        return json.loads(text) if text.strip() else None


class Worker(Process):
    """`postrider worker` with a config (a dict, or the path of a file)."""

    def __init__(self, config, dsn=None, env=None, args=()):
        environ = dict(env or {})
        if dsn:
            environ["POSTRIDER_DSN"] = dsn
        scratch = clean.temp_dir("worker-config")
        self.config = pathlib.Path(config) if not isinstance(config, dict) else scratch / "config.json"
        if isinstance(config, dict):
            self.write_config(config)
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.setblocking(False)
        self._notify.bind(str(scratch / "notify"))
        self.notifications = []
        environ.setdefault("NOTIFY_SOCKET", str(scratch / "notify"))
        super().__init__("worker", ["worker", "--config", self.config, *args], environ)

    def write_config(self, config):
        self.config.write_text(json.dumps(config, indent=2))

    def notified(self):
        """Everything sd_notify has told so far, oldest first: ["READY=1", "WATCHDOG=1", ...]."""
        while select.select([self._notify], [], [], 0)[0]:
            self.notifications += self._notify.recv(4096).decode().split("\n")
        return self.notifications

    def wait_ready(self, timeout=20):
        """Until READY=1 came over sd_notify, or /readyz says 200. Returns self."""
        def ready():
            if not self.alive():
                raise AssertionError(f"worker exited {self.process.returncode}:\n"
                                     f"{self.log_text()[-3000:]}")
            return "READY=1" in self.notified() or (
                LISTENING.search(self.log_text()) and self.http("/readyz")[0] == 200)
        wait_until(ready, timeout, lambda: f"the worker to be ready:\n{self.log_text()[-3000:]}")
        return self

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def metrics(self):
        """{'name{label="x"}': value} as /metrics shows them."""
        status, text = self.http("/metrics")
        if status != 200:
            raise AssertionError(f"/metrics: {status}")
        values = {}
        for line in text.decode().splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                values[name] = float(value)
        return values
