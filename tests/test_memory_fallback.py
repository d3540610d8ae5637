import pytest
import torch

from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.phases import EncodeInputs, VerifyInputs
from model.engine.requests import Failure, RequestOutput
from tests.support.oracles import drain
from tests.support.references import PROPOSERS, plain
from tests.support.tiny import CHECKPOINT
from tests.support.tiny_drafters import tiny_drafter
from tests.support.utterances import GREEDY


def exhaust(monkeypatch: pytest.MonkeyPatch, engine: Engine, name: str, most: int) -> None:
    """Let the phase `name` need more memory than there is for more than `most` rows."""
    phase = getattr(engine.runner.phases, name)

    def exhausted(inputs: EncodeInputs | VerifyInputs) -> object:
        rows = len(inputs.mel if isinstance(inputs, EncodeInputs) else inputs.candidates)
        if rows > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return phase(inputs)

    monkeypatch.setattr(engine.runner.phases, name, exhausted)


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("name", ["encode", "verify"])
def test_when_memory_runs_out_the_batch_is_split_and_nothing_is_lost(
    name: str, most: int, static: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prefills and rounds of too many rows are retried with fewer; every final comes, unchanged."""
    engine = Engine(CHECKPOINT, slots=8, proposer=PROPOSERS["oracle"], static=static)
    exhaust(monkeypatch, engine, name, most)
    for request in GREEDY[:8]:
        engine.admit(request)
    results = drain(engine)
    assert len(results) == 8
    for one in results:
        assert isinstance(one, RequestOutput)
        assert one.tokens == plain(one.request)
    if name == "verify":
        assert engine.slots <= most, "new work is taken only as far as it fits"


def test_the_drafter_is_given_up_before_a_request_is(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(CHECKPOINT, slots=2, drafter=tiny_drafter())

    def encode(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    assert engine.runner.drafter is not None
    monkeypatch.setattr(engine.runner.drafter, "encode", encode)
    results = transcribe(engine, GREEDY[:4])
    assert [one.tokens for one in results] == [plain(one.request) for one in results]
    assert engine.drafter is None


def test_a_request_that_never_fits_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(CHECKPOINT, slots=2)
    exhaust(monkeypatch, engine, "encode", 0)
    engine.admit(GREEDY[0])
    (failure,) = engine.step()
    assert isinstance(failure, Failure)
    assert "memory is exhausted" in failure.message
    monkeypatch.undo()  # there is memory again
    (result,) = transcribe(engine, [GREEDY[1]])
    assert result.tokens == plain(GREEDY[1])


def test_a_row_that_never_fits_fails_and_its_slot_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(CHECKPOINT, slots=2, proposer=PROPOSERS["oracle"])
    for request in GREEDY[:2]:
        engine.admit(request)
    exhaust(monkeypatch, engine, "verify", 0)
    (failure,) = engine.step()
    assert isinstance(failure, Failure)
    assert engine.occupied == 1
    monkeypatch.undo()
    (result,) = drain(engine)
    assert isinstance(result, RequestOutput)
    assert result.tokens == plain(result.request)


@pytest.mark.parametrize("static", [False, True])
def test_who_waits_for_memory_loses_no_token(static: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three rows two go on when memory has run out; shapes are then those of two."""
    engine = Engine(CHECKPOINT, slots=4, proposer=PROPOSERS["oracle"], static=static)
    for request in GREEDY[:3]:
        engine.admit(request)
    results = engine.step()
    exhaust(monkeypatch, engine, "encode", 0)
    engine.admit(GREEDY[3])
    results += engine.step()
    monkeypatch.undo()  # there is memory again
    results += drain(engine)
    assert len(results) == 4
    assert sum(isinstance(one, Failure) for one in results) == 1
    for one in results:
        if isinstance(one, RequestOutput):
            assert one.tokens == plain(one.request)
