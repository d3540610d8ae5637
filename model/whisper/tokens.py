"""Whisper's tokens: text to ids and back, prompts, and the token rules.

Ids come from the checkpoint's tokenizer, by content. Token rules are static tensors: biases of 0 or -inf
that are added to logits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers.models.whisper.configuration_whisper import (
    NON_SPEECH_TOKENS,
    NON_SPEECH_TOKENS_MULTI,
)

_ENGLISH_ONLY_VOCABULARY = 51_864
_UNSPACED = "\u0530"  # Unicode's blocks before it are Latin, Greek and Cyrillic


@dataclass(frozen=True, slots=True, eq=False)
class TokenTable:
    """One checkpoint's vocabulary. Build it with `from_directory`.

    languages: code → token id; empty for English-only checkpoints.
    no_speech: the id whose probability after `sot` is Whisper's no-speech probability.
    suppressed: ids never emitted. suppressed_first: ids that are never the first of a transcript.
    """

    tokenizer: Tokenizer
    vocabulary: int
    sot: int
    eot: int
    sot_previous: int
    no_speech: int
    no_timestamps: int
    translate: int
    transcribe: int
    languages: dict[str, int]
    suppressed: tuple[int, ...]
    suppressed_first: tuple[int, ...]

    @classmethod
    def from_directory(
        cls, directory: Path, vocabulary: int, *, suppressed: object, suppressed_first: object
    ) -> "TokenTable":
        """Read tokenizer.json (or vocab.json and merges.txt) of a checkpoint's directory.

        suppressed, suppressed_first: the checkpoint's lists of ids; None for Whisper's defaults, as
        transformers states them. Raises ValueError.
        """
        tokenizer = _read_tokenizer(directory)

        def special(content: str) -> int:
            number = tokenizer.token_to_id(content)
            if number is None:
                raise ValueError(f"the tokenizer has no {content}: it is not Whisper's")
            return int(number)

        sot, translate = special("<|startoftranscript|>"), special("<|translate|>")
        no_timestamps = special("<|notimestamps|>")
        languages = {}
        if vocabulary > _ENGLISH_ONLY_VOCABULARY:
            for number in range(sot + 1, translate):
                languages[str(tokenizer.id_to_token(number)).strip("<|>")] = number
        specials = (sot, *range(translate, no_timestamps))
        text = NON_SPEECH_TOKENS_MULTI if languages else NON_SPEECH_TOKENS
        eot = special("<|endoftext|>")
        default = (*(number for number in text if number < eot), *specials)
        return cls(
            tokenizer=tokenizer,
            vocabulary=vocabulary,
            sot=sot,
            eot=eot,
            sot_previous=special("<|startofprev|>"),
            no_speech=no_timestamps - 1,  # "<|nospeech|>" or "<|nocaptions|>", by generation
            no_timestamps=no_timestamps,
            translate=translate,
            transcribe=special("<|transcribe|>"),
            languages=languages,
            suppressed=_ids(suppressed, vocabulary, default),
            suppressed_first=_ids(
                suppressed_first, vocabulary, (tokenizer.encode(" ").ids[0], eot)
            ),
        )

    @property
    def codes(self) -> frozenset[str]:
        """The languages that the checkpoint knows; English alone without language tokens."""
        return frozenset(self.languages) or frozenset({"en"})

    def encode(self, text: str) -> list[int]:
        """Ids of plain text; a special token's spelling in it is taken as text."""
        pieces = text.replace("<|", "< |")
        return list(self.tokenizer.encode(pieces, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; special tokens and timestamps are skipped."""
        return self.tokenizer.decode([number for number in ids if number < self.eot])

    def prompt_tokens(self, context: Sequence[int], language: str | None, task: str) -> list[int]:
        """The tokens before a transcript without timestamps.

        context: ids of the text before, cut to the checkpoint's limit. language, task: ignored by
        English-only checkpoints, as Whisper was trained.
        """
        before = [self.sot_previous, *context] if context else []
        if not self.languages:
            return [*before, self.sot, self.no_timestamps]
        assert language is not None
        kind = self.translate if task == "translate" else self.transcribe
        return [*before, self.sot, self.languages[language], kind, self.no_timestamps]

    def continuing(self) -> Tensor:
        """[vocabulary] float32: -inf on tokens that continue the word before them.

        They begin with a letter or digit, or with an apostrophe and one, of the alphabets that separate
        words by spaces (Latin, Greek, Cyrillic); elsewhere every character is a word.
        """
        bias = torch.zeros(self.vocabulary)
        texts = self.tokenizer.decode_batch([[number] for number in range(self.eot)])
        for number, text in enumerate(texts):
            letter = text.lstrip("'\u2019")[:1] if len(text) > 1 else text
            if letter.isalnum() and letter < _UNSPACED:
                bias[number] = -torch.inf
        return bias

    def bias(self, *, first: bool) -> Tensor:
        """[vocabulary] float32: -inf on suppressed tokens (`first`: on those of the first token, too)."""
        banned = self.suppressed + (self.suppressed_first if first else ())
        bias = torch.zeros(self.vocabulary)
        bias[list(banned)] = -torch.inf
        return bias


def _read_tokenizer(directory: Path) -> Tokenizer:
    path = directory / "tokenizer.json"
    if path.is_file():
        try:
            return Tokenizer.from_file(str(path))
        except Exception as error:  # noqa: BLE001  (the tokenizers library raises nothing narrower)
            raise ValueError(f"tokenizer.json cannot be read: {error}") from None
    if (directory / "vocab.json").is_file() and (directory / "merges.txt").is_file():
        from transformers import WhisperTokenizer  # noqa: PLC0415  (slow, and rarely needed)

        backend = WhisperTokenizer.from_pretrained(str(directory)).backend_tokenizer
        assert isinstance(backend, Tokenizer)
        return backend
    raise ValueError(
        "no tokenizer: looked for tokenizer.json, and for vocab.json with merges.txt; copy them "
        "from the original model"
    )


def _ids(given: object, vocabulary: int, default: Sequence[int]) -> tuple[int, ...]:
    if given is None:
        return tuple(default)
    if not isinstance(given, list | tuple) or not all(
        isinstance(number, int) and 0 <= number < vocabulary for number in given
    ):
        raise ValueError(f"suppressed tokens must be ids below {vocabulary}, not {given!r:.100}")
    return tuple(given)
