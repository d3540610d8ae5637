import pytest
from msgspec import UNSET

from streaming.dialects.openai_options import (
    BetaSession,
    Format,
    Session,
    Settled,
    Transcription,
    TurnDetection,
)
from streaming.dialects.options import from_object
from streaming.protocol import ProtocolError

SETTLED = Settled(Format(), Transcription(model="whisper-1"), TurnDetection(threshold=0.5))


def test_what_is_left_out_stays_and_null_takes_away() -> None:
    session = from_object(Session, {"audio": {"input": {"turn_detection": None}}})
    assert session.audio is not UNSET
    assert session.audio.input is not UNSET
    settled = SETTLED.updated(session.audio.input, session.include)
    assert settled.turn_detection is None
    assert settled.transcription == SETTLED.transcription
    assert settled.shown(beta=False)["audio"]["input"]["turn_detection"] is None


def test_the_beta_says_the_same_in_other_words() -> None:
    beta = from_object(
        BetaSession,
        {"input_audio_format": "g711_ulaw", "input_audio_transcription": {"language": "de"}},
    )
    settled = SETTLED.updated(beta.modern(), UNSET)
    assert settled.format == Format(type="audio/pcmu")
    assert settled.transcription == Transcription(language="de")
    assert settled.shown(beta=True)["input_audio_format"] == "g711_ulaw"
    assert settled.shown(beta=False)["audio"]["input"]["format"] == {"type": "audio/pcmu"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "realtime"},
        {"voice": "x"},
        {"audio": {"output": {}}},
        {"audio": {"input": {"format": {"type": "audio/opus"}}}},
    ],
)
def test_what_captiond_has_not_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        from_object(Session, wrong)
