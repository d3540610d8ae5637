"""What is asked of the recogniser for a span of an utterance, and what clients see of its answers."""

import numpy as np
from numpy.typing import NDArray

from streaming.hallucination import is_plausible, worth_showing
from streaming.hypothesis import Hypothesis, final_message
from streaming.protocol import SAMPLE_RATE, Error, Final, Partial, Start
from streaming.speech_spans import Spans
from streaming.text_rules import TextRules
from streaming.utterance import Decode, Utterance

UNSURE = 0.5  # temperature above which a text is no context, as in Whisper's reference


class Captioner:
    """One session's: whether partials are wanted, and whether their words are promised."""

    def __init__(self, start: Start, rules: TextRules | None = None) -> None:
        self._partials = start.partials
        self._commits = start.stability == "commit"
        self._rules = rules

    def wants_partial(self, utterance: Utterance, voiced: int) -> bool:
        """Whether a partial of so many samples of speech is wanted and can be decoded."""
        return self._partials and utterance.configuration.languages.enough(voiced)

    def decode(
        self,
        utterance: Utterance,
        span: tuple[int, int],
        voiced: int,
        audio: NDArray[np.float32],
        *,
        final: bool = False,
        early: bool = False,
        speech: Spans = (),
    ) -> Decode:
        """The work for [start, stop) of `utterance`; `audio` is a copy of it, [stop - start].

        speech: its voiced frames, where the text shall account for them.
        """
        language, hint = utterance.configuration.languages.of(voiced)
        prefix = utterance.caption.stable if self._commits else ""
        if prefix and utterance.language is not None:
            language = utterance.language  # the words promised are in it
        return Decode(
            utterance.number,
            *span,
            audio,
            final=final,
            early=early,
            lead=utterance.lead(len(audio)),
            voiced=voiced,
            language=language,
            language_hint=utterance.language or hint,
            prefix=prefix,
            speech=speech,
            before=utterance.before.text or "",
            options=utterance.configuration.options,
        )

    def partial(
        self, utterance: Utterance, decode: Decode, hypothesis: Hypothesis
    ) -> Partial | None:
        """The message, if there is anything to show that is newer than what was shown."""
        late = decode.stop <= utterance.shown
        if late or not self._partials or not worth_showing(hypothesis, led=decode.lead > 0):
            return None
        if not utterance.configuration.languages.settled(
            hypothesis.language_probability, decode.voiced
        ):
            return None  # the next one asks again, with more audio
        utterance.shown = decode.stop
        utterance.language = hypothesis.language
        text, stable = utterance.caption.update(
            hypothesis.text.strip(), hypothesis.certain, whole=decode.early
        )
        if self._rules is not None:
            text, stable = utterance.written.partial(self._rules, text, stable, hypothesis.language)
        if not text.strip():
            return None
        start, end = decode.start / SAMPLE_RATE, decode.stop / SAMPLE_RATE
        return Partial(utterance=decode.utterance, start=start, end=end, text=text, stable=stable)

    def final(
        self, utterance: Utterance, decode: Decode, hypothesis: Hypothesis, ms: float
    ) -> Final:
        """The final message; the text is empty where the figures say that nobody spoke."""
        plausible = is_plausible(hypothesis, led=decode.lead > 0)
        text = hypothesis.text.strip() if plausible else ""
        if text and not hypothesis.looped:
            utterance.configuration.languages.learn(
                hypothesis.language, hypothesis.language_probability, decode.voiced
            )
        if self._commits:
            text = utterance.caption.bind(text)
        fit = hypothesis.temperature <= UNSURE and not hypothesis.repetitive
        utterance.said.text = text if fit else ""
        span = decode.start, decode.stop
        message = final_message(decode.utterance, *span, hypothesis, text, ms)
        if self._rules is None:
            return message
        return utterance.written.final(self._rules, message, commits=self._commits)

    def failed(self, utterance: Utterance, decode: Decode, message: str) -> tuple[Error, Final]:
        """What stands in for a final that could not be decoded: an error, and an empty final."""
        error = Error(
            code="decode_failed",
            message=f"utterance {decode.utterance} could not be recognised: {message}",
            fatal=False,
        )
        voiced = sum(stop - start for start, stop in decode.speech) / SAMPLE_RATE
        nothing = Hypothesis("", utterance.configuration.languages.fixed or "", voiced=voiced)
        return error, self.final(utterance, decode, nothing, 0.0)
