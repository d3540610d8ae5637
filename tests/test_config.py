import argparse
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daemon import config
from daemon.config import KEYS, Config, ConfigError, read
from streaming.settings import RANGES


def parse(*arguments: str) -> dict[str, str]:
    parser = argparse.ArgumentParser()
    config.add_arguments(parser)
    return vars(parser.parse_args(arguments))


def write(folder: Path, text: str) -> str:
    path = folder / "captiond.toml"
    path.write_text(text)
    return str(path)


def test_nothing_given_is_all_defaults() -> None:
    assert read({}, {}) == Config()


def test_later_sources_win(tmp_path: Path) -> None:
    file = write(tmp_path, "port = 1\nslots = 2\nmodel = 'tiny'\n")
    settings = read(
        parse("--config", file, "--port", "3"),
        {"CAPTIOND_PORT": "2", "CAPTIOND_SLOTS": "5", "HOME": "/root"},
    )
    assert (settings.port, settings.slots, settings.model) == (3, 5, "tiny")
    assert settings.host == Config().host


def test_the_file_may_be_named_by_a_variable_and_by_a_flag_before_it(tmp_path: Path) -> None:
    file = write(tmp_path, "vad_mode = 3\n")
    assert read({}, {"CAPTIOND_CONFIG": file}).vad_mode == 3
    assert read(parse("--config", file), {"CAPTIOND_CONFIG": "/nowhere"}).vad_mode == 3


def test_a_whole_number_serves_where_seconds_are_wanted(tmp_path: Path) -> None:
    file = write(tmp_path, "shutdown_seconds = 5\n")
    assert read({"config": file}, {}).shutdown_seconds == 5.0


def test_a_flag_for_every_key_has_help() -> None:
    parser = argparse.ArgumentParser()
    config.add_arguments(parser)
    text = parser.format_help()
    assert all("--" + key.replace("_", "-") in text for key in KEYS)


def test_what_is_no_setting_among_flags_and_variables_is_ignored() -> None:
    """The parser's namespace holds more than ours; the address is what clients call."""
    assert read({"verb": "serve"}, {"CAPTIOND_URL": "ws://elsewhere"}) == Config()


@pytest.mark.parametrize(
    ("toml", "flags", "environment", "says"),
    [
        ("prot = 1", {}, {}, ["key 'prot'", "captiond.toml", "did you mean port?", "max_sessions"]),
        ("zzz = 1", {}, {}, ["key 'zzz'", "accepted are host, port"]),
        ("reader = 'none'", {}, {}, ["key 'reader'", "captiond.toml; accepted are host, port"]),
        ("port = '80'", {}, {}, ["port in ", "captiond.toml is '80'", "from 0 to 65535"]),
        ("port = true", {}, {}, ["port in ", "is True"]),
        ("port = 80.5", {}, {}, ["is 80.5", "a whole number"]),
        ("shutdown_seconds = nan", {}, {}, ["is nan", "a number from 0.0 to 3600.0"]),
        ("shutdown_seconds = inf", {}, {}, ["is inf"]),
        ("device = 'tpu'", {}, {}, ["device in ", "'tpu'", "one of auto, cpu, cuda"]),
        ("model = ''", {}, {}, ["model in ", "a text that is not empty"]),
        ("[port]\nx = 1", {}, {}, ["port in ", "from 0 to 65535"]),
        ("port =\n", {}, {}, ["captiond.toml is not TOML", "line 1"]),
        (
            "",
            {},
            {"CAPTIOND_PORTS": "1"},
            ["variable CAPTIOND_PORTS", "did you mean CAPTIOND_PORT?"],
        ),
        (
            "",
            {},
            {"CAPTIOND_READER": "none"},
            ["variable CAPTIOND_READER; accepted are CAPTIOND_HOST, CAPTIOND_PORT"],
        ),
        ("", {}, {"CAPTIOND_PORT": ""}, ["CAPTIOND_PORT is ''", "from 0 to 65535"]),
        ("", {}, {"CAPTIOND_SLOTS": "0"}, ["CAPTIOND_SLOTS is '0'", "from 1 to 96"]),
        ("", {"vad_mode": "4"}, {}, ["--vad-mode is '4'", "from 0 to 3"]),
        ("", {"log_level": "loud"}, {}, ["--log-level is 'loud'", "debug, info, warning, error"]),
        (
            "allowed_origins = ['https://a.example', 'example.org']",
            {},
            {},
            ["allowed_origins in ", "has 'example.org'", "such as https://example.org"],
        ),
        (
            "",
            {"allowed_origins": "https://"},
            {},
            ["--allowed-origins has 'https://'", "scheme://host:port"],
        ),
        (
            "replacements = ['um']",
            {},
            {},
            ["replacements in ", "['um']", "a list of texts"],
        ),
        (
            "",
            {},
            {"CAPTIOND_ALLOWED_ORIGINS": "https://a.example/page, *"},
            ["CAPTIOND_ALLOWED_ORIGINS has 'https://a.example/page'"],
        ),
    ],
)
def test_what_is_wrong_names_itself_its_origin_and_what_is_accepted(
    tmp_path: Path, toml: str, flags: dict[str, str], environment: dict[str, str], says: list[str]
) -> None:
    file = write(tmp_path, toml)
    with pytest.raises(ConfigError) as caught:
        read(flags | {"config": file}, environment)
    for part in says:
        assert part in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*absent\.toml: No such file"):
        read({"config": str(tmp_path / "absent.toml")}, {})


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "captiond.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not TOML"):
        read({"config": str(path)}, {})


@pytest.mark.parametrize(
    "origin",
    [
        "https://example.org",
        "https://example.org/",
        "HTTP://Example.org:8080",
        "http://[::1]:3000",
        "chrome-extension://abc",
        "null",
        "*",
    ],
)
def test_a_page_is_named_by_its_origin(tmp_path: Path, origin: str) -> None:
    file = write(tmp_path, f"allowed_origins = ['https://a.example', '{origin}']")
    assert read({"config": file}, {}).allowed_origins == ("https://a.example", origin)
    assert read({}, {"CAPTIOND_ALLOWED_ORIGINS": origin}).allowed_origins == (origin,)


@given(st.sampled_from(sorted(KEYS)), st.text())
@example("replacements", "new york=NYC, um=")
@example("allowed_origins", "example.org")
def test_any_text_is_a_value_or_an_error_that_names_the_key(key: str, text: str) -> None:
    message = ""
    value = None
    try:
        value = getattr(read({key: text}, {}), key)
    except ConfigError as error:
        message = str(error)
    assert key.replace("_", "-") in message or type(value) is type(KEYS[key].default)


def test_bounds_are_those_of_the_streaming_room() -> None:
    shared = KEYS.keys() & RANGES.keys()
    assert len(shared) == 4
    assert {key: config.bounds(key) for key in shared} == {key: RANGES[key] for key in shared}
