import pytest

from daemon import cli


@pytest.mark.parametrize(
    "wrong",
    [["--steps", "0"], ["--soft", "2"], ["--rate", "0"], ["--layers", "a"], ["--coverage", "0"]],
)
def test_wrong_values_are_refused_by_the_parser(
    wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["train", "--out", "x", *wrong])
    assert caught.value.code == 2
    assert wrong[0] in capsys.readouterr().err
