import torch

from model.whisper.slots import Slots
from tests.support.tiny import CHECKPOINT
from tests.support.tiny_drafters import whisper_of


def slots(count: int = 3) -> Slots:
    return Slots.allocate(whisper_of(CHECKPOINT), count, block=4)


def test_a_transcript_begins_empty_or_with_what_is_given() -> None:
    state = slots()
    state.emitted.fill_(9)
    state.reset(1, [50, 60], [7, 8], [0.0, 0.5])
    assert state.emitted.tolist() == [9, 0, 0]
    state.begin(1, [0, 4])
    assert (state.emitted.tolist(), state.forced.tolist()) == ([9, 0, 4], [0, 0, 4])
    assert (state.seeds.tolist()[1:], state.audio_len.tolist()[1:]) == ([7, 8], [50, 60])


def test_a_rewound_slot_stands_behind_its_prompt_again() -> None:
    """What is given stays given; the encoder's states are not touched."""
    state = slots()
    state.begin(1, [3])
    state.states[1], state.lengths[1], state.emitted[1] = 80, 30, 20
    state.rewind(1, 8, anchor=5, seed=11, temperature=0.4)
    assert (int(state.lengths[1]), int(state.emitted[1]), int(state.anchors[1])) == (7, 3, 5)
    assert (int(state.seeds[1]), float(state.temperatures[1])) == (11, torch.tensor(0.4).item())
    assert int(state.states[1]) == 80


def test_moving_copies_everything_that_belongs_to_a_row() -> None:
    state = slots()
    state.reset(2, [5], [3], [0.7])
    state.begin(2, [2])
    state.cache.self_keys[:, 2].fill_(1.5)
    state.move(2, 0, positions=10, states=20)
    for name in ("lengths", "states", "audio_len", "anchors", "emitted", "forced", "seeds"):
        tensor = getattr(state, name)
        assert tensor[0] == tensor[2], name
    assert state.temperatures[0] == state.temperatures[2]
    assert bool((state.cache.self_keys[:, 0, :, :10] == 1.5).all())
    assert not bool(state.cache.self_keys[:, 0, :, 10:].any())
