"""Debian's Kannel with its fake SMSC, and what arrived there.

    gateway = Gateway()          bearerbox, smsbox and fakesmsc on free ports, gone with the process
    gateway.url                  of smsbox, for the kannel plugin's setting "url"
    gateway.kill_smsbox()        SIGKILL; start_smsbox() starts it again on its port
    gateway.arrivals()           what the fake SMSC was handed, put together: Arrivals

None of it is ours: the programs are those of Debian's packages kannel and kannel-extras. fakesmsc stands
for the mobile network: it takes the messages that the bearerbox sends it and prints each, which is what we
read. It makes no receipts; the bearerbox's driver for it (smsc = fake) does, right after it handed a
message over: first "accepted by the SMSC", then "delivered". So receipts here prove the way of a receipt,
not that a phone rang."""

import os
import re
import signal
import socket
import urllib.parse
import urllib.request

from tests.harness import clean
from tests.harness.procs import wait_until

BEARERBOX, SMSBOX, FAKESMSC = "/usr/sbin/bearerbox", "/usr/sbin/smsbox", "/usr/lib/kannel/test/fakesmsc"
USERNAME, PASSWORD, SENDER = "postrider", "s3cret&%", "Postrider"
MAX_PARTS = 10

CONFIG = """\
group = core
admin-port = {admin}
admin-interface = 127.0.0.1
admin-password = {password}
smsbox-port = {boxes}
smsbox-interface = 127.0.0.1
box-allow-ip = 127.0.0.1
box-deny-ip = "*.*.*.*"
log-file = "{folder}/bearerbox.log"
log-level = 1
store-type = spool
store-location = "{folder}/spool"
dlr-storage = internal

group = smsc
smsc = fake
smsc-id = fake
port = {smsc}
connect-allow-ip = 127.0.0.1

group = smsbox
bearerbox-host = 127.0.0.1
sendsms-port = {sendsms}
sendsms-interface = 127.0.0.1
log-file = "{folder}/smsbox.log"
log-level = 1
http-request-retry = 20
http-queue-delay = 1

group = sendsms-user
username = {username}
password = "{password}"
max-messages = {parts}
concatenation = true
"""

# 3GPP TS 23.038, 6.2.1 and 6.2.1.1: what travels as GSM-7; all else makes the text UCS-2.
GSM7 = set("@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿"
           "abcdefghijklmnopqrstuvwxyzäöñüà\f^{}\\[~]|€")

LINE = re.compile(r" DEBUG: Got message \d+: <(.*)>$")
MESSAGE = re.compile(re.escape(SENDER) + r" (\+\d+) (text|ucs-2|data|udh) (.*)", re.S)


def free_ports(n):
    """n TCP ports nobody has. They are free until somebody takes them: Kannel cannot bind port 0."""
    sockets = [socket.socket() for _ in range(n)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def on_the_air(text):
    """The bytes in which fakesmsc shows a text: UTF-8 where GSM-7 holds it (the real drivers turn it into
    septets), else UTF-16BE."""
    return text.encode() if set(text) <= GSM7 else text.encode("utf-16-be")


def unescape(text):
    return urllib.parse.unquote_to_bytes(text.replace("+", " "))


class Arrivals:
    """What was handed to the fake SMSC: per number the whole messages, and those that lack a part."""

    def __init__(self, log):
        self.whole = {}  # number -> [bytes of each copy]
        self.torn = {}   # number -> copies that lack a part
        self.parts = 0
        self.strangers = []  # lines that are no message of ours
        groups = {}
        for number, kind, rest in self._read(log):
            self.parts += 1
            if kind != "udh":
                self.whole.setdefault(number, []).append(rest.encode() if kind == "text" else unescape(rest))
                continue
            header, _, data = rest.partition(" data ")
            reference, total, at = unescape(header)[3:6]  # 05 00 03 reference total number
            groups.setdefault((number, reference, total), {}).setdefault(at, []).append(unescape(data))
        for (number, _, total), parts in groups.items():
            copies = max(len(copies) for copies in parts.values())
            for copy in range(copies):
                found = [parts.get(at, [])[copy:copy + 1] for at in range(1, total + 1)]
                if all(found):
                    self.whole.setdefault(number, []).append(b"".join(part[0] for part in found))
                else:
                    self.torn[number] = self.torn.get(number, 0) + 1

    def _read(self, log):
        """(number, kind, rest) of each message; a line end in a text breaks fakesmsc's line."""
        pending = None
        for line in log.splitlines():
            found = LINE.search(line)
            if not found:
                continue
            if MESSAGE.fullmatch(found.group(1)):
                if pending is not None:
                    yield MESSAGE.fullmatch(pending).groups()
                pending = found.group(1)
            elif pending is None:
                self.strangers.append(found.group(1))
            else:
                pending += "\n" + found.group(1)
        if pending is not None:
            yield MESSAGE.fullmatch(pending).groups()

    def copies(self, number):
        """How often anything of a message came, whole or not."""
        return len(self.whole.get(number, [])) + self.torn.get(number, 0)

    def numbers(self):
        return set(self.whole) | set(self.torn)


class Gateway:
    def __init__(self):
        missing = [path for path in (BEARERBOX, SMSBOX, FAKESMSC) if not os.access(path, os.X_OK)]
        if missing:
            raise RuntimeError(f"Kannel is not installed ({', '.join(missing)}): make deps")
        self.dir = clean.temp_dir("kannel")
        (self.dir / "spool").mkdir()
        self.admin, boxes, smsc, self.sendsms = free_ports(4)
        self.config = self.dir / "kannel.conf"
        self.config.write_text(CONFIG.format(folder=self.dir, admin=self.admin, boxes=boxes, smsc=smsc,
                                             sendsms=self.sendsms, username=USERNAME, password=PASSWORD,
                                             parts=MAX_PARTS))
        self.url = f"http://127.0.0.1:{self.sendsms}"
        self.bearerbox = self._spawn("bearerbox", BEARERBOX, self.config)
        self._wait_port(smsc, "bearerbox", self.bearerbox)
        self._wait_port(boxes, "bearerbox", self.bearerbox)
        self.network = self._spawn("fakesmsc", FAKESMSC, "-H", "127.0.0.1", "-r", smsc, "-m", "0", "1 2 text nop")
        self.start_smsbox()
        # Until the fake SMSC is there the bearerbox would queue.
        wait_until(lambda: "(online" in self.status(), 20, "Kannel to see its SMSC")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _spawn(self, name, *args):
        with open(self.dir / f"{name}.out", "ab") as out:
            return clean.spawn(args, stdout=out, stderr=out, cwd=self.dir)

    def _wait_port(self, port, name, process):
        def listens():
            if process.poll() is not None:
                raise AssertionError(f"{name} ended with {process.returncode}:\n{self.log(name)[-2000:]}")
            with socket.create_connection(("127.0.0.1", port), 1):
                return True
        wait_until(listens, 20, f"{name} to listen on {port}")

    def log(self, name):
        path = self.dir / f"{name}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def status(self):
        url = f"http://127.0.0.1:{self.admin}/status.txt?password={urllib.parse.quote(PASSWORD)}"
        with urllib.request.urlopen(url, timeout=5) as reply:
            return reply.read().decode(errors="replace")

    def queued(self):
        """Messages and receipts that the bearerbox still has to hand on."""
        text = self.status()
        return sum(map(int, re.findall(r"(?<=\()\d+(?= queued\))|(?<=store size )\d+", text)))

    def start_smsbox(self):
        self.smsbox = self._spawn("smsbox", SMSBOX, self.config)
        self._wait_port(self.sendsms, "smsbox", self.smsbox)

    def kill_smsbox(self):
        clean.kill(self.smsbox)

    def stall_bearerbox(self):
        """It hears nothing until resume_bearerbox: what smsbox tells it waits in the socket."""
        os.kill(self.bearerbox.pid, signal.SIGSTOP)

    def resume_bearerbox(self):
        os.kill(self.bearerbox.pid, signal.SIGCONT)

    def arrivals(self):
        return Arrivals(self.log("fakesmsc"))

    def close(self):
        for process in (self.smsbox, self.network, self.bearerbox):
            if process.poll() is None:
                os.kill(process.pid, signal.SIGCONT)
                clean.kill(process)


def settings(gateway, **over):
    """Of the kannel plugin, for this gateway."""
    return dict({"url": gateway.url, "username": USERNAME, "password": PASSWORD, "from": SENDER}, **over)
