"""The methods of the Bot API that the sandbox knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from telegram_connector.sandbox.answers import Answer, Refused, bad_request, refusal, result
from telegram_connector.sandbox.chats import Chat
from telegram_connector.sandbox.params import Params, integer
from telegram_connector.sandbox.record import Message
from telegram_connector.sandbox.sending import edit_message_text, find_chat, send_message
from telegram_connector.sandbox.tokens import Bot
from telegram_connector.sandbox.world import World

Note: TypeAlias = Callable[[Answer, Message | None], None]

_METHOD_NOT_FOUND = refusal(404, "Not Found: method not found")
_RIGHTS = (
    *("can_be_edited", "can_manage_chat", "can_change_info", "can_delete_messages", "can_invite_users"),
    *("can_restrict_members", "can_promote_members", "can_manage_video_chats", "can_post_stories"),
    *("can_edit_stories", "can_delete_stories", "can_send_welcome_messages", "is_anonymous"),
)


def get_me(world: World, bot: Bot, params: Params) -> Answer:
    """Who the bot is."""
    return result(
        {
            **bot.as_json(),
            "can_join_groups": True,
            "can_read_all_group_messages": False,
            "supports_inline_queries": False,
            "can_connect_to_business": False,
            "has_main_web_app": False,
        }
    )


def get_chat(world: World, bot: Bot, params: Params) -> Answer:
    """A chat in full."""
    chat = find_chat(world, params)
    full: dict[str, Any] = {
        **chat.as_json(),
        "accent_color_id": abs(chat.id) % 7,
        "max_reaction_count": 11,
        "accepted_gift_types": {
            "unlimited_gifts": chat.type in ("private", "channel"),
            "limited_gifts": chat.type in ("private", "channel"),
            "unique_gifts": chat.type in ("private", "channel"),
            "premium_subscription": chat.type == "private",
            "gifts_from_channels": chat.type in ("private", "channel"),
        },
    }
    if chat.slow_mode_seconds:
        full["slow_mode_delay"] = chat.slow_mode_seconds
    return result(full)


def get_chat_member(world: World, bot: Bot, params: Params) -> Answer:
    """The bot itself, or the person of a private chat; other members are not modelled."""
    user_id = integer(params.get("user_id", ""))
    if user_id <= 0:
        raise bad_request("invalid user_id specified")
    chat = find_chat(world, params)
    if user_id == bot.id:
        return result(_own_membership(chat, bot))
    if chat.type == "private" and user_id == chat.id:
        person = {"id": user_id, "is_bot": False, "first_name": chat.as_json()["first_name"]}
        return result({"user": person, "status": "member"})
    raise bad_request("member not found")


def delete_message(world: World, bot: Bot, params: Params) -> Answer:
    """Deletes one of the bot's messages."""
    chat = find_chat(world, params)
    message_id = integer(params.get("message_id", ""))
    if message_id <= 0:
        raise bad_request("message identifier is not specified")
    message = world.message(chat.id, message_id)
    if message is None:
        raise bad_request("message to delete not found")
    world.change(replace(message, deleted=True))
    return result(True)


def _own_membership(chat: Chat, bot: Bot) -> dict[str, Any]:
    member: dict[str, Any] = {"user": bot.as_json(), "status": chat.bot_status}
    if chat.bot_status == "administrator":
        member.update(dict.fromkeys(_RIGHTS, False), can_manage_chat=True)
        if chat.type == "channel":
            member["can_post_messages"] = True
    return member


_METHODS: Mapping[str, tuple[str, Callable[[World, Bot, Params], Answer]]] = {
    name.lower(): (name, function)
    for name, function in (
        ("getMe", get_me),
        ("getChat", get_chat),
        ("getChatMember", get_chat_member),
        ("deleteMessage", delete_message),
        ("editMessageText", edit_message_text),
    )
}
_NAMES = {name.lower(): name for name in ("sendMessage", "getUpdates")} | {
    key: name for key, (name, _) in _METHODS.items()
}


def spelt(method: str) -> str:
    """A method's name as the documentation spells it; as it came where it is unknown."""
    return _NAMES.get(method.lower(), method)


def call(world: World, token: str, method: str, params: Params, note: Note) -> Answer:
    """Carries out one call.

    Args:
        world: What it works on.
        token: As in the URL.
        method: In any letter case.
        params: Its parameters.
        note: Told of the answer and of the message that was created, if one was. Told while the world is
            locked, so that the record has messages in the order of their ids.
    """
    bot = world.tokens.check(token)
    key = method.lower()
    if isinstance(bot, Bot) and key == "getupdates":
        # Outside the lock: it may wait for a minute.
        answer = _get_updates(world, bot, params)
        note(answer, None)
        return answer
    with world.lock:
        message: Message | None = None
        if isinstance(bot, Answer):
            answer = bot
        else:
            answer, message = _call(world, bot, key, params)
        note(answer, message)
    return answer


def _call(world: World, bot: Bot, key: str, params: Params) -> tuple[Answer, Message | None]:
    try:
        if key == "sendmessage":
            return send_message(world, bot, params)
        if key in _METHODS:
            return _METHODS[key][1](world, bot, params), None
    except Refused as refused:
        return refused.answer, None
    return _METHOD_NOT_FOUND, None


def _get_updates(world: World, bot: Bot, params: Params) -> Answer:
    limit = integer(params.get("limit", "")) or 100
    return world.updates.get(
        bot.id, integer(params.get("offset", "")), limit, integer(params.get("timeout", ""))
    )
