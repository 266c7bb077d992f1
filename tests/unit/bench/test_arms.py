"""Arms by name, and other servers by address."""

import pytest

from draftlight.bench.arms import Arm, PeerAddress, parse_arms, parse_peers, require_sources
from draftlight.engine.events import DraftSource
from draftlight.errors import UserError

MODEL, NGRAM = frozenset({DraftSource.MODEL}), frozenset({DraftSource.NGRAM})


def test_each_arm_drafts_as_it_is_called() -> None:
    assert parse_arms("plain,auto,model,ngram,k1,k16,ngram4") == (
        Arm("plain", 0),
        Arm("auto", None),
        Arm("model", None, MODEL),
        Arm("ngram", None, NGRAM),
        Arm("k1", 1, MODEL),
        Arm("k16", 16, MODEL),
        Arm("ngram4", 4, NGRAM),
    )


def test_plain_is_always_there_and_comes_first() -> None:
    assert [arm.name for arm in parse_arms(" k3 , plain ")] == ["plain", "k3"]
    assert [arm.name for arm in parse_arms("k3")] == ["plain", "k3"]


@pytest.mark.parametrize("names", ["k0", "k17", "fast", "k", "K3", "k3,k3", "plain,plain", "k03x"])
def test_an_unknown_arm_or_one_named_twice_is_refused(names: str) -> None:
    with pytest.raises(UserError, match="arm"):
        parse_arms(names)


def test_a_peer_has_an_address_and_a_name() -> None:
    peers = parse_peers(["http://a:1", "http://b:2/?x=1", "best=https://c:3"], parse_arms("auto"))
    assert peers == (
        PeerAddress("peer", "http://a:1"),
        PeerAddress("peer2", "http://b:2/?x=1"),
        PeerAddress("best", "https://c:3"),
    )


@pytest.mark.parametrize("text", ["localhost:8080", "x=", "auto=http://a:1", "x=ftp://a"])
def test_a_peer_without_an_address_or_with_an_arm_s_name_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        parse_peers([text], parse_arms("auto"))


def test_an_arm_whose_drafts_are_not_loaded_is_refused() -> None:
    arms = parse_arms("auto,k3,ngram")
    require_sources(arms, MODEL | NGRAM)
    for loaded, named in ((NGRAM, "k3"), (MODEL, "ngram")):
        with pytest.raises(UserError, match=f"arm {named} "):
            require_sources(arms, loaded)
    require_sources(parse_arms("plain,auto"), frozenset())
