"""Whether the bot as a whole may send. Pure: `now` is an argument, in monotonic seconds."""

from __future__ import annotations

FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 60.0

# A 429 does not say whether the chat or the bot is limited (tdlib/td issue 715). This many chats refused
# within the window, none served in between, and it is the bot.
FLOODED_CHATS = 3
FLOOD_WINDOW_SECONDS = 10.0


class BotGate:
    """Open, or held until a deadline and then opened by trials.

    After the Bot API was unavailable, the bot was at fault or several chats were flooded together, one send
    at a time is tried until one is accepted. After a bot's fault, and where answers were lost, `getMe` is
    asked before each trial: a message whose answer is lost may show twice. Waits grow from 1 to 60 s and
    start over only after a send was accepted: a token that was just made may answer getMe and still be
    refused for a while (tdlib/telegram-bot-api issue 77).
    """

    def __init__(self) -> None:
        self.held_until = float("-inf")
        self.reason = ""
        self.fault = False
        self.closed_at = 0.0
        self._failures = 0
        self._ask_first = False
        self._probed = False
        self._floods: dict[str, tuple[float, float]] = {}
        self._erred_chat: str | None = None

    @property
    def trying(self) -> bool:
        """Whether only one send at a time may be out."""
        return bool(self.reason)

    @property
    def probe_first(self) -> bool:
        """Whether `getMe` must be asked before the next send."""
        return self._ask_first and not self._probed

    def next_wait(self, jitter: float) -> float:
        """How long the next failure would hold the bot, seconds, up to a tenth longer by jitter."""
        wait = min(FIRST_WAIT_SECONDS * 2.0 ** min(self._failures, 16), LONGEST_WAIT_SECONDS)
        return wait * (1 + jitter / 10)

    def close(self, reason: str, *, fault: bool, now: float, jitter: float, ask_first: bool = False) -> float:
        """Hold the bot after a failure; returns for how many seconds from now.

        With `ask_first`, as after a fault, `getMe` and not a message finds out when it is over.
        While a hold is running, further failures (sends that were already out) do not count again.
        """
        if not self.reason:
            self.closed_at = now
        self.reason = reason
        self.fault = self.fault or fault
        self._ask_first = self._ask_first or fault or ask_first
        self._probed = False
        if now >= self.held_until:
            self.held_until = now + self.next_wait(jitter)
            self._failures += 1
        return self.held_until - now

    def probed(self) -> None:
        """`getMe` was answered well: one send may be tried."""
        self._probed = True

    def server_error(self, chat: str) -> bool:
        """Note a 5xx or a lost answer for `chat`; True when what came before was one for another chat."""
        several = self._erred_chat not in (None, chat)
        self._erred_chat = chat
        return several

    def answered(self) -> None:
        """The Bot API gave an answer that is no 5xx."""
        self._erred_chat = None

    def flooded(self, chat: str, until: float, now: float) -> bool:
        """Note that `chat` was refused by flood control until `until`; True when that makes it the bot."""
        self._floods[chat] = (now, until)
        recent = {c: f for c, f in self._floods.items() if f[0] > now - FLOOD_WINDOW_SECONDS}
        self._floods = recent
        if len(recent) < FLOODED_CHATS:
            return False
        if not self.reason:
            self.closed_at = now
            self.reason = "several chats are flooded together"
        # The soonest of their ends is when the first of them may be tried: their own holds stay longer.
        self.held_until = max(self.held_until, min(f[1] for f in recent.values()))
        self._floods = {}
        return True

    def accepted(self, now: float) -> tuple[str, float] | None:
        """A send was accepted: open. Returns the reason and length (seconds) of what is over, if anything.

        A hold that other chats' answers have set in the meantime is not shortened.
        """
        self._floods = {}
        self._erred_chat = None
        if not self.reason or now < self.held_until:
            return None
        over = (self.reason, now - self.closed_at)
        self.reason = ""
        self.fault = False
        self._ask_first = False
        self._probed = False
        self._failures = 0
        return over
