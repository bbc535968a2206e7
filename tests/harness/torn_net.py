"""What can fail before a request is sent: certificates, a closed port, a swallowed SYN."""
import os
import socket
import subprocess
from pathlib import Path


class Authority:
    """A certificate authority of our own in `folder`; `ca_file` is what a client should trust."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.ca_file = str(self.folder / "ca.pem")
        self._serial = 0
        self._openssl("req", "-x509", *self._new_key("ca"), "-days", "30", "-subj",
                      "/CN=Torn Test CA", "-out", self.ca_file)

    def issue(self, names: str = "DNS:localhost,IP:127.0.0.1", days: int = 30) -> tuple:
        """(certificate, key) for TornServer's `tls`. A wrong name: names="DNS:other.example".
        An expired one: days=-1. An unknown CA: trust another Authority."""
        self._serial += 1
        base = f"server{self._serial}"
        request, certificate, extensions = (self.folder / f"{base}.{ext}"
                                            for ext in ("csr", "pem", "ext"))
        extensions.write_text(f"subjectAltName={names}\n", encoding="ascii")
        self._openssl("req", *self._new_key(base), "-subj", "/CN=torn", "-out", request)
        self._openssl("x509", "-req", "-in", request, "-CA", self.ca_file, "-CAkey",
                      self.folder / "ca.key", "-set_serial", str(self._serial), "-days", str(days),
                      "-extfile", extensions, "-out", certificate)
        return str(certificate), str(self.folder / f"{base}.key")

    def _new_key(self, base: str) -> list:
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                self.folder / f"{base}.key"]

    @staticmethod
    def _openssl(*args) -> None:
        subprocess.run(["openssl", *map(os.fspath, args)], check=True, capture_output=True)


class ClosedPort:
    """A port that refuses: bound, so that nobody else gets it, and not listening."""

    def __init__(self, path: str = "/messages"):
        self._sock = socket.socket()
        self._sock.bind(("127.0.0.1", 0))
        self.port = self._sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}{path}"

    def __enter__(self):
        return self

    def __exit__(self, *_exc) -> None:
        self.stop()

    def stop(self) -> None:
        self._sock.close()


class SynHole(ClosedPort):
    """A port whose accept queue is full: the kernel drops every further SYN."""

    def __init__(self, path: str = "/messages"):
        super().__init__(path)
        self._sock.listen(0)
        self._fillers: list = []
        while self._fill():
            pass

    def _fill(self) -> bool:
        """One more connection into the queue; False once one got no answer."""
        filler = socket.socket()
        self._fillers.append(filler)
        filler.settimeout(0.5)
        try:
            filler.connect(("127.0.0.1", self.port))
        except TimeoutError:
            return False
        return True

    def stop(self) -> None:
        for filler in self._fillers:
            filler.close()
        super().stop()
