"""Talks to the sandbox with aiogram; prints what came of each case as JSON."""

import asyncio
import json
import sys

from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import AiogramError, TelegramMigrateToChat, TelegramRetryAfter
from aiogram.types import LinkPreviewOptions, MessageEntity, ReplyParameters

URL, SUPERGROUP = sys.argv[1], int(sys.argv[2])
OUTCOMES = {}


async def case(name, call):
    try:
        OUTCOMES[name] = await call
    except TelegramRetryAfter as error:
        OUTCOMES[name] = [type(error).__name__, str(error), error.retry_after]
    except TelegramMigrateToChat as error:
        OUTCOMES[name] = [type(error).__name__, str(error), error.migrate_to_chat_id]
    except AiogramError as error:
        OUTCOMES[name] = [type(error).__name__, str(error)]


async def everything(bot):
    sent = await bot.send_message(
        SUPERGROUP,
        "fat text\u2028😀",
        entities=[MessageEntity(type="bold", offset=0, length=3)],
        message_thread_id=7,
        disable_notification=True,
        link_preview_options=LinkPreviewOptions(is_disabled=True),
    )
    assert (sent.chat.type, sent.is_topic_message, sent.entities[0].type) == ("supergroup", True, "bold")
    reply = await bot.send_message(
        SUPERGROUP,
        "<b>reply</b>",
        parse_mode="HTML",
        reply_parameters=ReplyParameters(message_id=sent.message_id),
    )
    assert reply.reply_to_message.message_id == sent.message_id
    edited = await bot.edit_message_text("new", chat_id=SUPERGROUP, message_id=sent.message_id)
    assert edited.text == "new"
    assert edited.edit_date
    assert await bot.delete_message(SUPERGROUP, sent.message_id)
    assert (await bot.get_chat(SUPERGROUP)).title == "Ops"
    assert (await bot.get_chat_member("@news", bot.id)).status == "administrator"
    (update,) = await bot.get_updates()
    assert update.message.text == "/start"
    return "done"


async def main():
    session = AiohttpSession(api=TelegramAPIServer.from_base(URL))
    bot = Bot("11:aiogram", session=session)
    await case("everything", everything(bot))
    await case("blocked", bot.send_message(6, "hi"))
    await case("not_found", bot.send_message("nobody", "hi"))
    await case("empty", bot.send_message(5, " "))
    await case("migrated", bot.send_message(-7, "hi"))
    for _ in range(5):
        await bot.send_message(9, "within the burst")
    await case("flooded", bot.send_message(9, "one too many"))
    await case("too_early", bot.send_message(9, "back at once"))
    await case("conflict", bot.send_message(10, "409"))
    await case("restart", bot.send_message(10, "500"))
    await case("html", bot.send_message(10, "502"))
    await case("reset", bot.send_message(10, "reset"))
    await case("revoked", _name(Bot("12:revoked", session=session).get_me()))
    await case("malformed", _name(Bot("012:malformed", session=session).get_me()))
    await session.close()
    print(json.dumps(OUTCOMES))


async def _name(asking):
    return (await asking).username


asyncio.run(main())
