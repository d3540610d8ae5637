import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.whisper.tokens import TokenTable
from tests.support.tiny import VOCABULARY, tiny_tokens, write_tokenizer

TOKENS = tiny_tokens()
ENGLISH = tiny_tokens(multilingual=False)


def read(directory: Path, vocabulary: int = VOCABULARY, **lists: object) -> TokenTable:
    given_lists = {"suppressed": None, "suppressed_first": None} | lists
    return TokenTable.from_directory(directory, vocabulary, **given_lists)


@given(st.text())
def test_text_survives_the_round_trip(text: str) -> None:
    """Ids of a text decode to it, save that special tokens are spelled out."""
    assert TOKENS.decode(TOKENS.encode(text)) == text.replace("<|", "< |")


@given(st.text(alphabet="<|enotsraflix>", max_size=40))
def test_text_never_becomes_a_special_token(text: str) -> None:
    assert all(number < TOKENS.eot for number in TOKENS.encode(text + "<|en|>" + text))


def test_special_tokens_leave_no_text() -> None:
    ids = [TOKENS.sot, *TOKENS.encode("so"), TOKENS.eot, TOKENS.no_timestamps]
    assert TOKENS.decode(ids) == "so"


def test_prompt_tokens_are_whispers() -> None:
    """Multilingual: start, language, task, no timestamps; English only: no language, no task."""
    wanted = [TOKENS.sot, TOKENS.languages["de"], TOKENS.translate, TOKENS.no_timestamps]
    assert TOKENS.prompt_tokens([], "de", "translate") == wanted
    assert ENGLISH.prompt_tokens([], "en", "transcribe") == [ENGLISH.sot, ENGLISH.no_timestamps]
    wanted = [ENGLISH.sot_previous, 5, 6, ENGLISH.sot]
    assert ENGLISH.prompt_tokens([5, 6], "en", "transcribe")[:4] == wanted


def test_bias_bans_exactly_the_suppressed() -> None:
    """-inf on the lists, 0 elsewhere; the first token has the longer list."""
    later, first = TOKENS.bias(first=False), TOKENS.bias(first=True)
    assert set(torch.nonzero(later == -torch.inf).flatten().tolist()) == set(TOKENS.suppressed)
    assert set(torch.nonzero(first != later).flatten().tolist()) == set(TOKENS.suppressed_first)
    assert (later[later != -torch.inf] == 0).all()


def test_a_directory_gives_the_same_table(tmp_path: Path) -> None:
    """tokenizer.json is read by content; a small vocabulary has no languages."""
    write_tokenizer(tmp_path)
    table = read(tmp_path, suppressed=[3], suppressed_first=[4])
    assert (table.sot, table.eot, table.no_speech) == (TOKENS.sot, TOKENS.eot, TOKENS.no_speech)
    assert (table.suppressed, table.suppressed_first) == ((3,), (4,))
    assert table.languages == {}
    assert read(tmp_path, vocabulary=51_865).languages == TOKENS.languages


def test_without_lists_whispers_defaults_hold(tmp_path: Path) -> None:
    """Control tokens are suppressed, and a transcript opens neither with a space nor the end."""
    write_tokenizer(tmp_path)
    table = read(tmp_path)
    assert {table.sot, table.translate, table.transcribe, table.no_speech} <= set(table.suppressed)
    assert table.eot not in table.suppressed
    assert table.suppressed_first == (*table.encode(" "), table.eot)


def test_what_is_no_tokenizer_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"looked for tokenizer\.json"):
        read(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="cannot be read"):
        read(tmp_path)
    write_tokenizer(tmp_path)
    broken = json.loads((tmp_path / "tokenizer.json").read_text())
    broken["added_tokens"] = []
    (tmp_path / "tokenizer.json").write_text(json.dumps(broken))
    with pytest.raises(ValueError, match="it is not Whisper's"):
        read(tmp_path)


@pytest.mark.parametrize("bad", [[-1], [VOCABULARY], ["a"], "abc", 5])
def test_suppressed_tokens_are_checked(tmp_path: Path, bad: object) -> None:
    write_tokenizer(tmp_path)
    with pytest.raises(ValueError, match="suppressed tokens must be ids"):
        read(tmp_path, suppressed=bad)
