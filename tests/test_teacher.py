import pytest
import torch

from model.checkpoints.load import ModelError
from model.drafting.parallel import audio_states
from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.requests import Request
from model.training.data.teacher import Teacher, check_language
from model.whisper.mel import LogMel
from model.whisper.network import Cache, Whisper
from tests.support.lessons import AUX_LAYERS, CPU, noise, teacher
from tests.support.tiny import CHECKPOINT, tiny_checkpoint

AUDIOS = [noise(seed, 8000 + 700 * seed) for seed in range(9)]


def test_tokens_are_the_engines_greedy_ones() -> None:
    wanted = transcribe(Engine(CHECKPOINT, slots=1), [Request(a, language="en") for a in AUDIOS])
    taught = [t for at in (0, 4, 8) for t in teacher().trajectories(AUDIOS[at : at + 4], "en")]
    assert len({t.finished for t in taught}) == 2, "some end, some reach the limit"
    prompt_len = CHECKPOINT.tokens.prompt_tokens([], "en", "transcribe")
    for trajectory, hypothesis in zip(taught, wanted, strict=True):
        assert trajectory.tokens.tolist() == prompt_len + list(hypothesis.tokens)
        assert trajectory.prompt_len == len(prompt_len)
        assert trajectory.finished == (hypothesis.tokens[-1] == CHECKPOINT.tokens.eot)


@torch.inference_mode()
def test_features_are_those_of_one_teacher_forced_pass() -> None:
    """Decoded token by token, they are what a pass over the whole transcript computes (A.3)."""
    whisper = Whisper.from_weights(CHECKPOINT.config, CHECKPOINT.weights, CPU, torch.float32)
    for audio, taught in zip(AUDIOS[:4], teacher().trajectories(AUDIOS[:4], "en"), strict=True):
        states = whisper.encoder(LogMel(80)([audio], 100))
        audio_len = audio_states(len(audio), 100)
        assert torch.allclose(taught.states.float(), states[0, :audio_len], atol=2e-3, rtol=2e-3)
        cache = Cache.allocate(CHECKPOINT.config, 1, CPU, torch.float32, spare=1)
        whisper.decoder.write_cross(states, cache)
        lengths, encoder_len = torch.zeros(1, dtype=torch.int64), torch.tensor([100])
        tokens = taught.tokens[None, :-1]
        _, features = whisper.decoder(tokens, lengths, encoder_len, cache, 64, 100, AUX_LAYERS)
        assert features is not None
        assert taught.features.shape == features[0].shape
        assert torch.allclose(taught.features.float(), features[0], atol=2e-3, rtol=2e-3)


def test_only_the_wanted_blocks_are_kept() -> None:
    one = Teacher(CHECKPOINT, device=CPU, rows=1, aux_layers=(1,)).trajectories([AUDIOS[2]], "en")[
        0
    ]
    both = teacher().trajectories([AUDIOS[2]], "en")[0]
    width = CHECKPOINT.config.d_model
    assert one.features.shape[1] == width
    assert torch.allclose(one.features.float(), both.features[:, width:].float(), atol=2e-3)


def test_the_language_is_the_targets() -> None:
    check_language(CHECKPOINT, "de")
    with pytest.raises(ModelError, match="does not know the language xx; it knows de, en, es"):
        check_language(CHECKPOINT, "xx")
    with pytest.raises(ModelError, match="it knows en"):
        check_language(tiny_checkpoint(multilingual=False), "de")
