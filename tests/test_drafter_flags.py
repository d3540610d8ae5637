import pytest

from daemon import cli


@pytest.mark.parametrize("wrong", [["--audio"], ["--audio", "x", "--limit", "0"]])
def test_wrong_values_are_refused_by_the_parser(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["drafter", "evaluate", "x", *wrong])
    assert caught.value.code == 2
