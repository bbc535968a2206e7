"""The sandbox speaking as a vendor: what it checks, what it takes, how it answers, and the
receipts it sends, judged from outside: signatures by Python's hmac, texts byte by byte.

Two dialects stand for all: twilio (the model) and http (the generic vendor)."""
import base64
import hashlib
import hmac
import http.server
import json
import threading
import urllib.error
import urllib.parse
import urllib.request

import pytest

from tests.harness.procs import run, wait_until

ACCOUNT = "AC00000000000000000000000000000001"
SECRET = "sandbox-secret"
TEXT = "1+1=2 & 50% off? a#b \"q\" \\ ñ\nO\u02bbzbek g\u02bb, Vi\u1ec7t \u0111 \U0001f600"
MESSAGES = f"/2010-04-01/Accounts/{ACCOUNT}/Messages"


class Customer:
    """Where receipts go: keeps every call, answers with the statuses given, then with 200."""

    def __init__(self, *statuses):
        self.calls, self.statuses = [], list(statuses)
        lock = threading.Lock()
        customer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with lock:
                    customer.calls.append((self.path, dict(self.headers), body))
                    status = customer.statuses.pop(0) if customer.statuses else 200
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def wait(self, n, timeout=20):
        wait_until(lambda: len(self.calls) >= n, timeout, lambda: f"{n} calls, have {self.calls}")
        return self.calls

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def customer():
    made = []

    def make(*statuses):
        made.append(Customer(*statuses))
        return made[-1]
    yield make
    for one in made:
        one.close()


def call(url, data=None, headers=None, method=None, timeout=20):
    """(status, headers, body); an HTTP error is an answer like any other."""
    req = urllib.request.Request(url, data, headers or {}, method=method)
    try:
        with urllib.request.urlopen(req, timeout=timeout) as reply:
            return reply.status, reply.headers, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def basic(user=ACCOUNT, password=SECRET):
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def twilio(vendor, to="+998901234567", text=TEXT, auth=None, **fields):
    """A send: (status, parsed body). A field of None is left out."""
    form = {"To": to, "From": "+15005550006", "Body": text, **fields}
    body = urllib.parse.urlencode({k: v for k, v in form.items() if v is not None}).encode()
    status, _, reply = call(vendor.url + MESSAGES + ".json", body, auth or basic())
    return status, json.loads(reply)


def twilio_list(vendor, **query):
    status, _, reply = call(f"{vendor.url}{MESSAGES}.json?" + urllib.parse.urlencode(query),
                            headers=basic())
    assert status == 200, reply
    return json.loads(reply)


def generic(vendor, key=None, to="+998901234567", text=TEXT, **fields):
    head = {"Content-Type": "application/json"}
    if key:
        head["Idempotency-Key"] = key
    status, headers, reply = call(vendor.url + "/messages",
                                  json.dumps({"to": to, "text": text, **fields}).encode(), head)
    return status, json.loads(reply), headers


def twilio_signature(url, body, secret=SECRET):
    """As Twilio's documentation says: URL, then every parameter by name, name and value."""
    params = urllib.parse.parse_qsl(body.decode(), keep_blank_values=True)
    signed = url + "".join(k + v for k, v in sorted(params))
    return base64.b64encode(hmac.new(secret.encode(), signed.encode(), hashlib.sha1).digest()).decode()


def texts(vendor, number):
    return [t["text"] for t in vendor.api("/api/phone/" + urllib.parse.quote(number))["texts"]]


# ---- what is checked --------------------------------------------------------------------------


def test_twilio_takes_what_twilio_takes(sandbox):
    vendor = sandbox("--dialect=twilio")
    status, answer = twilio(vendor, ValidityPeriod="300")
    assert status == 201
    assert answer["sid"].startswith("SM") and len(answer["sid"]) == 34
    int(answer["sid"][2:], 16)
    assert answer["status"] == "queued" and answer["body"] == TEXT
    assert answer["num_segments"] == "1"  # 49 units of UCS-2
    assert answer["price"] is None and answer["error_code"] is None
    assert texts(vendor, "+998901234567") == [TEXT]
    [stored] = vendor.api("/api/messages")["messages"]
    assert (stored["text"], stored["from"], stored["validity_ms"]) == (TEXT, "+15005550006", 300000)
    assert stored["ids"] == [answer["sid"]]
    assert twilio(vendor, text=TEXT * 2)[1]["num_segments"] == "2"
    assert twilio(vendor, text="[" * 153)[1]["num_segments"] == "3"  # escaped: 76 a part, no half


@pytest.mark.parametrize("change, status, code", [
    (dict(auth=basic(password="wrong")), 401, 20003),
    (dict(auth=basic(user="ACother")), 401, 20003),
    (dict(auth={"X-None": "1"}), 401, 20003),
    (dict(to=None), 400, 21604),
    (dict(to="998901234567"), 400, 21211),
    (dict(to="+99890abc"), 400, 21211),
    (dict(From=None), 400, 21603),
    (dict(From="TWELVELETTER"), 400, 21606),
    (dict(text=None), 400, 21602),
    (dict(text="x" * 1601), 400, 21617),
    (dict(StatusCallback="http://a_b.example/x"), 400, 21609),
    (dict(Body=None, body="lower case"), 400, 21602),
])
def test_twilio_refuses_what_twilio_refuses(sandbox, change, status, code):
    vendor = sandbox("--dialect=twilio")
    got, answer = twilio(vendor, **change)
    assert (got, answer["code"], answer["status"]) == (status, code, status)
    assert answer["more_info"].endswith(str(code))
    stats = vendor.api("/stats")
    assert (stats["taken"], stats["invalid"]) == (0, 1)


def test_twilio_body_limit_counts_characters(sandbox):
    vendor = sandbox("--dialect=twilio")
    assert twilio(vendor, text="\u0111" * 1600)[0] == 201


def test_settings_are_the_account(sandbox):
    vendor = sandbox("--dialect=twilio", "--dialect-set=auth_token=other")
    assert twilio(vendor)[0] == 401
    assert twilio(vendor, auth=basic(password="other"))[0] == 201


def test_multipart_texts_arrive_whole(sandbox):
    """Longer than any buffer on the way, so that it comes in pieces."""
    vendor = sandbox("--dialect=http")
    long = TEXT * 200
    parts = "".join(f'--b0und\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n'
                    for k, v in (("to", "998901234567"), ("text", long), ("key", "m-1")))
    status, _, _ = call(vendor.url + "/messages", (parts + "--b0und--\r\n").encode(),
                        {"Content-Type": "multipart/form-data; boundary=b0und"})
    assert status == 202
    assert texts(vendor, "998901234567") == [long]
    assert vendor.api("/api/ledger/m-1")["deliveries"] == 1


def test_broken_form_is_not_taken(sandbox):
    vendor = sandbox("--dialect=http")
    status, _, _ = call(vendor.url + "/messages", b"to=998901234567&text=%zz",
                        {"Content-Type": "application/x-www-form-urlencoded"})
    assert status == 400
    assert vendor.api("/stats")["taken"] == 0


def test_paths_and_methods_of_the_dialect(sandbox):
    vendor = sandbox("--dialect=twilio")
    assert call(vendor.url + "/messages", b"{}")[0] == 404  # the route without a dialect is gone
    assert call(vendor.url + MESSAGES + ".json", b"x", basic(), "PUT")[0] == 405
    assert call(vendor.url + "/2010-04-01/Accounts/a/b/Messages.json", headers=basic())[0] == 404
    assert call(f"{vendor.url}/2010-04-01/Accounts/ACother/Messages.json", b"To=1", basic())[0] == 404


def test_without_a_dialect_nothing_of_it_is_there(sandbox):
    vendor = sandbox()
    assert "dialect" not in vendor.api("/stats")
    assert vendor.http("/api/messages")[0] == 404
    assert generic(vendor, "k-1")[0] == 202


def test_help_and_usage():
    text = run("sandbox", "--help").stdout
    assert "  twilio " in text and "auth_token=sandbox-secret" in text
    for ending in ("9901", "9904", "9908", "9911"):
        assert f"\n  {ending}  " in text
    unknown = run("sandbox", "--dialect", "pigeon", check=False)
    assert unknown.returncode == 2 and "pigeon" in unknown.stderr
    alone = run("sandbox", "--dialect-set", "a=b", check=False)
    assert alone.returncode == 2 and "dialect" in alone.stderr
    wrong = run("sandbox", "--listen=127.0.0.1:0", "--dialect=twilio", "--dialect-set=nope=1",
                check=False)
    assert wrong.returncode != 0 and "nope" in wrong.stderr


# ---- fates by number --------------------------------------------------------------------------


def test_magic_endings_at_twilio(sandbox):
    vendor = sandbox("--dialect=twilio", "--drop-mode=reset")

    def send(ending):
        return twilio(vendor, to=f"+99890123{ending}", text=f"to {ending}")

    def code(ending):
        status, answer = send(ending)
        return status, answer.get("code")

    assert code("9901") == (201, None)
    assert code("9904") == (400, 21211)
    assert code("9904") == (400, 21211)
    assert code("9907") == (429, 20429)
    assert code("9907") == (201, None)
    assert code("9908") == (400, 21610)
    assert code("9908") == (400, 21610)
    assert code("9909") == (429, 21611)
    assert code("9909") == (201, None)
    assert code("9910") == (401, 20003)
    assert code("9910") == (201, None)
    with pytest.raises(OSError):
        send("9903")
    taken = {m["to"][-4:] for m in vendor.api("/api/messages")["messages"]}
    assert taken == {"9901", "9903", "9907", "9909", "9910"}
    decided = vendor.api("/stats")["decided"]
    assert (decided["rejected"], decided["opted_out"], decided["throttled"], decided["later"],
            decided["account"], decided["drop_answer"], decided["accepted"]) == (2, 2, 1, 1, 1, 1, 4)


def test_a_once_is_per_message(sandbox):
    vendor = sandbox("--dialect=twilio")
    answers = [twilio(vendor, to="+998901239907", text=t)[0] for t in ("a", "b", "a", "b")]
    assert answers == [429, 429, 201, 201]


def test_magic_endings_choose_the_receipt(sandbox, customer):
    vendor = sandbox("--dialect=twilio", "--receipt-delay-ms=5", "--receipt-late-ms=1500")
    phone = customer()
    for ending in ("9906", "9902", "9911", "9905", "9901"):
        assert twilio(vendor, to=f"+99890123{ending}", text=ending,
                      StatusCallback=f"{phone.url}/r?k={ending}")[0] == 201
    calls = phone.wait(4)
    told = {path[-4:]: dict(urllib.parse.parse_qsl(body.decode())) for path, _, body in calls}
    assert told["9901"]["MessageStatus"] == "delivered" and "ErrorCode" not in told["9901"]
    assert (told["9902"]["MessageStatus"], told["9902"]["ErrorCode"]) == ("undelivered", "30003")
    assert (told["9911"]["MessageStatus"], told["9911"]["ErrorCode"]) == ("failed", "30036")
    assert calls[-1][0] == "/r?k=9906"  # sent first, reported last
    wait_until(lambda: vendor.api("/stats")["dialect"]["receipts"]["pending"] == 0)
    assert "9905" not in told and len(phone.calls) == 4
    states = {m["to"][-4:]: m["state"] for m in vendor.api("/api/messages")["messages"]}
    assert states == {"9901": "delivered", "9902": "undelivered", "9905": "delivered",
                      "9906": "delivered", "9911": "expired"}


# ---- knobs mean the same under a dialect ------------------------------------------------------


def test_errors_lose_or_take_as_the_knobs_say(sandbox):
    vendor = sandbox("--dialect=twilio", "--error-taken=1")
    status, answer = twilio(vendor, text="taken")
    assert (status, answer["code"]) == (503, 20500)
    vendor.api("/knobs", "PUT", {"error_taken": 0, "error_not_taken": 1, "error_status": 500})
    status, answer = twilio(vendor, text="not taken")
    assert (status, answer["code"]) == (500, 20500)
    assert [m["text"] for m in vendor.api("/api/messages")["messages"]] == ["taken"]


def test_throttling_and_outage(sandbox):
    vendor = sandbox("--dialect=twilio", "--rate=1")
    answers = [twilio(vendor, text=str(i)) for i in range(10)]
    assert [a[0] for a in answers].count(429) >= 1
    assert [a[1]["code"] for a in answers if a[0] == 429][0] == 20429
    vendor.api("/knobs", "PUT", {"rate": 0, "outage_mode": "503", "outage_now_for_s": 1000})
    status, headers, body = call(vendor.url + MESSAGES + ".json", b"To=1", basic())
    assert status == 503 and headers["Content-Type"] == "text/html" and b"<html>" in body
    assert call(f"{vendor.url}{MESSAGES}.json?To=1", headers=basic())[0] == 503  # look-ups too
    vendor.api("/knobs", "PUT", {"outage_now_for_s": 0})
    assert twilio(vendor)[0] == 201


def test_without_dedup_a_repeat_is_a_double(sandbox):
    """Twilio knows no key: the ledger names a message by number and text."""
    vendor = sandbox("--dialect=twilio")
    for _ in range(2):
        assert twilio(vendor, text="same")[0] == 201
    twilio(vendor, text="other")
    stats = vendor.api("/stats")
    assert (stats["keys"], stats["taken"], stats["duplicates"]) == (2, 3, 1)
    name = "+998901234567:" + hashlib.sha256(b"same").hexdigest()[:16]
    assert vendor.api("/api/ledger/" + urllib.parse.quote(name))["deliveries"] == 2
    judged = vendor.api("/missing", "POST", f"{name}\n+1:0000\n".encode())
    assert (judged["duplicated"], judged["missing_keys"]) == (1, ["+1:0000"])


def test_replay_is_the_dialects_own(sandbox):
    vendor = sandbox("--dialect=http", "--dedup=off")  # the knob is about the plain vendor
    first = generic(vendor, "k-1")
    again = generic(vendor, "k-1")
    assert (first[0], again[0]) == (202, 200) and first[1] == again[1]
    assert again[2]["Idempotency-Replay"] == "true"
    assert generic(vendor, "k-1", text="changed")[:2] == (422, {"error": "key_reused"})
    stats = vendor.api("/stats")
    assert (stats["taken"], stats["duplicates"], stats["replays"]) == (1, 0, 2)
    assert stats["decided"]["replayed"] == 2
    assert vendor.api("/api/ledger/k-1")["deliveries"] == 1


def test_a_repeat_before_the_first_answer(sandbox):
    vendor = sandbox("--dialect=http", "--latency-p50=1500")
    got = []
    first = threading.Thread(target=lambda: got.append(generic(vendor, "k-1")[0]))
    first.start()
    wait_until(lambda: vendor.api("/stats")["taken"] == 1)
    assert generic(vendor, "k-1")[:2] == (409, {"error": "in_progress"})
    first.join()
    assert got == [202]
    assert generic(vendor, "k-1")[0] == 200


def test_identity_by_text(sandbox):
    vendor = sandbox("--dialect=http", "--identity=text")
    generic(vendor, "k-1", text="a")
    name = "+998901234567:" + hashlib.sha256(b"a").hexdigest()[:16]
    assert [e["key"] for e in vendor.api("/api/ledger")["entries"]] == [name]
    assert generic(vendor, "k-1", text="a")[0] == 200  # the vendor still goes by its key


# ---- look-ups ---------------------------------------------------------------------------------


def test_lookup_finds_what_was_taken_and_nothing_else(sandbox):
    vendor = sandbox("--dialect=twilio", "--drop-answer=1", "--drop-mode=close")
    with pytest.raises(OSError):
        twilio(vendor, to="+998901110001", text="lost answer")
    vendor.api("/knobs", "PUT", {"drop_answer": 0, "drop_before": 1})
    with pytest.raises(OSError):
        twilio(vendor, to="+998901110002", text="lost request")
    vendor.api("/knobs", "PUT", {"drop_before": 0})
    [found] = twilio_list(vendor, To="+998901110001")["messages"]
    assert found["body"] == "lost answer"
    assert twilio_list(vendor, To="+998901110002")["messages"] == []
    status, _, one = call(f"{vendor.url}{MESSAGES}/{found['sid']}.json", headers=basic())
    assert status == 200 and json.loads(one)["sid"] == found["sid"]
    status, _, none = call(f"{vendor.url}{MESSAGES}/SM{'0' * 32}.json", headers=basic())
    assert status == 404 and json.loads(none)["code"] == 20404
    assert call(f"{vendor.url}{MESSAGES}.json", headers=basic(password="x"))[0] == 401


def test_lookup_pages(sandbox):
    vendor = sandbox("--dialect=twilio")
    sent = [twilio(vendor, text=f"n {i}")[1]["sid"] for i in range(7)]
    twilio(vendor, to="+998900000001")
    page = twilio_list(vendor, To="+998901234567", PageSize=3)
    found = [m["sid"] for m in page["messages"]]
    sizes = [len(page["messages"])]
    while page["next_page_uri"]:
        status, _, reply = call(vendor.url + page["next_page_uri"], headers=basic())
        assert status == 200
        page = json.loads(reply)
        found += [m["sid"] for m in page["messages"]]
        sizes.append(len(page["messages"]))
    assert found == sent[::-1] and sizes == [3, 3, 1]


def test_lookup_lags_as_long_as_told(sandbox):
    vendor = sandbox("--dialect=http", "--lookup-delay-ms=600000")
    generic(vendor, "k-1")

    def keys():
        reply = json.loads(call(f"{vendor.url}/messages?key=k-1")[2])
        return [m["key"] for m in reply["messages"]]

    assert keys() == []
    vendor.api("/knobs", "PUT", {"lookup_delay_ms": 0})
    assert keys() == ["k-1"]
    vendor.api("/knobs", "PUT", {"lookup_error": 1})
    assert call(f"{vendor.url}/messages?key=k-1")[0] == 503
    assert vendor.api("/stats")["dialect"]["lookups"] == 3


# ---- receipts ---------------------------------------------------------------------------------


def test_twilio_receipts_are_signed(sandbox, customer):
    vendor = sandbox("--dialect=twilio", "--receipt-delay-ms=1")
    phone = customer()
    url = phone.url + "/receipts/main/tok?k=1%2B1&x=a%20b"
    _, answer = twilio(vendor, StatusCallback=url + "#rc=3")
    [(path, headers, body)] = phone.wait(1)
    assert phone.url + path == url
    assert headers["X-Twilio-Signature"] == twilio_signature(url, body)
    told = dict(urllib.parse.parse_qsl(body.decode()))
    assert (told["MessageSid"], told["MessageStatus"]) == (answer["sid"], "delivered")
    assert (told["To"], told["AccountSid"]) == ("+998901234567", ACCOUNT)


def test_generic_receipts_are_signed_and_go_to_the_accounts_url(sandbox, customer):
    phone = customer()
    vendor = sandbox("--dialect=http", "--receipt-delay-ms=1", "--dialect-set=secret=s3",
                     f"--dialect-set=callback_url={phone.url}/all")
    _, answer, _ = generic(vendor, "k-1")
    [(path, headers, body)] = phone.wait(1)
    assert path == "/all"
    assert headers["X-Signature"] == "sha256=" + hmac.new(b"s3", body, hashlib.sha256).hexdigest()
    told = json.loads(body)
    assert (told["id"], told["key"], told["status"]) == (answer["id"], "k-1", "delivered")


def test_forged_and_unsigned_receipts(sandbox, customer):
    phone = customer(403, 403, 200)
    vendor = sandbox("--dialect=twilio", "--receipts=off", f"--dialect-set=callback_url={phone.url}/")
    sid = twilio(vendor)[1]["sid"]
    shots = [vendor.api("/receipt", "POST", {"id": sid, "state": "undelivered", "sign": sign})
             for sign in ("forged", "unsigned", "genuine")]
    assert [s["status"] for s in shots] == [403, 403, 200] and shots[2]["body"] == "ok"
    forged, unsigned, genuine = (h.get("X-Twilio-Signature") for _, h, _ in phone.calls)
    right = twilio_signature(phone.url + "/", phone.calls[0][2])
    assert forged and forged != right and unsigned is None and genuine == right
    assert b"MessageStatus=undelivered" in phone.calls[2][2]
    assert vendor.http("/api/receipt", "POST", {"id": "nobody"})[0] == 400
    unknown = vendor.api("/receipt", "POST", {"id": "SMghost", "unknown": True})
    assert unknown["status"] == 200 and b"MessageSid=SMghost" in phone.calls[3][2]
    assert vendor.http("/api/receipt", "POST", {"ids": [sid, sid]})[0] == 409  # no batches there


def test_a_batch_where_the_vendor_has_one(sandbox, customer):
    phone = customer()
    vendor = sandbox("--dialect=http", "--receipts=off", f"--dialect-set=callback_url={phone.url}/")
    ids = [generic(vendor, f"k-{i}")[1]["id"] for i in range(100)]
    assert vendor.api("/receipt", "POST", {"ids": ids, "state": "expired"})["status"] == 200
    told = json.loads(phone.calls[0][2])["receipts"]
    assert [r["id"] for r in told] == ids and {r["status"] for r in told} == {"expired"}


def test_inbound_stop(sandbox, customer):
    phone = customer()
    vendor = sandbox("--dialect=twilio", f"--dialect-set=callback_url={phone.url}/r",
                     f"--dialect-set=inbound_url={phone.url}/in")
    shot = vendor.api("/inbound", "POST", {"from": "+998901234567", "to": "+15005550006",
                                           "text": "STOP"})
    assert shot["status"] == 200
    [(path, headers, body)] = phone.calls
    told = dict(urllib.parse.parse_qsl(body.decode()))
    assert path == "/in" and told["Body"] == "STOP" and told["From"] == "+998901234567"
    assert headers["X-Twilio-Signature"] == twilio_signature(phone.url + path, body)


def test_receipts_are_sent_again_until_answered_well(sandbox, customer):
    phone = customer(503, 500)
    vendor = sandbox("--dialect=http", "--receipt-delay-ms=1", "--receipt-retry-ms=5",
                     f"--dialect-set=callback_url={phone.url}/")
    generic(vendor, "k-1")
    wait_until(lambda: vendor.api("/stats")["dialect"]["receipts"]["ok"] == 1)
    figures = vendor.api("/stats")["dialect"]["receipts"]
    assert figures["answered"] == {"200": 1, "500": 1, "503": 1}
    assert (figures["calls"], figures["pending"], figures["given_up"]) == (3, 0, 0)
    assert len({body for _, _, body in phone.calls}) == 1  # the same report each time


def test_receipts_are_given_up(sandbox, customer):
    phone = customer(*[500] * 10)
    vendor = sandbox("--dialect=http", "--receipt-delay-ms=1", "--receipt-retry-ms=1",
                     "--receipt-tries=3", f"--dialect-set=callback_url={phone.url}/")
    generic(vendor, "k-1")
    wait_until(lambda: vendor.api("/stats")["dialect"]["receipts"]["given_up"] == 1)
    assert len(phone.calls) == 3


def test_copies_steps_and_shuffling(sandbox, customer):
    phone = customer()
    vendor = sandbox("--dialect=http", "--receipt-delay-ms=400", "--receipt-copies=2",
                     "--receipt-sent=on", f"--dialect-set=callback_url={phone.url}/")
    generic(vendor, "k-0")
    told = [json.loads(b)["status"] for _, _, b in phone.wait(4)]
    assert told == ["sent", "sent", "delivered", "delivered"]
    vendor.api("/knobs", "PUT", {"receipt_order": "shuffled", "receipt_copies": 1})
    for i in range(1, 41):
        generic(vendor, f"k-{i}")
    calls = [json.loads(b) for _, _, b in phone.wait(84)][4:]
    first = {}
    for report in calls:
        first.setdefault(report["key"], report["status"])
    assert len(first) == 40 and set(first.values()) == {"sent", "delivered"}
    final = {m["state"] for m in vendor.api("/api/messages")["messages"]}
    assert final == {"delivered"}  # a late "sent" takes nothing back


def test_receipt_before_the_answer(sandbox, customer):
    phone = customer()
    vendor = sandbox("--dialect=twilio", "--receipt-first=on", "--receipt-delay-ms=5000",
                     "--receipt-copies=3")
    status, answer = twilio(vendor, StatusCallback=phone.url + "/r")
    assert status == 201 and len(phone.calls) == 3  # all of them were there when the answer came
    assert twilio(vendor, text="no callback")[0] == 201  # nothing to wait for
    assert answer["status"] == "queued"


def test_reset_forgets_messages_and_their_receipts(sandbox, customer):
    phone = customer()
    vendor = sandbox("--dialect=http", "--receipt-delay-ms=1500",
                     f"--dialect-set=callback_url={phone.url}/")
    generic(vendor, "old")
    vendor.api("/reset", "POST")
    assert vendor.api("/api/messages")["messages"] == []
    generic(vendor, "new")
    phone.wait(1)
    wait_until(lambda: vendor.api("/stats")["dialect"]["receipts"]["pending"] == 0)
    assert [json.loads(b)["key"] for _, _, b in phone.calls] == ["new"]
    assert generic(vendor, "old")[0] == 202  # its key is forgotten too


def test_many_receipts_at_once(sandbox, customer):
    phone = customer()
    vendor = sandbox("--dialect=http", "--receipt-delay-ms=50", "--receipt-copies=5",
                     f"--dialect-set=callback_url={phone.url}/")
    for i in range(100):
        generic(vendor, f"k-{i}")
    calls = phone.wait(500)
    per_key = {}
    for _, _, body in calls:
        key = json.loads(body)["key"]
        per_key[key] = per_key.get(key, 0) + 1
    assert per_key == {f"k-{i}": 5 for i in range(100)}
    wait_until(lambda: vendor.api("/stats")["dialect"]["receipts"]["ok"] == 500)
