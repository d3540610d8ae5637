from transformers.models.whisper.tokenization_whisper import LANGUAGES

from streaming.dialects.language_names import NAMES, name


def test_they_are_whispers() -> None:
    assert NAMES == LANGUAGES
    assert (name("de"), name("xx")) == ("german", "xx")
