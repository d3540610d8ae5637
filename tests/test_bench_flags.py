import pytest

from daemon import cli


@pytest.mark.parametrize(
    "arguments",
    [
        ["--batch", "0"],
        ["--batch", "1,x"],
        ["--repeats", "0"],
        ["--warm-ups", "-1"],
        ["--alpha", "1.5"],
        ["--alpha", "0.5", "--chance", "0.5"],
    ],
)
def test_numbers_out_of_range_are_wrong_usage(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["bench", "passes", *arguments])
    assert caught.value.code == 2
