"""The daemon's settings: one frozen `Config`, checked once, from file, environment and flags.

The file starts, opens and measures nothing. A key is stated once, as a field of `Config`: the flags, the
variables, the help texts and the error messages are generated from it.

Later ones win: defaults, the TOML file (`--config FILE` or CAPTIOND_CONFIG), the variables
CAPTIOND_<KEY>, the flags --key. An error names the key, its origin and the accepted values.
"""

import argparse
import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from streaming import settings
from streaming.settings import bounds as bounds_of

ENVIRONMENT_PREFIX = "CAPTIOND_"
# Of a web page (RFC 6454).
ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/\s*?#@]+/?", re.IGNORECASE)
STREAM_ADDRESS = re.compile(
    r"tcp://[^/\s:]+:[0-9]{1,5}|tcp://\[[0-9a-fA-F:]+\]:[0-9]{1,5}|unix:///\S+"
)
TEXTS = {
    "wyoming": "an address",
    "wyoming_name": "a name",
}  # all others that may be empty are paths
# Not keys of `Config`: the file to read; the address that this package's clients call, and their token.
OTHER_VARIABLES = frozenset({"CAPTIOND_CONFIG", "CAPTIOND_URL", "CAPTIOND_TOKEN"})

_STREAMING = settings.Settings()  # the streaming room states its defaults

Text = Annotated[str, Meta(min_length=1)]

# What a running daemon cannot change: the port is bound, the model is loaded, TLS is on or off.
FIXED = frozenset(
    {
        "host",
        "port",
        "whisperlive_port",
        "vosk_port",
        "wyoming",
        "wyoming_name",
        "model",
        "device",
        "threads",
        "slots",
        "drafter",
        "precision",
        "window",
        "max_frame_bytes",
        "tls_certificate",
        "tls_key",
        "transcripts_dir",
    }
)


class ConfigError(ValueError):
    """A setting is wrong; the message is a full sentence that says which, where and what to do."""


class Config(Struct, frozen=True, kw_only=True):
    """All settings, with their defaults, bounds and units."""

    host: Annotated[Text, Meta(description="address to listen on")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="TCP port; 0 takes a free one")] = 8765
    whisperlive_port: Annotated[
        int, Meta(ge=0, le=65_535, description="for WhisperLive's clients, often 9090; 0 is none")
    ] = 0
    vosk_port: Annotated[
        int, Meta(ge=0, le=65_535, description="for Vosk's clients, often 2700; 0 is none")
    ] = 0
    wyoming: Annotated[
        str,
        Meta(
            description="where Wyoming's clients connect, such as tcp://127.0.0.1:10300 or "
            "unix:///run/captiond/wyoming.sock; empty is nowhere"
        ),
    ] = ""
    wyoming_name: Annotated[
        str, Meta(description="under which Wyoming is announced by zeroconf; empty announces none")
    ] = ""
    model: Annotated[
        Text, Meta(description="short name, directory or hub id (see `captiond models`)")
    ] = "base"
    drafter: Annotated[
        Text,
        Meta(
            description="file of a trained drafter, none, or auto: the model's bundled one, if any"
        ),
    ] = "auto"
    device: Annotated[
        Literal["auto", "cpu", "cuda"], Meta(description="where to compute; auto prefers cuda")
    ] = "auto"
    precision: Annotated[
        Literal["float32", "int8"],
        Meta(description="of the model on a CPU; int8 is faster and has words of its own"),
    ] = "float32"
    window: Annotated[
        Literal["speech", "full"],
        Meta(
            description="of the encoder; speech computes the silence behind an utterance in samples"
        ),
    ] = "speech"
    threads: Annotated[
        int, Meta(ge=0, le=1024, description="CPU threads; 0 is one for each physical core")
    ] = 0
    slots: Annotated[int, Meta(ge=1, le=96, description="utterances decoded side by side")] = 4
    max_sessions: Annotated[
        int, Meta(ge=1, le=10_000, description="sessions served at once; more get HTTP 503")
    ] = 16
    max_sessions_per_token: Annotated[
        int, Meta(ge=0, le=10_000, description="of which one token may take; 0 is all of them")
    ] = 0
    max_frame_bytes: Annotated[
        int, Meta(ge=1024, le=2**26, description="largest websocket frame taken, in bytes")
    ] = 2**20
    max_buffered_seconds: Annotated[
        float,
        Meta(ge=1.0, le=3600.0, description="audio awaiting finals beyond which reading pauses"),
    ] = 60.0
    max_lag_seconds: Annotated[
        float,
        Meta(
            ge=1.0, le=3600.0, description="wait for a turn beyond which new clients get HTTP 503"
        ),
    ] = 5.0
    max_files: Annotated[
        int, Meta(ge=1, le=1000, description="recordings over HTTP transcribed at once; more wait")
    ] = 2
    max_file_mb: Annotated[
        float, Meta(ge=0.001, le=1e5, description="largest recording taken over HTTP; 413 beyond")
    ] = 500.0
    max_file_seconds: Annotated[
        float, Meta(ge=1.0, le=1e6, description="longest recording taken over HTTP; 413 beyond")
    ] = 14_400.0
    start_timeout_seconds: Annotated[
        float, Meta(ge=0.1, le=600.0, description="how long a client may take to send `start`")
    ] = 10.0
    idle_seconds: Annotated[
        float,
        Meta(ge=0.0, le=86_400.0, description="silence on the wire that ends a session; 0 is none"),
    ] = 300.0
    no_audio_seconds: Annotated[
        float,
        Meta(
            ge=0.0,
            le=600.0,
            description="time without audio from a client that ends its utterance; 0 is any",
        ),
    ] = 1.5
    max_session_seconds: Annotated[
        float, Meta(ge=0.0, le=1e7, description="how long a session may last; 0 is for ever")
    ] = 0.0
    max_audio_rate: Annotated[
        float,
        Meta(ge=0.0, le=1e4, description="audio taken from one session, times real time; 0 is any"),
    ] = 0.0
    resume_seconds: Annotated[
        float,
        Meta(ge=0.0, le=3600.0, description="how long a lost client finds its session; 0 is never"),
    ] = 30.0
    shutdown_seconds: Annotated[
        float, Meta(ge=0.0, le=3600.0, description="how long a stop waits for pending finals")
    ] = 30.0
    stalled_after_seconds: Annotated[
        float,
        Meta(ge=1.0, le=3600.0, description="decoding without progress that counts as a fault"),
    ] = 60.0
    tokens_file: Annotated[
        str, Meta(description="who may connect, a `label token` a line; empty lets in everybody")
    ] = ""
    allowed_origins: Annotated[
        tuple[str, ...],
        Meta(
            description="web pages elsewhere that may connect, such as https://example.org; * is all"
        ),
    ] = ()
    tls_certificate: Annotated[
        str, Meta(description="PEM chain; with it the daemon speaks wss:// and https:// alone")
    ] = ""
    tls_key: Annotated[str, Meta(description="PEM key; empty takes it from tls_certificate")] = ""
    transcripts_dir: Annotated[
        str, Meta(description="folder for transcripts of every session; empty writes none")
    ] = ""
    transcripts_file_mb: Annotated[
        float,
        Meta(ge=0.01, le=1000.0, description="size after which a transcript's next part begins"),
    ] = 10.0
    transcripts_keep_mb: Annotated[
        float, Meta(ge=1.0, le=1e6, description="size of all beyond which the oldest are removed")
    ] = 1000.0
    endpoint_silence_ms: Annotated[
        settings.EndpointSilence,
        Meta(description="silence that ends an utterance; from 15 s on less and less"),
    ] = _STREAMING.endpoint_silence_ms
    partial_interval_ms: Annotated[
        settings.PartialInterval, Meta(description="new audio between two partials")
    ] = _STREAMING.partial_interval_ms
    minimum_speech_ms: Annotated[
        settings.MinimumSpeech, Meta(description="speech shorter than this is taken for noise")
    ] = _STREAMING.minimum_speech_ms
    vad: Annotated[
        settings.Detector, Meta(description="voice detector; webrtc wants minimum_speech_ms = 120")
    ] = _STREAMING.vad
    vad_mode: Annotated[
        settings.VadMode, Meta(description="of webrtc: 0 hears the most, 3 rejects the most")
    ] = _STREAMING.vad_mode
    replacements: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^[^=]*[^=\s][^=]*=")], ...],
        Meta(description="what is heard and what is written for it, each as heard=written"),
    ] = ()
    blocklist: Annotated[
        tuple[str, ...],
        Meta(description="words to hide; * at the end of one stands for any ending"),
    ] = ()
    blocked: Annotated[
        settings.Blocked, Meta(description="what becomes of the words of blocklist")
    ] = _STREAMING.blocked
    numbers: Annotated[
        settings.Numbers, Meta(description="how numbers are written; as_is leaves them to Whisper")
    ] = _STREAMING.numbers
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="least severe line logged")
    ] = "info"
    log_format: Annotated[
        Literal["auto", "text", "json", "journal"],
        Meta(description="of the log; auto is journal under systemd, else text"),
    ] = "auto"

    @property
    def streaming_settings(self) -> settings.Settings:
        """What the streaming room is told."""
        return settings.Settings(
            vad=self.vad,
            vad_mode=self.vad_mode,
            minimum_speech_ms=self.minimum_speech_ms,
            endpoint_silence_ms=self.endpoint_silence_ms,
            partial_interval_ms=self.partial_interval_ms,
            replacements=dict(_pair(text) for text in self.replacements),
            blocklist=self.blocklist,
            blocked=self.blocked,
            numbers=self.numbers,
        )


def _pair(text: str) -> tuple[str, str]:
    heard, _, written = text.partition("=")
    return heard.strip(), written.strip()


KEYS = {field.name: field for field in msgspec.structs.fields(Config)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag for each key of `Config`, and --config. Flags not given leave no attribute."""
    parser.add_argument(
        "--config", metavar="FILE", default=argparse.SUPPRESS, help="TOML file of these keys"
    )
    for key, field in KEYS.items():
        parser.add_argument(
            _flag(key),
            metavar=key.rpartition("_")[2].upper(),
            default=argparse.SUPPRESS,
            help=f"{about(key).description}; {accepted(key)} (default: {_shown(field.default)})",
        )


def read(flags: Mapping[str, str], environment: Mapping[str, str]) -> Config:
    """The settings in force.

    flags: the flags that `add_arguments` parsed, by key; names that are no key are ignored.
    environment: the whole environment; variables without captiond's prefix are ignored.
    Raises ConfigError for an unknown key or variable, a wrong value, or a file that is not there
    or is no TOML.
    """
    values: dict[str, Any] = {}
    file = flags.get("config", environment.get("CAPTIOND_CONFIG"))
    if file is not None:
        values.update(_from_file(Path(file)))
    values.update(_from_environment(environment))
    for key in KEYS.keys() & flags.keys():
        values[key] = _convert(key, flags[key], _flag(key), strict=False)
    return Config(**values)


def reloaded(running: Config, read: Config) -> tuple[Config, list[str], list[str]]:
    """The changes that `read` makes to a daemon that runs with `running`.

    Returns the settings now in force, the keys that changed, and those that wait for a restart.
    """
    changed = [key for key in KEYS if getattr(running, key) != getattr(read, key)]
    waiting = [key for key in changed if key in FIXED]
    kept = {key: getattr(running, key) for key in waiting}
    return replace(read, **kept), [key for key in changed if key not in FIXED], waiting


def bounds(key: str) -> tuple[float, float]:
    """The least and the greatest value of a key that is a number."""
    limits = bounds_of(KEYS[key].type)
    assert limits is not None
    return limits


def _from_file(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    for key in table:
        if key not in KEYS:
            raise ConfigError(
                _unknown(f"key {key!r} in {path}", key, {name: name for name in KEYS})
            )
    return {
        key: _convert(key, value, f"{key} in {path}", strict=True) for key, value in table.items()
    }


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    variables = {key: ENVIRONMENT_PREFIX + key.upper() for key in KEYS}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in OTHER_VARIABLES:
            continue
        key = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if variables.get(key) != variable:
            raise ConfigError(_unknown(f"variable {variable}", key, variables))
        values[key] = _convert(key, value, variable, strict=False)
    return values


def _convert(key: str, value: object, origin: str, *, strict: bool) -> Any:
    """`value` in the type of `key`. strict: TOML has types of its own, text from a shell has not."""
    if not strict and isinstance(value, str) and _kind(key) is tuple:
        # An origin has no spaces, a phrase may have some.
        parts = re.split(r"[,\s]+" if key == "allowed_origins" else ",", value)
        value = [item.strip() for item in parts if item.strip()]
    try:
        converted = msgspec.convert(value, KEYS[key].type, strict=strict)
    except msgspec.ValidationError:
        raise ConfigError(f"{origin} is {value!r}; accepted is {accepted(key)}") from None
    if key == "wyoming" and converted and not STREAM_ADDRESS.fullmatch(converted):
        raise ConfigError(
            f"{origin} is {converted!r}; accepted is tcp://HOST:PORT, such as "
            "tcp://127.0.0.1:10300, and unix:///PATH"
        )
    if key == "allowed_origins" and (
        wrong := [one for one in converted if not ORIGIN.fullmatch(one)]
    ):
        raise ConfigError(
            f"{origin} has {wrong[0]!r}; accepted is scheme://host or scheme://host:port, such as "
            "https://example.org, null for pages without an origin, and * for every page"
        )
    return converted


def _unknown(what: str, name: str, accepted: Mapping[str, str]) -> str:
    """The message for `name`. accepted: by key, how it is written where `name` was found."""
    # At the default of 0.6 `reader` would be taken for `threads`.
    close = difflib.get_close_matches(name, accepted, n=1, cutoff=0.7)
    guess = f" (did you mean {accepted[close[0]]}?)" if close else ""
    return f"unknown {what}{guess}; accepted are {', '.join(accepted.values())}"


def accepted(key: str) -> str:
    """The values that a key takes, in words."""
    kind = _kind(key)
    if kind is str:
        return "a text that is not empty" if KEYS[key].default else TEXTS.get(key, "a path")
    if kind is tuple:
        return "a list of texts; in variables and flags with commas between"
    if kind in (int, float):
        low, high = bounds(key)
        return f"{'a whole number' if kind is int else 'a number'} from {low} to {high}"
    return "one of " + ", ".join(get_args(get_args(KEYS[key].type)[0]))


def _kind(key: str) -> Any:
    """The plain type behind the annotations; Literal where there are choices."""
    kind = get_args(KEYS[key].type)[0]
    return get_origin(kind) or kind


def _shown(default: object) -> object:
    return "none" if default in ("", ()) else default


def about(key: str) -> Meta:
    """The Meta with the description: the last one; those of the type itself come before it."""
    meta = get_args(KEYS[key].type)[-1]
    assert isinstance(meta, Meta)
    return meta


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")
