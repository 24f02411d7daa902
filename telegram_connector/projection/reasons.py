"""Why a message may leave or may not, in words for a person. No reason holds anything of a message."""

from __future__ import annotations

from enum import Enum


class Reason(Enum):
    """One reason of a decision.

    Attributes:
        value: Its name in records and policies.
        words: A sentence about the message.
    """

    words: str

    def __new__(cls, value: str, words: str) -> Reason:
        reason = object.__new__(cls)
        reason._value_ = value
        reason.words = words
        return reason

    ELIGIBLE = "eligible", "It is meant for the user, belongs to the route, and nothing is against it."

    # What was decided before
    ALREADY_HANDLED = "already_handled", "It was handled for this route before; that status stands."
    EDITED = "edited", "It was edited after it was handled for this route; an edit is not published again."

    # Whose it is, and for whom
    FROM_USER = "from_user", "The user wrote it."
    FROM_SYSTEM = "from_system", "The system wrote it, no member of the team."
    NO_RECIPIENT = "no_recipient", "It is addressed to nobody, like a thought."
    NOT_TO_USER = "not_to_user", "It is addressed to somebody else than the user."
    SENDER_UNKNOWN = "sender_unknown", "Its sender is no member of the route's team."
    SENDER_INACTIVE = "sender_inactive", "Its sender is no active member of the team any more."
    MEMBER_NOT_ALLOWED = "member_not_allowed", "The policy lets nothing of this member leave."

    # What it is, and where it comes from
    SLASH_COMMAND = "slash_command", "It is a slash command, and those are not mirrored."
    SLASH_COMMAND_RESULT = (
        "slash_command_result",
        "It is the output of a slash command nobody asked to publish.",
    )
    TOOL_ONLY = "tool_only", "It is output of a tool or command without an answer by its sender."
    DIAGNOSTIC = "diagnostic", "It is a diagnostic for developers."
    RETRY_PROMPT = "retry_prompt", "It is a prompt of the runtime to try again."
    PERMISSION_REQUEST = "permission_request", "It is a request for permission, which is answered locally."
    LEAD_SESSION = "lead_session", "It comes from the lead's own session, where thoughts are."
    INBOX = "inbox", "It comes from the inbox of a member."
    USER_SENT = "user_sent", "It comes from what the user sent."
    SYSTEM_NOTIFICATION = "system_notification", "It is a notification of the system."
    CROSS_TEAM = "cross_team", "It is coordination between teams."
    KIND_UNKNOWN = "kind_unknown", "The policy does not name its kind."
    SOURCE_UNKNOWN = "source_unknown", "The policy does not name its source."

    # How it is linked to the route
    NO_LINK = "no_link", "Nothing links it to a route: neither a turn of the user nor an order to publish."
    OTHER_ROUTE = "other_route", "What links it is about another route."
    NOT_LINKED = "not_linked", "It answers neither the turn that it is linked by nor its conversation."
    OTHER_TURN = "other_turn", "It answers another turn than the one that it is linked by."
    OTHER_MESSAGE = "other_message", "The order to publish names another message."
    NOT_BY_USER = "not_by_user", "Somebody else than the user ordered to publish it."
    ROUTE_NOT_ACTIVE = "route_not_active", "The route is not active."
    TOPIC_REPAIR_REQUIRED = (
        "topic_repair_required",
        "The route's topic needs repair; there is no other place.",
    )
    TOPIC_NOT_ACTIVE = "topic_not_active", "The route's topic is not active."

    # Its text
    NOT_TEXT = "not_text", "It holds half of a surrogate pair, which is no text."
    EMPTY = "empty", "It has nothing to read in it."
    ONLY_AGENT_BLOCKS = "only_agent_blocks", "Nothing is left of it without the blocks meant for agents."
    ONLY_PROTOCOL_BLOCKS = "only_protocol_blocks", "Nothing is left of it without the blocks of the protocol."
    PROTOCOL_BLOCKS = (
        "protocol_blocks",
        "It has blocks of the protocol in it, and the policy lets none of those go.",
    )
    BROKEN_BLOCK = "broken_block", "A block in it is broken, so what is internal cannot be told."
    JSON_NOISE = "json_noise", "It is JSON, not words."
    INBOX_NOISE = "inbox_noise", "It is noise of the inbox's protocol."
    THOUGHT_NOISE = "thought_noise", "It is noise of the thoughts' protocol."
    TOO_LONG = "too_long", "It is longer than one message may be, and the policy does not split."
    TOO_MANY_PARTS = "too_many_parts", "It would take more parts than the policy allows."
