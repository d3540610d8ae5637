"""TLS for the listener; its certificate can be exchanged while it runs. Opens no socket."""

import ssl
from pathlib import Path

from daemon.config import Config, ConfigError


class Tls:
    """A server's context, and the files of its certificate."""

    def __init__(self, certificate: str, key: str) -> None:
        self._certificate = certificate
        self._key = key or None
        self.context = self._read()

    @classmethod
    def of(cls, config: Config) -> "Tls | None":
        """The TLS of `config`; None without. Raises ConfigError as `reload` does."""
        if not config.tls_certificate:
            if config.tls_key:
                raise ConfigError("tls_key is set, but tls_certificate is not: TLS needs both")
            return None
        return cls(config.tls_certificate, config.tls_key)

    def reload(self) -> None:
        """Read certificate and key again: new connections get them, old ones keep theirs.

        Raises ConfigError, and changes nothing, for files that are no pair.
        """
        self._read()
        # Only now, when they are known to be a pair: a half-exchanged context would serve no client.
        self.context.load_cert_chain(self._certificate, self._key)

    def _read(self) -> ssl.SSLContext:
        for path in filter(None, (self._certificate, self._key)):
            try:
                Path(path).read_bytes()
            except OSError as error:
                raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # For an encrypted key OpenSSL would ask on a terminal, which a daemon lacks.
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or str(error)
            raise ConfigError(
                f"{self._certificate} and {self._key or 'the key in it'} are no certificate and its "
                f"key, in PEM and without a password: {reason}"
            ) from None
        return context


def _no_password() -> str:
    raise ValueError("the key is encrypted")
