"""A private PostgreSQL: its own directory, port and socket, gone when the test is.

    with Cluster() as pg:
        dsn = pg.createdb()
        pg.connect(dsn)...

fsync is on, because what these tests prove is what survives a crash; `Cluster(fsync=False)` is for
those that prove something else. As root the server runs as "postgres" or "nobody", since it
refuses root. `python3 -m tests.harness.cluster` starts one, prints its DSN, and ends on Ctrl-C."""

import contextlib
import glob
import os
import pathlib
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse

import psycopg2

from . import clean

SETTINGS = {
    "max_connections": 200,
    "shared_buffers": "256MB",
    "log_line_prefix": "%m [%p] %a ",
    "log_statement": "none",
    "log_min_duration_statement": "1s",
    "timezone": "UTC",
    "unix_socket_permissions": "0700",
    # A small machine's disk is shared with everything else that is being tested.
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "wal_level": "replica",
}


def bin_dir():
    """Where initdb and postgres are: PG_BINDIR, else Debian's newest, else what PATH has."""
    if os.environ.get("PG_BINDIR"):
        return pathlib.Path(os.environ["PG_BINDIR"])
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"),
                   key=lambda p: int(p.split("/")[-3]))
    if found:
        return pathlib.Path(found[-1]).parent
    initdb = shutil.which("initdb")
    if not initdb:
        raise RuntimeError("PostgreSQL's server programs are not installed: make deps")
    return pathlib.Path(initdb).resolve().parent


def server_user():
    """Whom the server runs as: nobody else unless we are root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise RuntimeError("PostgreSQL refuses to run as root and there is no user postgres or nobody")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Cluster:
    """One server. Start and stop it as often as a test needs; the port stays the same."""

    def __init__(self, fsync=True, **settings):
        self.user = server_user()
        self.bin = bin_dir()
        self.dir = clean.temp_dir("pg", self.user)
        self.data = self.dir / "data"
        self.log = self.dir / "server.log"
        self.password = secrets.token_hex(12)
        self.port = free_port()
        self.settings = dict(SETTINGS, fsync="on" if fsync else "off", **settings)
        self.process = None
        self._databases = 0
        self._templates = {}
        self._undo = clean.at_exit(self.destroy)
        try:
            self._initdb()
            self.start()
        except BaseException:
            self.destroy()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.destroy()

    # -- the server ---------------------------------------------------------------------------

    def _initdb(self):
        secret = self.dir / "password"
        secret.write_text(self.password)
        if self.user:
            shutil.chown(secret, self.user)
        done = clean.spawn(
            [self.bin / "initdb", "-D", self.data, "-U", "postgres", "--pwfile", secret,
             "--auth-local=trust", "--auth-host=scram-sha-256", "-E", "UTF8",
             "--locale=C.UTF-8", "--no-sync"],
            user=self.user, cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = done.communicate()[0].decode(errors="replace")
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed:\n{text}")

    def _command(self):
        options = dict(self.settings, port=self.port, listen_addresses="127.0.0.1",
                       unix_socket_directories=self.dir)
        args = [self.bin / "postgres", "-D", self.data]
        for name, value in options.items():
            args += ["-c", f"{name}={value}"]
        return args

    def start(self, timeout=60):
        """Starts the server and returns when it answers. A port taken meanwhile is replaced once
        nobody knows it yet (the first start)."""
        first = self.process is None
        for attempt in range(5):
            with open(self.log, "ab") as log:
                mark = log.tell()
                # SIGQUIT when we die: the server's "immediate" stop, which takes its children along.
                self.process = clean.spawn(self._command(), user=self.user, death_signal="QUIT",
                                           cwd=self.dir, stdout=log, stderr=log)
            if self._wait_answer(timeout):
                return self
            if first and b"Address already in use" in self.log.read_bytes()[mark:] and attempt < 4:
                self.port = free_port()
                continue
            raise RuntimeError("PostgreSQL does not start:\n" + self.log_text()[-3000:])
        return self

    def _wait_answer(self, timeout):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                return False
            try:
                psycopg2.connect(self.dsn("postgres"), connect_timeout=5).close()
                return True
            except psycopg2.OperationalError:
                time.sleep(0.05)
        return False

    def stop(self, mode="fast", timeout=60):
        """mode: smart (waits for clients), fast (rolls back) or immediate (as a crash)."""
        number = {"smart": signal.SIGTERM, "fast": signal.SIGINT,
                  "immediate": signal.SIGQUIT}[mode]
        if self.process and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(timeout)

    def restart(self, mode="fast"):
        self.stop(mode)
        self.start()

    def immediate(self):
        """A crash and the recovery from it."""
        self.restart("immediate")

    def destroy(self):
        if self.process and self.process.poll() is None:
            try:
                self.stop("immediate", 10)
            except subprocess.TimeoutExpired:
                clean.kill(self.process)
        shutil.rmtree(self.dir, ignore_errors=True)
        clean.forget(self._undo)

    def log_text(self):
        return self.log.read_text(errors="replace")

    # -- databases ----------------------------------------------------------------------------

    def dsn(self, dbname, tcp=False):
        """A URL for libpq: over the socket, or over TCP (for proxies) with the password."""
        if tcp:
            return (f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/"
                    f"{urllib.parse.quote(dbname)}")
        query = urllib.parse.urlencode({"host": self.dir, "port": self.port, "user": "postgres"})
        return f"postgresql:///{urllib.parse.quote(dbname)}?{query}"

    def connect(self, dsn="postgres", autocommit=True):
        """A psycopg2 connection; takes a DSN or a database's name."""
        conn = psycopg2.connect(dsn if "://" in dsn else self.dsn(dsn),
                                application_name="test")
        conn.autocommit = autocommit
        return conn

    def run(self, sql, dsn="postgres"):
        conn = self.connect(dsn)
        try:
            with conn.cursor() as cur:
                cur.execute(sql)
                return cur.fetchall() if cur.description else None
        finally:
            conn.close()

    def createdb(self, template=None, name=None):
        """A new database, empty or a copy of a template; returns its name."""
        self._databases += 1
        name = name or f"t{self._databases}"
        self.run(f'create database "{name}"' + (f' template "{template}"' if template else ""))
        return name

    def dropdb(self, name):
        self.run(f'drop database if exists "{name}" with (force)')

    def template(self, key, fill):
        """The name of a database that `fill(dsn)` prepared once; copy it with createdb."""
        if key not in self._templates:
            name = self.createdb(name=f"template_{len(self._templates)}")
            fill(self.dsn(name))
            self._templates[key] = name
        return self._templates[key]

    def migrated(self):
        """A fresh database at the newest schema: a copy of one that the program migrated, and
        adopted, since no worker sends from a copy until somebody did that (R12)."""
        from .procs import migrate
        name = self.createdb(self.template("migrated", migrate))
        self.run("select postrider.adopt()", name)
        return name


def main():
    with Cluster() as pg:
        print(pg.dsn("postgres"), flush=True)
        try:
            pg.process.wait()
            print("the server has ended:\n" + pg.log_text()[-2000:], file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 0


if __name__ == "__main__":
    sys.exit(main())
