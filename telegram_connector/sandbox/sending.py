"""sendMessage and editMessageText: Telegram's checks in Telegram's order, first hit wins."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from telegram_connector.sandbox import text as texts
from telegram_connector.sandbox.answers import (
    Answer,
    Refused,
    bad_request,
    from_preset,
    result,
    too_many_requests,
)
from telegram_connector.sandbox.chats import Chat, Topic
from telegram_connector.sandbox.params import Params, boolean, integer
from telegram_connector.sandbox.presets import named
from telegram_connector.sandbox.record import Message
from telegram_connector.sandbox.tokens import Bot
from telegram_connector.sandbox.world import World

_NOT_MODIFIED = (
    "message is not modified: specified new message content and reply markup are exactly the same as "
    "a current content and reply markup of the message"
)


def send_message(world: World, bot: Bot, params: Params) -> tuple[Answer, Message | None]:
    """Sends one message.

    Raises:
        Refused: A check said no.
    """
    parsed = texts.read(params)
    _check_link_preview(params)
    reply = _read_reply(params)
    _check_reply_markup(params)
    chat = find_chat(world, params)
    reply_to = _find_reply(world, chat, reply)
    topic = _find_topic(chat, integer(params.get("message_thread_id", "")))
    parsed = texts.finish(parsed)
    _check_core(chat, topic)
    now = world.clock.now()
    _check_rate(world, bot, chat, now)
    message = Message(
        seq=0,
        chat_id=chat.id,
        message_id=world.next_message_id(chat),
        raw_text=params["text"],
        text=parsed.text,
        parse_mode=params.get("parse_mode", ""),
        entities=tuple(map(texts.shown, parsed.entities)),
        date=int(now),
        bot_id=bot.id,
        message_thread_id=topic.id if topic else None,
        reply_to_message_id=reply_to,
        params=dict(params),
    )
    world.sent(bot, chat, now)
    world.remember(message)
    return result(world.show(message)), message


def edit_message_text(world: World, bot: Bot, params: Params) -> Answer:
    """Changes the text of a message.

    Raises:
        Refused: A check said no.
    """
    parsed = texts.read(params)
    _check_link_preview(params)
    _check_reply_markup(params)
    if params.get("inline_message_id"):
        raise bad_request("MESSAGE_ID_INVALID")
    chat = find_chat(world, params)
    message_id = integer(params.get("message_id", ""))
    if message_id <= 0:
        raise bad_request("message identifier is not specified")
    before = world.message(chat.id, message_id)
    if before is None:
        raise bad_request("message to edit not found")
    if before.bot_id != bot.id:
        raise bad_request("message can't be edited")
    parsed = texts.finish(parsed)
    _check_core(chat, None)
    after = replace(
        before,
        raw_text=params["text"],
        text=parsed.text,
        parse_mode=params.get("parse_mode", ""),
        entities=tuple(map(texts.shown, parsed.entities)),
        params={**before.params, **params},
        edits=(*before.edits, before.raw_text),
    )
    if _content(before) == _content(after):
        raise bad_request(_NOT_MODIFIED)
    now = world.clock.now()
    # Edits weigh as much as messages: seen by those who edit often, not documented.
    _check_flood(world, bot, chat, now)
    world.change(after)
    return result({**world.show(after), "edit_date": int(now)})


def find_chat(world: World, params: Params) -> Chat:
    """The chat that a call names, if the bot has access to it.

    Raises:
        Refused: No chat is named, it does not exist, or its state keeps the bot out.
    """
    chat_id = params.get("chat_id", "")
    if not chat_id:
        raise bad_request("chat_id is empty")
    chat = world.roster.find(chat_id)
    if chat is None:
        raise bad_request("chat not found")
    if chat.refused_early:
        _refuse(chat.refusal())
    return chat


def _check_link_preview(params: Params) -> None:
    value = params.get("link_preview_options", "")
    if value and not isinstance(_json(value, "link preview options JSON object"), dict):
        raise bad_request("object expected as link preview options")


def _read_reply(params: Params) -> Mapping[str, Any]:
    value = params.get("reply_parameters", "")
    if not value:
        # The parameters of before Bot API 7.0, which are still read.
        allow = boolean(params.get("allow_sending_without_reply", ""))
        return {
            "message_id": integer(params.get("reply_to_message_id", "")),
            "allow_sending_without_reply": allow,
        }
    reply = _json(value, "reply parameters JSON object")
    if not isinstance(reply, dict):
        raise bad_request("object expected as reply parameters")
    return reply


def _check_reply_markup(params: Params) -> None:
    value = params.get("reply_markup", "")
    if value and not isinstance(_json(value, "reply keyboard markup JSON object"), dict):
        raise bad_request("object expected as reply markup")


def _json(value: str, what: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise bad_request(f"can't parse {what}") from None


def _find_reply(world: World, chat: Chat, reply: Mapping[str, Any]) -> int | None:
    message_id = integer(str(reply.get("message_id", "")))
    if message_id <= 0:
        return None
    other = world.roster.find(str(reply["chat_id"])) if reply.get("chat_id") else chat
    if other is not None and world.message(other.id, message_id) is not None:
        # A reply into another chat is shown as external_reply, which is not modelled.
        return message_id if other.id == chat.id else None
    if boolean(str(reply.get("allow_sending_without_reply", ""))):
        return None
    raise bad_request("chat not found" if other is None else "message to be replied not found")


def _find_topic(chat: Chat, thread_id: int) -> Topic | None:
    if thread_id <= 0:
        return None
    topic = chat.topic(thread_id)
    if topic is None or topic.state == "deleted":
        raise bad_request("message thread not found")
    if topic.state == "thread_not_found":
        _refuse_preset(topic.state)
    return topic


def _check_core(chat: Chat, topic: Topic | None) -> None:
    """What only Telegram's core knows, and says after all that the Bot API server has to say."""
    _refuse(chat.refusal())
    if topic is None or topic.state == "open":
        return
    if topic.state == "closed":
        if chat.bot_status != "administrator":
            raise bad_request("TOPIC_CLOSED")
        return
    _refuse_preset(topic.state)


def _check_rate(world: World, bot: Bot, chat: Chat, now: float) -> None:
    wait = world.slow_mode_wait(bot, chat, now)
    if wait > 0:
        raise Refused(too_many_requests(math.ceil(wait)))
    _check_flood(world, bot, chat, now)


def _check_flood(world: World, bot: Bot, chat: Chat, now: float) -> None:
    retry_after = world.flood.admit(bot.id, chat.id, chat.is_group, now)
    if retry_after is not None:
        raise Refused(too_many_requests(retry_after))


def _content(message: Message) -> tuple[object, ...]:
    markup = message.params.get("reply_markup", "")
    return message.text, message.entities, message.parse_mode.lower(), markup


def _refuse(answer: Answer | None) -> None:
    if answer is not None:
        raise Refused(answer)


def _refuse_preset(name: str) -> None:
    preset = named(name)
    _refuse(from_preset(preset) if preset else None)
