"""A teammate's reply to the user, out by the route that the question came in by, and what stays at home.

    NATS_URL=... NATS_TELEGRAM_NKEY_SEED=... CHAT=-100... BOT=123456 python examples/teammate_reply.py

BOT, the id before the colon of the bot's token, has each decision put in the ledger, where
`telegram-connector ledger why r1/m2` finds why that one was not sent. It takes the rights of
TELEGRAM_PROJECTOR in deploy/nats-permissions.conf.
"""

from __future__ import annotations

import os

from telegram_connector.projection import LocalMessage, Member, ReplyToTurn, Route
from telegram_connector.publisher import Publisher
from telegram_connector.settings import NatsSettings

ROUTE = Route(
    id="r1",
    chat=os.environ["CHAT"],
    topic=None,
    team="Frontend",
    state="active",
    members=(Member(name="lead", label="Lead"), Member(name="alice", label="Alice")),
)
TURN = ReplyToTurn(
    route_id="r1", inbound_key="telegram:55", inbound_message_id="in-1", telegram_message_id=55
)


def said(id_: str, to: str, text: str) -> LocalMessage:
    return LocalMessage(
        id=id_, sender="alice", to=to, source="send_message", kind="message", text=text, in_reply_to="in-1"
    )


def main() -> None:
    settings = NatsSettings.from_env(os.environ)
    with Publisher(settings, bot=os.environ.get("BOT")) as publisher:
        for message in (
            said("m1", "user", "Found it: a stale cache.<info_for_agent>ask bob</info_for_agent>"),
            said("m2", "lead", "Shall I fix it?"),
            said("m1", "user", "Found it."),  # the first one, edited since
        ):
            result = publisher.publish_local(message, ROUTE, TURN)
            print(f"{message.id} {result.decision}")


if __name__ == "__main__":
    main()
