"""``provision``: makes the streams and buckets, under credentials of its own."""

from __future__ import annotations

import sys

import click

from telegram_connector import topology
from telegram_connector.bridge import NatsClient
from telegram_connector.cli.manual import foot
from telegram_connector.cli.settings import nats_settings
from telegram_connector.errors import STREAM_NOT_FOUND, SUBJECTS_OVERLAP, ApiError, BridgeError


@click.command(
    short_help="Make the streams and buckets that the connector needs.",
    epilog=foot(
        "provision",
        "provision --replicas 3",
        done="all is there, perhaps with differences, which are named",
        failed="something could not be made",
    ),
)
@click.option(
    "--replicas", type=click.IntRange(1, 5), default=1, show_default=True, help="Copies in a cluster."
)
def provision(replicas: int) -> None:
    """Make the streams and buckets that the connector needs.

    Idempotent; never deletes or shrinks anything. Reads NATS_URL and the credentials from the same variables
    as the worker, but wants an administrator's: the worker's lack the rights (TELEGRAM_PROVISIONER in
    deploy/nats-permissions.conf has the least). Prints a line for each: created, grown or exists, and what
    was left different. Run it again after an upgrade.
    """
    settings = nats_settings()
    try:
        with NatsClient(settings, "telegram_connector provision") as client:
            for config in topology.provisioned(settings, replicas):
                click.echo(_provide(client, config))
    except BridgeError as error:
        click.echo(f"telegram-connector provision: {error}", err=True)
        sys.exit(1)


def _provide(client: NatsClient, config: topology.Config) -> str:
    name = config["name"]
    try:
        found = client.api(f"STREAM.INFO.{name}")["config"]
    except ApiError as error:
        if error.err_code != STREAM_NOT_FOUND:
            raise
        return _create(client, config)
    grown = topology.stream_update(config, found)
    if grown is not None:
        found = client.api(f"STREAM.UPDATE.{name}", grown)["config"]
    left = topology.stream_differences(config, found)
    did = "grown" if grown is not None else "exists"
    return f"{name}: {did}" + (f"; left as it is: {'; '.join(left)}" if left else "")


def _create(client: NatsClient, config: topology.Config) -> str:
    try:
        client.api(f"STREAM.CREATE.{config['name']}", config)
    except ApiError as error:
        if error.err_code != SUBJECTS_OVERLAP:
            raise
        taken = ", ".join(config["subjects"])
        raise ApiError(
            error.code,
            error.err_code,
            f"another stream already takes {taken}: narrow that stream, or set TG_SUBJECT and TG_STREAM",
        ) from None
    return f"{config['name']}: created"
