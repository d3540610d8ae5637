"""Other engines on the same weights: Hugging Face transformers and faster-whisper.

Each does greedy decoding of one window without timestamps, with captiond's maximum of new tokens;
fallbacks, voice activity detection and beams are off. Each is an optional dependency; the report says which
were missing.
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import WhisperFeatureExtractor

from model.bench.clips import Clip
from model.bench.paired_runs import Transcription
from model.checkpoints.load import PACKAGES, Checkpoint, ModelError, load
from model.checkpoints.reference import as_transformers
from model.whisper.mel import SAMPLE_RATE


class Unavailable(Exception):  # noqa: N818  (a property of this machine, not an error)
    """An engine that cannot run here; the message says why."""


class Transformers:
    """`WhisperForConditionalGeneration.generate` with SDPA attention, float32 on the CPU.

    With an assistant, assisted decoding of one clip at a time.
    """

    def __init__(
        self,
        name: str,
        checkpoint: Checkpoint,
        language: str,
        *,
        device: str = "cpu",
        assistant: Checkpoint | None = None,
    ) -> None:
        self.name = name
        self._device = torch.device(device)
        self._dtype = torch.float32 if self._device.type == "cpu" else torch.float16
        self._model = self._placed(checkpoint)
        self._tokens = checkpoint.tokens
        self._prompt_tokens = checkpoint.tokens.prompt_tokens([], language, "transcribe")
        self._options: dict[str, Any] = {
            "max_new_tokens": int(checkpoint.config.max_target_positions) // 2,
            "force_unique_generate_call": True,
        }
        if checkpoint.tokens.languages:
            self._options |= {"language": language, "task": "transcribe"}
        if assistant is not None:
            self._options["assistant_model"] = self._placed(assistant)
        states = int(checkpoint.config.max_source_positions)
        self._extract = WhisperFeatureExtractor(
            feature_size=checkpoint.config.num_mel_bins, chunk_length=states // 50
        )

    def _placed(self, checkpoint: Checkpoint) -> Any:
        model = as_transformers(checkpoint)
        model.set_attn_implementation("sdpa")
        return model.to(self._device, self._dtype)

    def transcribe(self, clips: Sequence[Clip]) -> list[Transcription]:
        """See `model.bench.paired_runs.Contender`."""
        features = self._extract(
            [clip.audio for clip in clips], sampling_rate=SAMPLE_RATE, return_tensors="pt"
        ).input_features
        generated = self._model.generate(features.to(self._device, self._dtype), **self._options)
        return [self._transcription(row) for row in generated.tolist()]

    def _transcription(self, sequence: list[int]) -> Transcription:
        eot, prompt_len = self._tokens.eot, len(self._prompt_tokens)
        assert sequence[:prompt_len] == self._prompt_tokens, "prompts must be equal"
        tokens = sequence[prompt_len:]
        ended = tokens[: tokens.index(eot) + 1] if eot in tokens else tokens
        words = [token for token in ended if token < eot]
        return Transcription(self._tokens.decode(words).strip(), tuple(ended), len(words))


class FasterWhisper:
    """faster-whisper: `WhisperModel` for one clip, `BatchedInferencePipeline` for several."""

    def __init__(
        self, name: str, directory: Path, compute: str, language: str, device: str, threads: int
    ) -> None:
        if importlib.util.find_spec("faster_whisper") is None:
            raise Unavailable("faster-whisper is not installed: captiond[compare] brings it")
        from faster_whisper import BatchedInferencePipeline, WhisperModel  # noqa: PLC0415  (optional)

        self.name = name
        self._model = WhisperModel(
            str(directory), device=device, compute_type=compute, cpu_threads=threads
        )
        self._pipeline = BatchedInferencePipeline(self._model)
        self._options = {
            "language": language,
            "beam_size": 1,
            "temperature": 0.0,
            "without_timestamps": True,
            "condition_on_previous_text": False,
            "vad_filter": False,
            "max_new_tokens": self._model.max_length // 2,
            # No fallback and no filter of silence.
            "compression_ratio_threshold": None,
            "log_prob_threshold": None,
            "no_speech_threshold": None,
        }

    def transcribe(self, clips: Sequence[Clip]) -> list[Transcription]:
        """See `model.bench.paired_runs.Contender`."""
        if len(clips) == 1:
            segments, _ = self._model.transcribe(clips[0].audio, **self._options)
            return [_joined(list(segments))]
        # The pipeline takes a batch as clips of one recording, in seconds, and rounds down to whole
        # samples; half a sample more keeps it from losing one.
        ends = np.cumsum([len(clip.audio) for clip in clips])
        starts = ends - [len(clip.audio) for clip in clips]
        cuts = [
            {"start": (start + 0.5) / SAMPLE_RATE, "end": (end + 0.5) / SAMPLE_RATE}
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        segments, _ = self._pipeline.transcribe(
            np.concatenate([clip.audio for clip in clips]),
            clip_timestamps=cuts,
            batch_size=len(clips),
            **self._options,
        )
        # Without timestamps each clip has one segment.
        return [_joined([segment]) for segment in segments]


def _joined(segments: list[Any]) -> Transcription:
    tokens = tuple(token for segment in segments for token in segment.tokens)
    text = "".join(segment.text for segment in segments).strip()
    return Transcription(text, tokens, len(tokens))


def assistant_for(checkpoint: Checkpoint, name: str | None) -> Checkpoint:
    """The smallest Whisper with the same vocabulary, or the one called `name`. Raises Unavailable."""
    wanted = name or ("tiny" if checkpoint.tokens.languages else "tiny.en")
    if wanted == checkpoint.name:
        raise Unavailable(f"there is no smaller model than {wanted} to assist it")
    try:
        assistant = load(wanted)
    except ModelError as error:
        raise Unavailable(f"no assistant: {error}") from None
    if assistant.tokens.vocabulary != checkpoint.tokens.vocabulary:
        raise Unavailable(f"the vocabulary of {wanted} is not that of {checkpoint.name}")
    return assistant


def ctranslate2_directory(checkpoint: Checkpoint, scratch: Path) -> Path:
    """A directory with the checkpoint in CTranslate2's format. Raises Unavailable.

    Weights that packages carry in pieces are joined in `scratch`.
    """
    source = Path(checkpoint.source)
    if (source / "model.bin").is_file():
        return source
    package = PACKAGES.get(checkpoint.name)
    if package is None or source.is_dir():
        raise Unavailable(
            f"{checkpoint.name} comes from {source}, which is not in CTranslate2's format"
        )
    homes = {module: _home(module) for module, _ in package.parts}
    folder = homes[package.module] / package.folder
    if (folder / "model.bin").is_file():
        return folder
    with (scratch / "model.bin").open("wb") as joined:
        for module, file in package.parts:
            joined.write((homes[module] / file).read_bytes())
    for path in folder.iterdir():
        if path.suffix in {".json", ".txt"}:
            (scratch / path.name).symlink_to(path)
    return scratch


def _home(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    assert spec is not None, "the checkpoint was read from it"
    assert spec.origin is not None
    return Path(spec.origin).parent
