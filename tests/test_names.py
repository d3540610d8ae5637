"""One word, one meaning: the words that the code gave up for the field's stay given up."""

import io
import itertools
import re
import tokenize
from pathlib import Path

import pytest

from tests.support.python import ROOT

# A word given up, and what to say instead.
EVERYWHERE = """
    Seat:LiveSession seat:live_session Seats:SessionRegistry seats:registry stranger:authenticate
    crowded:check_capacity doors:auth asking:request_builder Farewell:CloseReason
    farewell:close_reason FAREWELLS:CLOSE_REASONS History:ReplayLog Tape:AudioRingBuffer tape:ring
    Backlog:RequestQueue backlog:request_queue Courtesy:PartialThrottle courtesy:partial_throttle
    Lateness:LagMonitor lateness:lag_monitor believed:hallucination complaints:validation_errors
    Row:Sequence Verdict:RejectionOutput verdict:rejection VERDICT:OUTPUT repair:recovered
    Reuse:PreviousText DraftMemory:DrafterCache draft_memory:drafter_cache hasten:use_packed_linears
    Pace:DraftLength taps:aux_layers tapped:aux_layers Shelf:trajectories shelf:trajectories
    Variation:augmentation variation:augmentation appraise:inspect Desk:EngineUnderTest
    desk:engine_under_test Apart:SubprocessEngine rival:other_engine rivals:other_engines
    race:paired_runs guarded:stop_on_repetition Ear:RecordingClient
"""
IN_MODEL = """
    heard:encoder_len hear:process spoken:audio_len reach:kv_len opening:prompt_tokens
    budget:max_new_tokens previous:draft_tokens expected:language_hint settled:frozen_copy
    Field:Benchmark Facts:RoundOutput Reading:RoundOutput pace:draft_length
"""
FILES = [
    path
    for folder in ("clients", "daemon", "model", "streaming", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != Path(__file__).resolve()
]
PACKAGES = [path for path in FILES if path.relative_to(ROOT).parts[0] != "tests"]


def tokens(path: Path) -> list[tokenize.TokenInfo]:
    with io.BytesIO(path.read_bytes()) as file:
        return list(tokenize.tokenize(file.readline))


def names(path: Path) -> set[str]:
    """Every identifier in a file; words in its texts and comments are no names."""
    return {one.string for one in tokens(path) if one.type == tokenize.NAME}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_words_given_up_stay_given_up(path: Path) -> None:
    text = EVERYWHERE + IN_MODEL * (path.relative_to(ROOT).parts[0] == "model")
    given_up = dict(pair.split(":") for pair in text.split())
    found = names(path) & given_up.keys()
    assert not found, {old: given_up[old] for old in found}


def test_what_docstrings_and_comments_name_exists() -> None:
    """Names on the wire and in files stand in strings."""
    prose, code = list[str](), list[str]()
    for one in itertools.chain.from_iterable(map(tokens, PACKAGES)):
        said = one.type == tokenize.COMMENT or one.string.startswith('"""')
        (prose if said else code).append(one.string)
    known = set(re.findall(r"\w+", " ".join(code)))
    found = re.findall(r"`(?:captiond_)?([A-Za-z_][\w.]*)`", "\n".join(prose))
    assert not [name for name in found if not set(name.split(".")) <= known]
