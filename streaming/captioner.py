"""What is asked of the recogniser for a span of an utterance, and what clients see of its answers."""

import numpy as np
from numpy.typing import NDArray

from streaming.hallucination import is_plausible, worth_showing
from streaming.hypothesis import Hypothesis, final_message
from streaming.languages import Languages
from streaming.protocol import SAMPLE_RATE, Error, Final, Partial, Start
from streaming.utterance import Decode, Utterance


class Captioner:
    """One session's: the languages it has learnt, and the words that its client was promised."""

    def __init__(self, start: Start) -> None:
        self._partials = start.partials
        self._commits = start.stability == "commit"
        self._languages = Languages(start.language)

    def wants_partial(self, voiced: int) -> bool:
        """Whether a partial of so many samples of speech is wanted and can be decoded."""
        return self._partials and self._languages.enough(voiced)

    def decode(
        self,
        utterance: Utterance,
        span: tuple[int, int],
        voiced: int,
        audio: NDArray[np.float32],
        *,
        final: bool = False,
        early: bool = False,
    ) -> Decode:
        """The work for [start, stop) of `utterance`; `audio` is a copy of it, [stop - start]."""
        language, hint = self._languages.of(voiced)
        prefix = utterance.caption.stable if self._commits else ""
        if prefix and utterance.language is not None:
            language = utterance.language  # the words promised are in it
        return Decode(
            utterance.number,
            *span,
            audio,
            final=final,
            early=early,
            voiced=voiced,
            language=language,
            language_hint=utterance.language or hint,
            prefix=prefix,
        )

    def partial(
        self, utterance: Utterance, decode: Decode, hypothesis: Hypothesis
    ) -> Partial | None:
        """The message, if there is anything to show that is newer than what was shown."""
        late = decode.stop <= utterance.shown
        if late or not self._partials or not worth_showing(hypothesis):
            return None
        utterance.shown = decode.stop
        utterance.language = hypothesis.language
        text, stable = utterance.caption.update(
            hypothesis.text.strip(), hypothesis.certain, whole=decode.early
        )
        if not text:
            return None
        start, end = decode.start / SAMPLE_RATE, decode.stop / SAMPLE_RATE
        return Partial(utterance=decode.utterance, start=start, end=end, text=text, stable=stable)

    def final(
        self, utterance: Utterance, decode: Decode, hypothesis: Hypothesis, ms: float
    ) -> Final:
        """The final message; the text is empty where the figures say that nobody spoke."""
        text = hypothesis.text.strip() if is_plausible(hypothesis) else ""
        if text and not hypothesis.looped:
            self._languages.learn(
                hypothesis.language, hypothesis.language_probability, decode.voiced
            )
        if self._commits:
            text = utterance.caption.bind(text)
        return final_message(decode.utterance, decode.start, decode.stop, hypothesis, text, ms)

    def failed(self, utterance: Utterance, decode: Decode, message: str) -> tuple[Error, Final]:
        """What stands in for a final that could not be decoded: an error, and an empty final."""
        error = Error(
            code="decode_failed",
            message=f"utterance {decode.utterance} could not be recognised: {message}",
            fatal=False,
        )
        nothing = Hypothesis("", self._languages.fixed or "")
        return error, self.final(utterance, decode, nothing, 0.0)
