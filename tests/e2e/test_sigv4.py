"""Requests signed for AWS (Signature Version 4): what leaves is verified by a second implementation,
written from AWS' "Create a signed AWS API request" and itself checked against their published
vector. Signing changes nothing of the rules of worker/io/http.h: one permit, no resend, no key
left behind for the next request on the same handle."""
import hashlib
import hmac
import http.server
import json
import os
import re
import subprocess
import threading

import pytest

from tests.harness import clean
from tests.harness import torn_steps as step
from tests.harness.torn import TornServer

PROGRAM = clean.ROOT / os.environ.get("POSTRIDER_TESTS", "build/release/tests") / "http_driver"
KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SIGNED = {"sigv4": "aws:amz:eu-central-1:sms-voice", "sigv4_userpwd": f"{KEY}:{SECRET}"}
AUTHORIZATION = re.compile(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, "
                           r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})")


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature(secret, method, path, query, headers, names, body, region, service):
    """Of a request as it was read: `headers` with names in lower case."""
    canonical = "\n".join([method, path, query,
                           *(f"{n}:{' '.join(headers[n].split())}" for n in names), "",
                           ";".join(names), hashlib.sha256(body).hexdigest()])
    date = headers["x-amz-date"][:8]
    scope = f"{date}/{region}/{service}/aws4_request"
    to_sign = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope,
                         hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in (date, region, service, "aws4_request"):
        key = mac(key, part)
    return mac(key, to_sign).hex()


def test_the_verifier_agrees_with_aws():
    """get-vanilla of the Signature Version 4 test suite."""
    headers = {"host": "example.amazonaws.com", "x-amz-date": "20150830T123600Z"}
    assert (signature(SECRET, "GET", "/", "", headers, ["host", "x-amz-date"], b"", "us-east-1", "service")
            == "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31")


class Recorder(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.command, self.path,
                                 [(k.lower(), v) for k, v in self.headers.items()], body))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        pass  # the driver resets its connections when it ends


@pytest.fixture
def vendor():
    server = Server(("127.0.0.1", 0), Recorder)
    server.seen = []
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def driver():
    process = clean.spawn([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"

    def call(url, **spec):
        process.stdin.write(json.dumps({"url": url, **spec}) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    yield call
    process.stdin.close()
    process.stdout.read()
    assert process.wait(20) == 0


def verify(seen):
    """Checks the signature of one recorded request; returns the signed names."""
    method, target, pairs, body = seen
    headers = dict(pairs)
    assert len(headers) == len(pairs), "a header came twice"
    found = AUTHORIZATION.fullmatch(headers["authorization"])
    assert found, headers["authorization"]
    key, date, region, service, names, got = found.groups()
    assert (key, region, service) == (KEY, "eu-central-1", "sms-voice")
    assert headers["x-amz-date"].startswith(date)
    path, _, query = target.partition("?")
    names = names.split(";")
    assert names == sorted(names)
    assert signature(SECRET, method, path, query, headers, names, body, region, service) == got
    assert {name for name in headers if name.startswith(("x-", "content-type"))} <= set(names)
    assert SECRET not in repr(seen) and "expect" not in headers
    return names


TYPE = {"Content-Type": "application/x-amz-json-1.0"}
TEXT = '{"MessageBody":"1+1=2 & 50% off? a#b \\"q\\" \\\\ ñ oʻ đ 🙂\\n"}'


def test_a_signed_post_verifies(vendor, driver):
    result = driver(vendor.url + "/", body=TEXT, **SIGNED, headers={
        **TYPE, "X-Amz-Target": "PinpointSMSVoiceV2.SendTextMessage", "X-Blanks": "a  b c"})
    assert result["complete"] and result["permits"] == 1
    names = verify(vendor.seen[0])
    assert {"content-type", "host", "x-amz-date", "x-amz-target"} <= set(names)
    assert vendor.seen[0][3].decode() == TEXT


def test_a_session_token_is_a_signed_header(vendor, driver):
    driver(vendor.url + "/", body="Action=Publish", **SIGNED, headers={
        "Content-Type": "application/x-www-form-urlencoded",
        "x-amz-security-token": "FwoGZXIvYXdzEBYaDKhn+/="})
    assert "x-amz-security-token" in verify(vendor.seen[0])


def test_nothing_of_a_signature_stays_for_the_next_request(vendor, driver):
    """The same easy handle: signed with a body, signed without, not signed, signed again."""
    driver(vendor.url + "/", body=TEXT, headers=TYPE, **SIGNED)
    driver(vendor.url + "/a", method="GET", **SIGNED)
    driver(vendor.url + "/", body="{}")
    driver(vendor.url + "/", method="GET")
    driver(vendor.url + "/", body="second", headers=TYPE, **SIGNED)
    first, get, plain, plain_get, last = vendor.seen
    for seen in (first, get, last):
        verify(seen)
    assert get[0] == "GET" and get[3] == b""
    for seen in (plain, plain_get):
        assert not {"authorization", "x-amz-date"} & {name for name, _ in seen[2]}
    assert last[3] == b"second"


def test_a_signed_request_is_not_sent_again(driver):
    """libcurl would repeat a POST whose reused connection dies before the answer; the second permit
    is refused to a signed one as to any other."""
    with TornServer(step.fin(), warmup=1) as server:
        assert driver(server.url, key="warm", body="{}", headers=TYPE, **SIGNED)["complete"]
        result = driver(server.url, key="torn", body="{}", headers=TYPE, **SIGNED)
        assert result["permits"] == 1 and not result["complete"]
        assert result["phase"] == "sent"
        assert "EXAMPLEKEY" not in json.dumps(result)
        assert server.request_count("torn") == 1


@pytest.mark.parametrize("spec, why", [
    ({"sigv4_userpwd": None}, "without a key"),
    ({"sigv4_userpwd": "no-colon"}, "without a key"),
    ({"headers": {}}, "wants a Content-Type"),
    ({"headers": {**TYPE, "X-Empty": " "}}, '"X-Empty" of a signed request has no value'),
    ({"body_size": 1024 * 1024 + 1}, "1048577 bytes"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_what_cannot_be_signed_is_not_sent(vendor, driver, spec, why):
    result = driver(vendor.url, **{"body": "{}", "headers": TYPE, **SIGNED, **spec})
    assert why in result["refused"]
    assert vendor.seen == []


def test_the_largest_body_that_may_be_signed(vendor, driver):
    assert driver(vendor.url + "/", body_size=1024 * 1024, headers=TYPE, **SIGNED)["complete"]
    verify(vendor.seen[0])
