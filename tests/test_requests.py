import pytest

from model.engine.requests import as_tuple


@pytest.mark.parametrize(
    ("asked", "languages"),
    [(None, ()), ("en", ("en",)), (("de", "en"), ("de", "en")), (["en", "en"], ("en",))],
)
def test_languages_named_once(asked: str | list[str] | None, languages: tuple[str, ...]) -> None:
    """Whatever form they come in; what `check` refuses is tested with the engine."""
    assert as_tuple(asked) == languages
