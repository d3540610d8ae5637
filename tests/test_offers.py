from streaming.dialects.native import Native
from streaming.dialects.offers import BY_PATH, NATIVE, OFFERS
from tests.support.dialects import opening


def test_no_two_are_spoken_at_one_path() -> None:
    assert sum(len(offer.paths) for offer in OFFERS) == len(BY_PATH)
    assert BY_PATH["/"] is BY_PATH["/v1"] is NATIVE


def test_each_makes_a_dialect_with_a_name_of_its_own() -> None:
    dialects = [offer.dialect(opening()) for offer in OFFERS]
    assert len({dialect.name for dialect in dialects}) == len(OFFERS)
    assert isinstance(dialects[0], Native)


def test_examples_name_the_daemon() -> None:
    about = {"url": "ws://h:1", "http": "http://h:1", "host": "h", "port": 1}
    assert all("h" in offer.example.format(**about) for offer in OFFERS)
