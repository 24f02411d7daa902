"""Talks to the sandbox with python-telegram-bot; prints what came of each case as JSON."""

import asyncio
import json
import sys

from telegram import Bot, LinkPreviewOptions, MessageEntity, ReplyParameters
from telegram.error import ChatMigrated, RetryAfter, TelegramError

URL, SUPERGROUP = sys.argv[1], int(sys.argv[2])
OUTCOMES = {}


async def case(name, call):
    try:
        OUTCOMES[name] = await call
    except RetryAfter as error:
        OUTCOMES[name] = [type(error).__name__, str(error), int(error._retry_after.total_seconds())]
    except ChatMigrated as error:
        OUTCOMES[name] = [type(error).__name__, str(error), error.new_chat_id]
    except TelegramError as error:
        OUTCOMES[name] = [type(error).__name__, str(error)]


async def everything(bot):
    sent = await bot.send_message(
        SUPERGROUP,
        "fat text\u2028😀",
        entities=[MessageEntity("bold", 0, 3)],
        message_thread_id=7,
        disable_notification=True,
        link_preview_options=LinkPreviewOptions(is_disabled=True),
    )
    assert (sent.chat.type, sent.is_topic_message, sent.entities[0].type) == ("supergroup", True, "bold")
    reply = await bot.send_message(
        SUPERGROUP, "<b>reply</b>", "HTML", reply_parameters=ReplyParameters(sent.message_id)
    )
    assert reply.reply_to_message.message_id == sent.message_id
    edited = await bot.edit_message_text("new", SUPERGROUP, sent.message_id)
    assert edited.text == "new"
    assert edited.edit_date
    assert await bot.delete_message(SUPERGROUP, sent.message_id)
    assert (await bot.get_chat(SUPERGROUP)).title == "Ops"
    assert (await bot.get_chat_member("@news", bot.id)).status == "administrator"
    (update,) = await bot.get_updates()
    assert update.message.text == "/start"
    return "done"


async def main():
    async with Bot("11:ptb", base_url=f"{URL}/bot") as bot:
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
    await case("revoked", Bot("12:revoked", base_url=f"{URL}/bot").initialize())
    await case("malformed", Bot("012:malformed", base_url=f"{URL}/bot").initialize())
    print(json.dumps(OUTCOMES))


asyncio.run(main())
