"""A few plugins through a few outcomes: the small version of `make conformance`, and its judges
saying the opposite."""

import pytest

from tests.conformance import kit
from tests.conformance.variants import LIAR, VARIANTS

FEW = ("accepted", "rejected", "lost answer", "half answer", "never seen", "found", "duplicate", "login", "marks",
       "10 parts UCS-2", "unreached", "delivered", "undelivered", "none", "late", "early", "settles", "forged", "parts")
NAMES = ("esms", "eskiz-window", "kannel-post", "vonage-sms")  # refuses repeats; logs in; proves nothing; has parts


@pytest.fixture(scope="module")
def results(cluster):
    chosen = [v for v in VARIANTS if v.name in NAMES] + [LIAR]
    return kit.run(cluster, chosen, FEW, timeout_ms=4000)[0]  # it is alone: asking need not wait long


@pytest.mark.limit(120)
@pytest.mark.parametrize("name", NAMES)
def test_a_plugin_does_what_it_claims(results, name):
    _, cases = results[name]
    assert {case: why for case, (result, why) in cases.items() if result == "FAIL"} == {}
    assert set(FEW) <= set(cases)


@pytest.mark.limit(120)
def test_a_false_claim_is_found(results):
    """Claims a key that its vendor does not know: the repeat after half an answer came twice."""
    caps, cases = results[LIAR.name]
    assert caps["dedup"] == "replay"
    result, why = cases["half answer"]
    assert result == "FAIL" and "deliveries 2, not 1" in why
    assert cases["duplicate"][0] == "FAIL"
    assert cases["accepted"][0] == cases["never seen"][0] == "ok"
