"""A certificate authority for tests, and what it signs."""

import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Certificates:
    """Signed for 127.0.0.1 and localhost, in files; `renew` writes the next pair over them."""

    folder: Path
    authority: trustme.CA

    @property
    def certificate(self) -> str:
        return str(self.folder / "certificate.pem")

    @property
    def key(self) -> str:
        return str(self.folder / "key.pem")

    @property
    def root(self) -> str:
        return str(self.folder / "root.pem")

    def renew(self, name: str = "localhost") -> None:
        pair = self.authority.issue_cert("127.0.0.1", name)
        Path(self.certificate).unlink(missing_ok=True)
        for blob in pair.cert_chain_pems:
            blob.write_to_path(self.certificate, append=True)
        pair.private_key_pem.write_to_path(self.key)

    def spoil(self) -> None:
        """Until the next `renew` the key is none."""
        Path(self.key).write_text("nonsense")

    def client(self) -> ssl.SSLContext:
        """A context that trusts the authority alone."""
        return ssl.create_default_context(cafile=self.root)


def certificates(folder: Path) -> Certificates:
    made = Certificates(folder, trustme.CA())
    made.authority.cert_pem.write_to_path(made.root)
    made.renew()
    return made
