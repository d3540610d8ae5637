"""Ended utterances whose finals have not come, and the finals that wait for the text of the one before.

A sentence may go on in the next utterance, which is then decoded with the text before as its
prompt. So that the same audio gives the same text, it is decoded once that text is known, however late.
"""

from dataclasses import replace

from streaming.protocol import SAMPLE_RATE
from streaming.utterance import Decode, Utterance

LEAST = SAMPLE_RATE  # samples that an utterance counts as: a short one takes the recogniser about as long


class PendingFinals:
    """One session's."""

    def __init__(self) -> None:
        self._utterances: dict[int, Utterance] = {}
        self._held: dict[int, Decode] = {}

    def __bool__(self) -> bool:
        return bool(self._utterances)

    @property
    def samples(self) -> int:
        """Of all of them, at 16 kHz; each counts as LEAST at least, so that this bounds the work, too."""
        return sum(max(one.stop - one.start, LEAST) for one in self._utterances.values())

    def add(self, utterance: Utterance) -> None:
        """Await the final of `utterance`."""
        self._utterances[utterance.number] = utterance

    def ask(self, work: Decode) -> list[Decode]:
        """The work for a final, or nothing yet: then `settle` returns it once the one before has come."""
        if self._utterances[work.utterance].before.text is not None:
            return [work]
        self._held[work.utterance] = work
        return []

    def awaited(self, decode: Decode) -> Utterance:
        """The utterance for whose final `decode` was the work."""
        assert decode.utterance in self._utterances, f"utterance {decode.utterance} settled twice"
        return self._utterances[decode.utterance]

    def settle(self, decode: Decode) -> list[Decode]:
        """The final has come; the work that waited for it."""
        del self._utterances[decode.utterance]
        work = self._held.pop(decode.utterance + 1, None)
        if work is None:
            return []
        return [replace(work, before=self._utterances[work.utterance].before.text or "")]
