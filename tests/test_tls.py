from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from daemon.config import Config, ConfigError
from daemon.net.tls import Tls
from tests.support.certificates import certificates


def config(certificate: str = "", key: str = "") -> Config:
    return Config(tls_certificate=certificate, tls_key=key)


def test_without_a_certificate_there_is_no_tls() -> None:
    assert Tls.of(config()) is None


def test_a_key_alone_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="tls_certificate is not"):
        Tls.of(config(key="key.pem"))


def test_the_key_may_stand_beside_the_certificate(tmp_path: Path) -> None:
    made = certificates(tmp_path)
    both = tmp_path / "both.pem"
    both.write_bytes(Path(made.key).read_bytes() + Path(made.certificate).read_bytes())
    assert Tls.of(config(str(both))) is not None


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda made: Path(made.certificate).unlink(), r"cannot read .*certificate\.pem: No such"),
        (lambda made: Path(made.key).unlink(), r"cannot read .*key\.pem: No such"),
        (lambda made: Path(made.certificate).write_text("nonsense"), "are no certificate"),
        (lambda made: Path(made.key).write_text("nonsense"), "are no certificate"),
    ],
)
def test_no_pair_is_named_and_changes_nothing(tmp_path: Path, damage: object, says: str) -> None:
    made = certificates(tmp_path)
    tls = Tls.of(config(made.certificate, made.key))
    assert tls is not None
    assert callable(damage)
    damage(made)
    with pytest.raises(ConfigError, match=says):
        tls.reload()
    made.renew()
    tls.reload()


def test_the_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = certificates(tmp_path / "a"), certificates(tmp_path / "b")
    with pytest.raises(ConfigError, match="KEY_VALUES_MISMATCH"):
        Tls.of(config(one.certificate, other.key))


def test_an_encrypted_key_is_refused_without_asking(tmp_path: Path) -> None:
    made = certificates(tmp_path)
    locked = tmp_path / "locked.pem"
    key = serialization.load_pem_private_key(Path(made.key).read_bytes(), password=None)
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"x"),
        )
    )
    with pytest.raises(ConfigError, match="without a password"):
        Tls.of(config(made.certificate, str(locked)))
