"""Every plugin in each of its ways to speak to its vendor, and what the vendor's documentation says
it can answer. What the plugin claims is not here: that is asked of the plugin itself.

A fact that makes a case not apply carries its reason: it is printed."""

import json
import pathlib
from dataclasses import dataclass, field

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "providers"

UZ, VN = "998", "84"


def vonage_key():
    """The private key whose public half the dialect knows."""
    return json.loads((FIXTURES / "vonage/fixtures/messages.json").read_text())["settings"]["private_key"]


@dataclass
class Variant:
    name: str  # of provider and, with _ for -, of its kinds
    plugin: str
    settings: object  # (url, box) -> dict; box is the running sandbox
    dialect: str = None  # None: as the plugin
    sets: dict = field(default_factory=dict)  # --dialect-set
    prefix: str = UZ  # of the people's numbers
    no_opt_out: str = ""  # why the vendor never answers "opted out"
    no_later: str = ""  # why the vendor has no "try later" that proves "not taken"
    later: str = "refused"  # the outcome of that code
    longest: int = 0  # the vendor's documented limit in characters; 0: ten parts fit
    expired: str = "expired"  # what the vendor's word for a life that ended becomes
    no_early: str = ""  # why no receipt of this vendor can come before its answer
    no_login: str = "the account's key is in every request: nothing expires"
    own_token: bool = False  # the plugin makes it itself (a JWT): no request to log in
    account_callback: bool = False  # receipts go where the account says, not the message

    @property
    def kinds(self):
        base = "c_" + self.name.replace("-", "_")
        return base + "_hold", base + "_ask"


def http(url, **more):
    return {
        "url": url + "/messages",
        "body": {"to": "{{recipient}}", "text": "{{body}}", "ref": "{{id}}", "callback_url": "{{callback_url}}"},
        "accepted": {"status": [200, 201, 202], "id": "/id"},
        "rejected": [{"status": 400, "match": {"/error": "invalid_number"}}],
        "opted_out": [{"status": 422, "match": {"/error": "opted_out"}}],
        "not_taken": [{"status": 503, "match": {"/error": "try_later"}}],
        "error": "/error",
        "receipt": {"ref": "/ref", "id": "/id", "status": "/status", "time": "/at_ms",
                    "statuses": {"sent": "in_transit", "accepted": "in_transit", "delivered": "delivered",
                                 "undelivered": "undelivered", "expired": "expired", "rejected": "rejected"},
                    "signature": {"scheme": "hmac-sha256", "header": "X-Signature", "prefix": "sha256=",
                                  "secret": "sandbox-secret"}},
        **more,
    }


def sinch(url, **more):
    return {"url": url, "from": "Acme", "webhook_secret": "sandbox-webhook", "lookup_delay_s": 1, **more}


def telnyx(url, idempotency):
    return {"url": url, "api_key": "KEYSANDBOX", "from": "+15005550006", "idempotency": idempotency,
            "public_key": "1yUBB7OW6/iI0VlvsBkac6Y3gsUZfDFW6/Kr14YF8oQ="}


def vonage(url, api, **more):
    return {"api": api, "url": url, "api_key": "abcd1234", "api_secret": "sandbox-secret", "from": "Acme",
            "signature_secret": "sandbox-signature", "lookup_delay_s": 1, **more}


def aws_voice(url, box):
    return {"url": url, "region": "eu-central-1", "access_key_id": "AKIDSANDBOX",
            "secret_access_key": "sandbox-secret", "from": "Acme", "configuration_set": "sms-events",
            "signing_certs": [box.http("/SimpleNotificationService.pem")[1].decode()],
            "topic_arn": "arn:aws:sns:eu-central-1:123456789012:sms-events"}


def africastalking(url, api):
    return {"url": url, "api": api, "username": "sandbox", "api_key": "atsk_sandbox", "from": "Acme"}


def eskiz(url, lookup):
    return {"url": url, "email": "test@example.uz", "password": "secret", "lookup": lookup, "lookup_delay_s": 1}


def playmobile(url, **more):
    return {"url": url, "login": "acme", "password": "secret", **more}


NO_OPT_OUT = "documents no refusal of its own for people who opted out"
BARRED = "says that a number is barred or block-listed, not by whom: that is no word of the person"
NO_LATER = "documents no code that proves \"not taken\" and may work later"

# Settings that claim what the vendor does not do: its ledger must say so.
LIAR = Variant("http-liar", "http", lambda u, b: http(u, dedup={"header": "X-Key-Of-Nobody", "window_s": 86400}))

VARIANTS = [
    Variant("africastalking-bulk", "africastalking", lambda u, b: africastalking(u, "bulk"),
            account_callback=True, expired="undelivered"),
    Variant("africastalking-legacy", "africastalking", lambda u, b: africastalking(u, "legacy"),
            account_callback=True, expired="undelivered"),
    Variant("aws-sms-voice", "aws-sms-voice", aws_voice, account_callback=True, no_later=NO_LATER),
    Variant("aws-sns", "aws-sns", lambda u, b: {
        "url": u, "region": "eu-central-1", "access_key_id": "AKIDSANDBOX", "secret_access_key": "sandbox-secret"},
        no_opt_out="Publish says nothing of opted-out numbers", no_later=NO_LATER),
    Variant("eskiz-window", "eskiz", lambda u, b: eskiz(u, "window"), no_opt_out=NO_OPT_OUT, no_later=NO_LATER,
            no_login=""),
    Variant("eskiz-dispatch", "eskiz", lambda u, b: eskiz(u, "dispatch"), no_opt_out=NO_OPT_OUT, no_later=NO_LATER,
            no_login=""),
    Variant("esms", "esms", lambda u, b: {"url": u, "api_key": "test-key", "secret_key": "test-secret", "from": "Acme"},
            prefix=VN, no_opt_out=NO_OPT_OUT, no_later=NO_LATER, expired="undelivered"),
    Variant("http-replay", "http", lambda u, b: http(u, dedup={"header": "Idempotency-Key", "window_s": 86400})),
    Variant("http-ask", "http", lambda u, b: http(u, ask={
        "url": u + "/messages?ref={{id}}", "delay_s": 1, "found": {"status": 200}, "list": "/messages", "key": "/ref",
        "id": "/id", "absence_proves": True})),
    Variant("http-bare", "http", lambda u, b: http(u)),
    Variant("infobip", "infobip", lambda u, b: {"url": u, "api_key": "sandbox-key", "from": "Acme", "lookup_delay_s": 1},
        no_opt_out=BARRED),
    Variant("infobip-no-window", "infobip", lambda u, b: {
        "url": u, "api_key": "sandbox-key", "from": "Acme", "lookup_delay_s": 1, "dedup_window_s": 0},
        no_opt_out=BARRED),
    Variant("jasmin", "jasmin", lambda u, b: {"url": u, "username": "postrider", "password": "secret", "from": "Acme",
                                              "max_parts": 10},
            sets={"long_content_max_parts": "10"}, no_opt_out=NO_OPT_OUT),
    Variant("kannel-post", "kannel", lambda u, b: {"url": u, "username": "postrider", "password": "secret",
                                                   "from": "Acme"},
            no_opt_out=NO_OPT_OUT),
    Variant("kannel-get", "kannel", lambda u, b: {"url": u, "username": "postrider", "password": "secret",
                                                  "from": "Acme", "method": "GET"},
            no_opt_out=NO_OPT_OUT),
    Variant("messagebird-rest", "messagebird", lambda u, b: {
        "url": u, "access_key": "test_sandbox", "signing_key": "sandbox-signing-key", "from": "Acme",
        "lookup_delay_s": 1}, no_opt_out=NO_OPT_OUT, no_later=NO_LATER, longest=1377),
    Variant("messagebird-bird", "messagebird", lambda u, b: {
        "api": "bird", "url": u, "api_key": "bk_eu1_sandbox", "from": "Acme",
        "webhook_secret": "whsec_c2FuZGJveC13ZWJob29rLXNlY3JldC0wMDAwMDAwMQ=="}, dialect="bird",
        account_callback=True, no_opt_out=NO_OPT_OUT),
    Variant("playmobile", "playmobile", lambda u, b: playmobile(u), no_opt_out=NO_OPT_OUT),
    Variant("playmobile-receipts", "playmobile", lambda u, b: playmobile(u, receipts=True, timing=True),
            account_callback=True, no_opt_out=NO_OPT_OUT),
    Variant("plivo", "plivo", lambda u, b: {"url": u, "auth_id": "MASANDBOX00000000001", "auth_token": "sandbox-secret",
                                            "from": "+14155550100"},
            no_opt_out="an opt-out is told by a receipt, after the number was taken", no_later=NO_LATER),
    Variant("sinch-token", "sinch", lambda u, b: sinch(u, service_plan_id="sandboxplan", api_token="sandbox-token"),
            no_opt_out=NO_OPT_OUT, no_later=NO_LATER),
    Variant("sinch-oauth", "sinch", lambda u, b: sinch(u, project_id="sandboxproject", key_id="sandbox-key",
                                                       key_secret="sandbox-secret", auth_url=u),
            no_opt_out=NO_OPT_OUT, no_later=NO_LATER, no_login=""),
    Variant("speedsms", "speedsms", lambda u, b: {"url": u + "/index.php", "access_token": "test-token"}, prefix=VN,
            account_callback=True, no_opt_out=NO_OPT_OUT, no_later=NO_LATER, expired="undelivered"),
    Variant("telnyx-none", "telnyx", lambda u, b: telnyx(u, "none")),
    Variant("telnyx-declared", "telnyx", lambda u, b: telnyx(u, "declared"), sets={"idempotency": "declared"}),
    Variant("twilio", "twilio", lambda u, b: {
        "url": u, "account_sid": "AC00000000000000000000000000000001", "auth_token": "sandbox-secret",
        "from": "+15005550006", "lookup_delay_s": 1, "worst_answer_s": 1},
        later="throttled"),  # 21611: the sender's queue is full
    Variant("vonage-sms", "vonage", lambda u, b: vonage(u, "sms"), no_opt_out=BARRED),
    Variant("vonage-messages-jwt", "vonage", lambda u, b: vonage(
        u, "messages", application_id="aaaaaaaa-bbbb-cccc-dddd-0123456789ab", private_key=vonage_key()),
        dialect="vonage-messages", longest=1000, no_login="", own_token=True),
    Variant("vonage-messages-basic", "vonage", lambda u, b: vonage(u, "messages"), dialect="vonage-messages",
            longest=1000),
]
