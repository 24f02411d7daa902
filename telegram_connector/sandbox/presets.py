"""Answers by name: Telegram's own words, and those of what stands in front of it.

Every name is an answer that the Bot API, a front end of it or an older version of it was seen to give. A rule
or a chat's state that names one gets it to the letter; see docs/sandbox.md for what each means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Preset:
    """One named answer.

    Attributes:
        name: What rules and chats files call it.
        status: HTTP status.
        description: The description of a JSON refusal; None where the answer is no refusal in JSON.
        parameters: The refusal's ``parameters`` object; empty for none.
        body: A body that is no JSON of the Bot API, "" for an empty one; None for a refusal in JSON, and for
            success, which is then the method's own answer.
    """

    name: str
    status: int
    description: str | None = None
    parameters: Mapping[str, int] = field(default_factory=dict)
    body: str | None = None


def _refusal(name: str, status: int, description: str, **parameters: int) -> Preset:
    return Preset(name, status, description, parameters)


def _raw(name: str, status: int, body: str) -> Preset:
    return Preset(name, status, body=body)


def _passed(name: str) -> Preset:
    return Preset(name, 200)


_ROWS = (
    # Success.
    _passed("ok"),
    _passed("ok_reply_dropped"),
    _passed("ok_entities_truncated"),
    # Too many requests: flood limits, slow mode, and what only looks like them.
    _refusal("rl_flood_short", 429, "Too Many Requests: retry after 35", retry_after=35),
    _refusal("rl_flood_huge_10072", 429, "Too Many Requests: retry after 10072", retry_after=10072),
    _refusal("rl_flood_huge_2282", 429, "Too Many Requests: retry after 2282", retry_after=2282),
    _refusal("rl_flood_max", 429, "Too Many Requests: retry after 1209600", retry_after=1209600),
    _refusal("rl_slowmode", 429, "Too Many Requests: retry after 3590", retry_after=3590),
    _refusal("rl_upstream_5xx_disguised", 429, "Too Many Requests: retry after 8", retry_after=8),
    _refusal("rl_server_shutdown_5", 429, "Too Many Requests: retry after 5", retry_after=5),
    _refusal("rl_local_310", 429, "Too Many Requests: retry after 60", retry_after=60),
    _refusal("rl_new_client_global", 429, "Too Many Requests: retry after 12", retry_after=12),
    _refusal("rl_authorization", 429, "Too Many Requests: retry after 1200", retry_after=1200),
    _refusal("rl_no_parameters", 429, "Too Many Requests: retry after 3"),
    _refusal("rl_description_only_integerless", 429, "Too Many Requests"),
    _raw(
        "rl_html",
        429,
        "<html>\r\n"
        "<head><title>429 Too Many Requests</title></head>\r\n"
        "<body>\r\n"
        "<center><h1>429 Too Many Requests</h1></center>\r\n"
        "<hr><center>nginx</center>\r\n"
        "</body>\r\n"
        "</html>\r\n",
    ),
    _refusal("rl_login_lockout", 429, "Too Many Requests: retry after 86400", retry_after=86400),
    # The server's own trouble.
    _refusal("srv_restart", 500, "Internal Server Error: restart"),
    _refusal("srv_wrong_429", 500, "FLOOD_SOMETHING"),
    _refusal(
        "srv_unexpected_reply",
        500,
        "Internal Server Error: unexpected REPLY_MESSAGE_ID_INVALID error",
    ),
    _refusal("srv_unexpected_quote", 500, "Internal Server Error: unexpected QUOTE_TEXT_INVALID error"),
    _raw(
        "srv_500_html",
        500,
        "<html>\n"
        "<head><title>500 Internal Server Error</title></head>\n"
        '<body bgcolor="white">\n'
        "<center><h1>500 Internal Server Error</h1></center>\n"
        "<hr><center>nginx/1.10.0</center>\n"
        "</body>\n"
        "</html>\n",
    ),
    _raw(
        "srv_502_html",
        502,
        "<html>\r\n"
        "<head><title>502 Bad Gateway</title></head>\r\n"
        '<body bgcolor="white">\r\n'
        "<center><h1>502 Bad Gateway</h1></center>\r\n"
        "<hr><center>nginx/1.12.2</center>\r\n"
        "</body>\r\n"
        "</html>\r\n",
    ),
    _refusal("srv_502_json", 502, "Bad Gateway"),
    _raw(
        "srv_503_html",
        503,
        "<html><head><title>503 Service Temporarily Unavailable</title></head></html>",
    ),
    _refusal("srv_400_bad_gateway", 400, "Bad Request: Bad Gateway"),
    # Perhaps sent, perhaps not.
    _raw(
        "amb_504_html",
        504,
        "<title>504 Gateway Time-out</title>\n\n<h1>504 Gateway Time-out</h1>\n<hr>nginx/1.6.2",
    ),
    _refusal("amb_504_after_revoke", 504, "Gateway Timeout"),
    _raw(
        "amb_200_html",
        200,
        '<!DOCTYPE html>\n<html class="">\n  <head>\n    <title>sendMessage</title>',
    ),
    # The bot itself.
    _refusal("bot_401", 401, "Unauthorized"),
    _refusal("bot_401_malformed", 401, "Unauthorized: invalid token specified"),
    _refusal("bot_401_api_id", 401, "Unauthorized: invalid api-id/api-hash"),
    _refusal("bot_404_method", 404, "Not Found: method not found"),
    _refusal("bot_404_absolute", 404, "Not Found: absolute URI is specified in the Request-Line"),
    _refusal("bot_421", 421, "Misdirected Request: unallowed token specified"),
    _refusal("bot_logged_out", 400, "Logged out"),
    _refusal("bot_frozen", 400, "Bad Request: FROZEN_METHOD_INVALID"),
    # The chat has another id now.
    _refusal(
        "mig_current",
        400,
        "Bad Request: group chat was upgraded to a supergroup chat",
        migrate_to_chat_id=-1001557912345,
    ),
    _refusal(
        "mig_2016",
        400,
        "Bad Request: group chat is migrated to a supergroup chat",
        migrate_to_chat_id=-1001044886132,
    ),
    _refusal(
        "mig_2016_error_prefix",
        400,
        "[Error]: Bad Request: group chat is migrated to supergroup chat",
        migrate_to_chat_id=-1001044886132,
    ),
    # The chat cannot be written to.
    _refusal("mig_without_id", 400, "Bad Request: group chat was upgraded to a supergroup chat"),
    _refusal("chat_blocked", 403, "Forbidden: bot was blocked by the user"),
    _refusal("chat_deactivated", 403, "Forbidden: user is deactivated"),
    _refusal("chat_cant_initiate", 403, "Forbidden: bot can't initiate conversation with a user"),
    _refusal("chat_bot_to_bot", 403, "Forbidden: the bot can't send messages to the bot"),
    _refusal("chat_bot_to_bot_2024", 403, "Forbidden: bots can't send messages to bots"),
    _refusal("chat_kicked_group", 403, "Forbidden: bot was kicked from the group chat"),
    _refusal("chat_kicked_supergroup", 403, "Forbidden: bot was kicked from the supergroup chat"),
    _refusal("chat_kicked_channel", 403, "Forbidden: bot was kicked from the channel chat"),
    _refusal("chat_not_member_group", 403, "Forbidden: bot is not a member of the group chat"),
    _refusal("chat_group_deleted", 403, "Forbidden: the group chat was deleted"),
    _refusal("chat_not_found", 400, "Bad Request: chat not found"),
    _refusal("chat_private_not_found", 400, "Bad Request: private chat not found"),
    _refusal("chat_peer_invalid", 400, "Bad Request: PEER_ID_INVALID"),
    _refusal("chat_write_forbidden", 400, "Bad Request: CHAT_WRITE_FORBIDDEN"),
    _refusal("chat_admin_required", 400, "Bad Request: CHAT_ADMIN_REQUIRED"),
    _refusal("chat_need_admin_channel", 400, "Bad Request: need administrator rights in the channel chat"),
    _refusal(
        "chat_not_enough_rights",
        400,
        "Bad Request: not enough rights to send text messages to the chat",
    ),
    _refusal("chat_no_write_access", 400, "Bad Request: have no write access to the chat"),
    _refusal("chat_no_rights_old", 400, "Bad Request: have no rights to send a message"),
    _refusal("chat_cant_access", 400, "Bad Request: can't access the chat"),
    _refusal("chat_guest_forbidden", 400, "Bad Request: CHAT_GUEST_SEND_FORBIDDEN"),
    _refusal("chat_user_bot_invalid", 400, "Bad Request: USER_BOT_INVALID"),
    _refusal("chat_you_blocked", 400, "Bad Request: YOU_BLOCKED_USER"),
    _refusal("chat_user_is_blocked_raw", 400, "Bad Request: USER_IS_BLOCKED"),
    _refusal("chat_paid_required", 400, "Bad Request: ALLOW_PAYMENT_REQUIRED_10"),
    _refusal("chat_kicked_old", 403, "Unauthorized: bot was kicked from a chat"),
    # The message is at fault.
    _refusal("msg_empty", 400, "Bad Request: message text is empty"),
    _refusal("msg_too_long", 400, "Bad Request: message is too long"),
    _refusal("msg_text_too_long_raw", 400, "Bad Request: text is too long"),
    _refusal("msg_utf8", 400, "Bad Request: strings must be encoded in UTF-8"),
    _refusal("msg_utf8_parse", 400, "Bad Request: text must be encoded in UTF-8"),
    _refusal("msg_parse_mode", 400, "Bad Request: unsupported parse_mode"),
    _refusal(
        "parse_md1_end",
        400,
        "Bad Request: can't parse entities: Can't find end of the entity starting at byte offset 14",
    ),
    _refusal(
        "parse_md2_reserved",
        400,
        "Bad Request: can't parse entities: Character '-' is reserved and must be escaped with the "
        "preceding '\\'",
    ),
    _refusal(
        "parse_md2_end",
        400,
        "Bad Request: can't parse entities: Can't find end of Italic entity at byte offset 5",
    ),
    _refusal(
        "parse_html_tag",
        400,
        'Bad Request: can\'t parse entities: Unsupported start tag "" at byte offset 218',
    ),
    _refusal(
        "parse_html_unclosed_start",
        400,
        "Bad Request: can't parse entities: Unclosed start tag at byte offset 7",
    ),
    _refusal(
        "parse_html_no_end",
        400,
        "Bad Request: can't parse entities: Can't find end tag corresponding to start tag \"b\"",
    ),
    _refusal(
        "parse_html_unmatched",
        400,
        "Bad Request: can't parse entities: Unmatched end tag at byte offset 12, "
        'expected "</b>", found "</i>"',
    ),
    _refusal(
        "parse_html_unexpected_end",
        400,
        "Bad Request: can't parse entities: Unexpected end tag at byte offset 3",
    ),
    _refusal(
        "parse_html_unclosed_end",
        400,
        "Bad Request: can't parse entities: Unclosed end tag at byte offset 9",
    ),
    _refusal(
        "parse_html_attr",
        400,
        'Bad Request: can\'t parse entities: Empty attribute name in the tag "a" at byte offset 0',
    ),
    _refusal(
        "parse_html_span",
        400,
        'Bad Request: can\'t parse entities: Tag "span" must have class "tg-spoiler" at byte offset 0',
    ),
    _refusal(
        "parse_html_surrogate",
        400,
        "Bad Request: can't parse entities: Text contains invalid Unicode characters after decoding "
        "HTML entities, check for unmatched surrogate code units",
    ),
    _refusal(
        "parse_old",
        400,
        "Bad Request: can't parse entities in message text: Can't find end of the entity starting at "
        "byte offset 14",
    ),
    _refusal("ent_json", 400, "Bad Request: can't parse MessageEntity: Unsupported type specified"),
    _refusal(
        "ent_surrogate",
        400,
        "Bad Request: entity begins in a middle of a UTF-16 symbol at byte offset 4",
    ),
    _refusal(
        "ent_after_end",
        400,
        "Bad Request: entity begins after the end of the text at UTF-16 offset 50",
    ),
    _refusal("ent_bounds", 400, "Bad Request: ENTITY_BOUNDS_INVALID"),
    _refusal("opt_link_json", 400, "Bad Request: can't parse link preview options JSON object"),
    _refusal("opt_link_object", 400, "Bad Request: object expected as link preview options"),
    _refusal("opt_reply_json", 400, "Bad Request: can't parse reply parameters JSON object"),
    _refusal("reply_not_found", 400, "Bad Request: message to be replied not found"),
    _refusal("reply_not_found_2020", 400, "Bad Request: reply message not found"),
    _refusal("reply_id_invalid", 400, "Bad Request: REPLY_MESSAGE_ID_INVALID"),
    _refusal("thread_not_found", 400, "Bad Request: message thread not found"),
    _refusal("topic_deleted", 400, "Bad Request: TOPIC_DELETED"),
    _refusal("dm_topic", 400, "Bad Request: wrong direct messages topic identifier specified"),
    _refusal("effect", 400, "Bad Request: can't use message effects in the chat"),
    _refusal("markup_url", 400, "Bad Request: BUTTON_URL_INVALID"),
    _raw("body_empty_400", 400, ""),
    _raw("body_413", 413, ""),
    _refusal("body_413_json", 413, "Request Entity Too Large"),
    _raw(
        "url_414",
        414,
        "<html>\n"
        "<head><title>414 Request-URI Too Large</title></head>\n"
        '<body bgcolor="white">\n'
        "<center><h1>414 Request-URI Too Large</h1></center>\n"
        "<hr><center>nginx/1.6.2</center>\n"
        "</body>\n"
        "</html>\n",
    ),
    _raw("hdr_431", 431, ""),
)

PRESETS: Mapping[str, Preset] = {preset.name: preset for preset in _ROWS}

# Friendly names for the answers that tests ask for most.
ALIASES: Mapping[str, str] = {
    "blocked": "chat_blocked",
    "kicked": "chat_kicked_supergroup",
    "migrated": "mig_current",
    "flood": "rl_flood_short",
    "restart-500": "srv_restart",
    "html-502": "srv_502_html",
    "token-revoked": "bot_401",
}


def named(name: str) -> Preset | None:
    """The preset of that name or alias; None where there is none."""
    return PRESETS.get(ALIASES.get(name, name))
