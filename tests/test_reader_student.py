"""A reader in training: what it learns, how it is walked, and that its file is its own again."""

from pathlib import Path

import pytest
import torch

from model.checkpoints.load import ModelError
from model.drafting.drafter_files import (
    TrainedReader,
    bundled,
    load_drafter,
    load_reader,
    save_network,
)
from model.drafting.reading import ReaderArchitecture, from_encoder
from model.engine.engine import Engine
from model.engine.requests import Request
from model.training.data.distil import teach
from model.training.data.packing import IGNORED, lookup_of, pack
from model.training.data.teacher import Trajectory
from model.training.evaluate import judge
from model.training.reader_student import ReaderStudent
from model.whisper.network import Whisper
from tests.support.lessons import AUX_LAYERS, CPU, passages, teacher
from tests.support.pupils import trajectory
from tests.support.tiny import CHECKPOINT, tiny_checkpoint
from tests.support.tiny_drafters import tiny_parallel

TEXTS = tuple(range(CHECKPOINT.tokens.eot))
LOOKUP = lookup_of(TEXTS, CHECKPOINT.config.vocab_size)


def student(vocabulary: tuple[int, ...] = TEXTS) -> ReaderStudent:
    whisper = Whisper.from_weights(CHECKPOINT.config, CHECKPOINT.weights, CPU, torch.float32)
    torch.manual_seed(0)
    network = from_encoder(whisper, ReaderArchitecture(2, vocabulary), (0, 1))
    return ReaderStudent(network.requires_grad_(), CHECKPOINT)


def test_a_lesson_holds_what_was_emitted() -> None:
    """The text alone, without its opening; what the reader cannot name is ignored."""
    short, long = trajectory(9, 50), trajectory(12, 60, seed=1)
    known = tuple(int(token) for token in short.tokens[short.prompt_len : -2])
    lookup = lookup_of(sorted(set(known)), CHECKPOINT.config.vocab_size)
    batch = pack([short, long], [[5], [6]], kept=AUX_LAYERS, wanted=(), block=4, lookup=lookup)
    named = [sorted(set(known))[place] for place in batch.text[0].tolist() if place != IGNORED]
    assert named == [t for t in short.tokens[short.prompt_len :].tolist() if t in known]
    assert batch.features.shape[-1] == 0


def test_rows_do_not_see_each_others_padding() -> None:
    pupil = student()
    short, long = trajectory(9, 50), trajectory(12, 101, seed=1)
    both = pack([short, long], [[5], [6]], kept=AUX_LAYERS, wanted=(), block=4, lookup=LOOKUP)
    alone = pack([short], [[5]], kept=AUX_LAYERS, wanted=(), block=4, lookup=LOOKUP)
    with torch.no_grad():
        assert torch.allclose(pupil.logits(both)[0, :25], pupil.logits(alone)[0], atol=1e-4)


def learned(taught: list[Trajectory]) -> ReaderStudent:
    """It, when it knows these few by heart, or nearly."""
    pupil = student()
    optimizer = torch.optim.AdamW(pupil.parameters(), lr=3e-3)
    batch = pack(taught, [[5]] * len(taught), kept=AUX_LAYERS, wanted=(), block=4, lookup=LOOKUP)
    for _ in range(150):
        optimizer.zero_grad()
        pupil(batch).backward()
        optimizer.step()
    return pupil


def test_the_walk_is_what_the_engine_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same reader over the same audio: as many passes, and as many tokens accepted."""
    # As `judge` computes: in int8, which serves, a near tie may fall the other way.
    monkeypatch.setattr("model.drafting.drafter_cache.missing_instructions", lambda: ["any"])
    # Every utterance is read, however little was right in those before.
    monkeypatch.setattr("model.engine.engine.ReadingPace.choose", lambda *_: True)
    kept, _ = teach(teacher(), passages(tmp_path, 24), "en")
    pairs = [(one, t) for one, t in kept if len(t.tokens) < 32]
    network = learned([t for _, t in pairs]).network.eval()
    engine = Engine(CHECKPOINT, slots=3, reader=TrainedReader("learned", network))
    results = engine.transcribe(Request(one.read(), language="en") for one, _ in pairs)
    for (_, one), result in zip(pairs, results, strict=True):
        alone = judge(CHECKPOINT, network, [one], kept=AUX_LAYERS, device=CPU)
        assert alone.tokens == len(result.tokens)
        assert (sum(alone.accepted), alone.rounds) == (result.accepted, result.rounds + 1)
    score = judge(CHECKPOINT, network, [t for _, t in pairs], kept=AUX_LAYERS, device=CPU)
    assert score.alpha > 0.1, "something is learned: worth comparing"


def test_a_file_gives_back_the_reader_and_is_no_drafter(tmp_path: Path) -> None:
    network = student(TEXTS[:40]).network
    path = tmp_path / "reader.safetensors"
    save_network(path, network, target=CHECKPOINT.fingerprint, acceptance=[0.5])
    read = load_reader(path, CHECKPOINT).network
    assert read.architecture == network.architecture
    weights = network.state_dict()
    for name, weight in read.state_dict().items():
        assert torch.allclose(weight, weights[name], atol=float(weights[name].abs().max()) / 100)
    with pytest.raises(ModelError, match="is a reader, not a drafter"):
        load_drafter(path, CHECKPOINT)
    other = tmp_path / "drafter.safetensors"
    save_network(other, tiny_parallel(), target=CHECKPOINT.fingerprint, acceptance=[0.5] * 4)
    with pytest.raises(ModelError, match="is a drafter, not a reader"):
        load_reader(other, CHECKPOINT)


def test_the_bundled_one_is_found_by_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model.drafting.drafter_files.BUNDLED", tmp_path)
    reader, drafter = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    save_network(reader, student().network, target=CHECKPOINT.fingerprint, acceptance=[0.5])
    assert bundled(CHECKPOINT) is None
    save_network(drafter, tiny_parallel(), target=CHECKPOINT.fingerprint, acceptance=[0.5] * 4)
    assert bundled(CHECKPOINT) == drafter
    assert bundled(CHECKPOINT, reads=True) == reader
    assert bundled(tiny_checkpoint(seed=9), reads=True) is None
