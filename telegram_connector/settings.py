"""What the connector is told from outside: frozen, checked as a whole, silent about secrets.

``Settings.from_env(mapping)`` reads variables, ``Settings(...)`` reads none; both check the same and report
every fault at once, each beginning with the variable's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # absent from typeshed

from telegram_connector import checks
from telegram_connector.errors import SettingsError

_TELEGRAM = "api.telegram.org"
_MOST_WORKERS = 256  # each is a thread and a connection; Telegram's paid 1000 a second need fewer


@dataclass(frozen=True)
class _Rule:
    """How one field is read and checked.

    Attributes:
        names: Its variables, the one that faults name first.
        read: Text of the environment to value.
        check: Value to normalised value; also what ``Settings(...)`` goes through.
    """

    names: tuple[str, ...]
    read: Callable[[str], Any]
    check: Callable[[Any], Any]


def _setting(
    *names: str, default: Any, check: Callable[[Any], Any], read: Any = str, shown: bool = True
) -> Any:
    return field(default=default, repr=shown, metadata={"rule": _Rule(names, read, check)})


def _rule(item: Field[Any]) -> _Rule:
    rule: _Rule = item.metadata["rule"]
    return rule


@dataclass(frozen=True, kw_only=True)
class NatsSettings:
    """What it takes to reach NATS: enough for the bridge, a publisher and the command line.

    Attributes:
        nats_url: Servers, parted by commas, ``nats://`` or ``tls://``.
        nats_nkey_seed: Seed of our nkey user.
        nats_creds: Text of a credentials file.
        nats_creds_file: Path of one.
        nats_auth: ``"none"`` where there is no authentication on purpose.
        nats_ca: PEM text, or the path of a PEM file, of the authority that signed the server's certificate.
        durable: Name of the durable consumer.
        stream: Name of the stream.
        subject: What the consumer filters on, and where to publish to.
        ack_wait_seconds: How long a delivery is ours before JetStream hands it out again.
        max_pending: How many deliveries may be unsettled at a time.
        takeover_seconds: After how long a silence of the active connector another one takes over.
        dead_stream: Name of the stream of dead letters.
        dead_subject: Where dead letters are published.
        alert_subject: Where events for operators are published.
        ledger_retention_days: How long the ledger keeps a record after its last change.
        status_subject: Where connectors are asked how they are, followed by a dot and the durable's name.
        heartbeat_subject: Where connectors say that they live, followed likewise.

    Raises:
        SettingsError: Anything is missing or wrong; lists every fault.
    """

    nats_url: str = _setting("NATS_URL", default="", check=checks.nats_url, shown=False)
    nats_nkey_seed: str | None = _setting(
        "NATS_TELEGRAM_NKEY_SEED", default=None, check=checks.optional(checks.user_seed), shown=False
    )
    nats_creds: str | None = _setting(
        "NATS_CREDS", default=None, check=checks.optional(checks.creds), shown=False
    )
    nats_creds_file: str | None = _setting(
        "NATS_CREDS_FILE", default=None, check=checks.optional(checks.creds_file)
    )
    nats_auth: str | None = _setting("NATS_AUTH", default=None, check=checks.optional(checks.one_of("none")))
    nats_ca: str | None = _setting(
        "NATS_CA", default=None, check=checks.optional(checks.authority), shown=False
    )
    durable: str = _setting("TG_DURABLE_NAME", default="tg_outbound", check=checks.jetstream_name)
    stream: str = _setting("TG_STREAM", default="TELEGRAM_OUTBOUND", check=checks.jetstream_name)
    subject: str = _setting("TG_SUBJECT", default="telegram.outbound", check=checks.subject)
    ack_wait_seconds: float = _setting(
        "TG_ACK_WAIT_SECS", default=60.0, check=checks.seconds(1), read=checks.read_number
    )
    max_pending: int = _setting(
        "TG_MAX_PENDING", default=10_000, check=checks.whole(1), read=checks.read_whole
    )
    takeover_seconds: float = _setting(
        "TG_STANDBY_TAKEOVER_SECS", default=15.0, check=checks.seconds(1), read=checks.read_number
    )
    dead_stream: str = _setting("TG_DEAD_STREAM", default="TELEGRAM_DEAD", check=checks.jetstream_name)
    dead_subject: str = _setting("TG_DEAD_SUBJECT", default="telegram.dead", check=checks.plain_subject)
    alert_subject: str = _setting("TG_ALERT_SUBJECT", default="telegram.alerts", check=checks.plain_subject)
    ledger_retention_days: int = _setting(
        "TG_LEDGER_RETENTION_DAYS", default=30, check=checks.whole(1), read=checks.read_whole
    )
    status_subject: str = _setting("TG_STATUS_SUBJECT", default="telegram.status", check=checks.plain_subject)
    heartbeat_subject: str = _setting(
        "TG_HEARTBEAT_SUBJECT", default="telegram.heartbeat", check=checks.plain_subject
    )

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> NatsSettings:
        """Read the settings from ``env``; a variable that is empty or white space counts as unset.

        Raises:
            SettingsError: Anything is missing or wrong; lists every fault.
        """
        return cls(**_read(cls, env))

    def __post_init__(self) -> None:
        faults = []
        for item in fields(self):
            rule = _rule(item)
            try:
                object.__setattr__(self, item.name, rule.check(getattr(self, item.name)))
            except checks.ValueFaultError as fault:
                faults.append(f"{rule.names[0]} {fault}")
        faults += self._joint_faults({fault.split(" ", 1)[0] for fault in faults})
        if faults:
            raise SettingsError(_in_order(type(self), faults))

    def _joint_faults(self, at_fault: set[str]) -> list[str]:
        """Return what only shows when several fields are seen together.

        Args:
            at_fault: Variables that are known to be wrong by themselves; nothing is derived from them.
        """
        ways = [
            rule.names[0]
            for item in fields(self)
            if (rule := _rule(item)).names[0] in _AUTH_VARIABLES and getattr(self, item.name)
        ]
        if "NATS_URL" not in at_fault and any(checks.passwords_in(url) for url in self.nats_servers):
            ways.insert(0, "NATS_URL")
        if len(ways) > 1:
            how = [f"{name} (credentials in it)" if name == "NATS_URL" else name for name in ways]
            return [f"{' and '.join(how)} contradict each other: give one way to log in to NATS"]
        if not ways and not at_fault & {"NATS_URL", *_AUTH_VARIABLES}:
            return [
                "NATS_TELEGRAM_NKEY_SEED is not set, and neither is NATS_CREDS, NATS_CREDS_FILE "
                "or credentials in NATS_URL; NATS_AUTH=none says that the server wants none"
            ]
        return []

    @property
    def nats_servers(self) -> tuple[str, ...]:
        """The servers one by one, credentials included."""
        return tuple(self.nats_url.split(",")) if self.nats_url else ()

    @property
    def nats_hosts(self) -> tuple[str, ...]:
        """Host and port of each server, without credentials."""
        return tuple(urlsplit(url).netloc.rpartition("@")[2] for url in self.nats_servers)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value that logs must be scrubbed of."""
        found = [self.nats_nkey_seed or "", self.nats_creds or ""]
        for section in (checks.JWT_SECTION, checks.SEED_SECTION):
            found += section.findall(self.nats_creds or "")
        for url in self.nats_servers:
            found += checks.passwords_in(url)
        return tuple(dict.fromkeys(secret for secret in found if secret))


_AUTH_VARIABLES = ("NATS_TELEGRAM_NKEY_SEED", "NATS_CREDS", "NATS_CREDS_FILE", "NATS_AUTH")


@dataclass(frozen=True, kw_only=True)
class Settings(NatsSettings):
    """Everything the relay is told.

    Without a bot token or a NATS URL it is dormant: nothing else is checked and nothing raised.

    Attributes:
        bot_token: The bot's token.
        chat_id: Chat of envelopes that name none, and of alerts: decimal or ``@name``.
        api_base_url: Bot API server, without a trailing slash.
        allow_http: Whether plain http may go to another host than this one.
        max_deliver: Failed attempts after which a message is given up.
        nak_backoff_seconds: Wait after the first failed attempt; it doubles with each further one.
        drain_seconds: Budget of a stop.
        max_age_seconds: Age after which a message is not sent any more; None for the stream's own limit.
        workers: Sender threads: how many sends may be under way at once, never two to one chat.
        pacing: Whether sends are kept apart before Telegram refuses them, at the three rates.
        bot_rate: Messages a second of the bot.
        chat_rate: Messages a second to one chat, after a burst of three.
        group_rate_per_minute: Messages a minute to one group or channel, evenly spread.
        ledger: ``kv`` keeps a record of each delivery in JetStream KV, ``off`` none.
        on_ambiguous: What becomes of a message of which nobody knows whether it was sent, unless its envelope
            says so itself: ``retry`` may show it twice, ``park`` leaves it to an operator.
        parse_fallback: ``plain`` sends a message whose markup Telegram cannot parse once more as its plain
            text, ``off`` does not.
        meta_alert_on_drop: Whether drops are told to ``chat_id``.
        metrics_port: Where metrics, ``/healthz`` and ``/readyz`` are served over HTTP; None for nowhere.
        metrics_host: The address that is listened on for them.
        stats_log_seconds: How often a log line tells the figures of the last while; 0 for never.
        log_level: ``DEBUG``, ``INFO``, ``WARNING`` or ``ERROR``.
        log_format: ``json`` or ``text``.
        https_proxy: Proxy towards the Bot API; ``proxy_url`` says whether it is used.
        no_proxy: Hosts that are reached without it, parted by commas.
        ca_bundle: File or directory of authorities that the Bot API's certificate is checked against.
    """

    bot_token: str = _setting("TELEGRAM_BOT_TOKEN", default="", check=checks.bot_token, shown=False)
    chat_id: str = _setting("TELEGRAM_CHAT_ID", default="", check=checks.chat_id)
    api_base_url: str = _setting(
        "TELEGRAM_API_BASE_URL", default=f"https://{_TELEGRAM}", check=checks.api_base_url, shown=False
    )
    allow_http: bool = _setting("TG_ALLOW_HTTP", default=False, check=checks.flag, read=checks.read_flag)
    max_deliver: int = _setting("TG_MAX_DELIVER", default=5, check=checks.whole(1), read=checks.read_whole)
    nak_backoff_seconds: float = _setting(
        "TG_NAK_BACKOFF_SECS", default=30.0, check=checks.seconds(0, above=True), read=checks.read_number
    )
    drain_seconds: float = _setting(
        "TG_DRAIN_SECS", default=25.0, check=checks.seconds(0), read=checks.read_number
    )
    max_age_seconds: float | None = _setting(
        "TG_MAX_AGE_SECS", default=None, check=checks.maybe(checks.seconds(1)), read=checks.read_number
    )
    workers: int = _setting(
        "TG_WORKERS", default=1, check=checks.whole(1, _MOST_WORKERS), read=checks.read_whole
    )
    pacing: bool = _setting("TG_PACING", default=False, check=checks.flag, read=checks.read_flag)
    bot_rate: float = _setting("TG_BOT_RATE", default=30.0, check=checks.rate, read=checks.read_rate)
    chat_rate: float = _setting("TG_CHAT_RATE", default=1.0, check=checks.rate, read=checks.read_rate)
    group_rate_per_minute: float = _setting(
        "TG_GROUP_RATE_PER_MIN", default=20.0, check=checks.rate, read=checks.read_rate
    )
    ledger: str = _setting("TG_LEDGER", default="off", check=checks.one_of("off", "kv"))
    on_ambiguous: str = _setting("TG_ON_AMBIGUOUS", default="retry", check=checks.one_of("retry", "park"))
    parse_fallback: str = _setting("TG_PARSE_FALLBACK", default="off", check=checks.one_of("off", "plain"))
    meta_alert_on_drop: bool = _setting(
        "META_ALERT_ON_DROP", default=True, check=checks.flag, read=checks.read_flag
    )
    metrics_port: int | None = _setting(
        "TG_METRICS_PORT", default=None, check=checks.maybe(checks.metrics_port), read=checks.read_whole
    )
    metrics_host: str = _setting("TG_METRICS_HOST", default="127.0.0.1", check=checks.address)
    stats_log_seconds: float = _setting(
        "TG_STATS_LOG_SECS", default=60.0, check=checks.seconds(0), read=checks.read_number
    )
    log_level: str = _setting(
        "LOG_LEVEL", default="INFO", check=checks.one_of("DEBUG", "INFO", "WARNING", "ERROR")
    )
    log_format: str = _setting("LOG_FORMAT", default="json", check=checks.one_of("json", "text"))
    https_proxy: str | None = _setting(
        "HTTPS_PROXY",
        "https_proxy",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
        default=None,
        check=checks.optional(str),
        shown=False,
    )
    no_proxy: str | None = _setting("NO_PROXY", "no_proxy", default=None, check=checks.optional(str))
    ca_bundle: str | None = _setting(
        "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", default=None, check=checks.optional(str)
    )

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read the settings from ``env``; a variable that is empty or white space counts as unset.

        Raises:
            SettingsError: Not dormant, and anything is missing or wrong; lists every fault.
        """
        return cls(**_read(cls, env))

    def __post_init__(self) -> None:
        if self.dormant:
            return
        super().__post_init__()

    def _joint_faults(self, at_fault: set[str]) -> list[str]:
        faults = super()._joint_faults(at_fault)
        if self.on_ambiguous == "park" and self.ledger == "off" and "TG_LEDGER" not in at_fault:
            faults.append("TG_ON_AMBIGUOUS=park needs TG_LEDGER=kv: what is in doubt must be on record")
        if "TELEGRAM_API_BASE_URL" in at_fault:
            return faults
        api = urlsplit(self.api_base_url)
        if api.scheme == "http" and not self.allow_http and not checks.is_loopback(api.hostname or ""):
            faults.append(
                "TELEGRAM_API_BASE_URL must begin with https://: over http the token can be read on the way. "
                "TG_ALLOW_HTTP=1 allows it to a host other than this one"
            )
        if not at_fault & {"HTTPS_PROXY", "NO_PROXY"} and self.proxy_url:
            try:
                checks.proxy(self.proxy_url)
            except checks.ValueFaultError as fault:
                faults.append(f"{api.scheme.upper()}_PROXY (or ALL_PROXY) {fault}")
        if "REQUESTS_CA_BUNDLE" not in at_fault and self.ca_bundle and api.scheme == "https":
            try:
                checks.readable_path(self.ca_bundle)
            except checks.ValueFaultError as fault:
                faults.append(f"REQUESTS_CA_BUNDLE (or CURL_CA_BUNDLE) {fault}")
        return faults

    @property
    def dormant(self) -> tuple[str, ...]:
        """Which of the two variables that wake the relay are missing; empty when it is to run."""
        pairs = (("TELEGRAM_BOT_TOKEN", self.bot_token), ("NATS_URL", self.nats_url))
        return tuple(name for name, value in pairs if value is None or not str(value).strip())

    @property
    def api_is_telegram(self) -> bool:
        """Whether messages go to Telegram's own server, to real chats."""
        return (urlsplit(self.api_base_url).hostname or "") == _TELEGRAM

    @property
    def proxy_url(self) -> str | None:
        """The proxy that the Bot API is reached through, credentials included; None for none."""
        api = urlsplit(self.api_base_url)
        host = api.hostname or ""
        if not self.https_proxy or checks.is_loopback(host):
            return None
        # With its port, so that NO_PROXY may name one; the function looks at its arguments only.
        if proxy_bypass_environment(api.netloc if api.port else host, {"no": self.no_proxy or ""}):
            return None
        return self.https_proxy if "://" in self.https_proxy else f"http://{self.https_proxy}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value that logs must be scrubbed of."""
        proxy = self.https_proxy or ""
        of_proxy = checks.passwords_in(proxy if "://" in proxy else f"http://{proxy}")
        return tuple(dict.fromkeys((*filter(None, (self.bot_token,)), *super().secrets, *of_proxy)))


@dataclass(frozen=True, kw_only=True)
class ConsoleSettings(NatsSettings):
    """What the operator's page is told.

    Attributes:
        token: What opens the page where it is not bound to this machine alone; never the bot's.
        port: Where a platform wants it served, on all addresses; None for nowhere in particular.
        log_level: ``DEBUG``, ``INFO``, ``WARNING`` or ``ERROR``.
        log_format: ``json`` or ``text``.
    """

    token: str | None = _setting(
        "TG_CONSOLE_TOKEN", default=None, check=checks.optional(checks.console_token), shown=False
    )
    port: int | None = _setting(
        "PORT", default=None, check=checks.maybe(checks.whole(1, 65_535)), read=checks.read_whole
    )
    log_level: str = _setting(
        "LOG_LEVEL", default="INFO", check=checks.one_of("DEBUG", "INFO", "WARNING", "ERROR")
    )
    log_format: str = _setting("LOG_FORMAT", default="json", check=checks.one_of("json", "text"))

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> ConsoleSettings:
        """Read the settings from ``env``; a variable that is empty or white space counts as unset.

        Raises:
            SettingsError: Anything is missing or wrong; lists every fault.
        """
        return cls(**_read(cls, env))

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value that logs must be scrubbed of."""
        return tuple(dict.fromkeys((*filter(None, (self.token,)), *super().secrets)))


def variables(cls: type[NatsSettings]) -> tuple[str, ...]:
    """Return every environment variable that ``cls.from_env`` looks at."""
    return tuple(name for item in fields(cls) for name in _rule(item).names)


def unknown_variables(env: Iterable[str]) -> tuple[str, ...]:
    """Return the names in ``env`` that look like ours (``TG_``) but are no setting: probably typos."""
    known = {*variables(Settings), *variables(ConsoleSettings)}
    return tuple(sorted(name for name in env if name.startswith("TG_") and name not in known))


def _read(cls: type[NatsSettings], env: Mapping[str, str]) -> dict[str, Any]:
    """Turn variables into arguments of ``cls``.

    Raises:
        SettingsError: A value cannot be read, unless the settings are dormant.
    """
    found: dict[str, Any] = {}
    faults = []
    for item in fields(cls):
        rule = _rule(item)
        text = _proxy_from(env) if item.name == "https_proxy" else _first(env, rule.names)
        if not text:
            continue
        try:
            found[item.name] = rule.read(text)
        except checks.ValueFaultError as fault:
            faults.append(f"{rule.names[0]} {fault}")
    if issubclass(cls, Settings) and not (found.get("bot_token") and found.get("nats_url")):
        return {name: _sound(cls, name, value) for name, value in found.items()}
    if faults:
        try:
            cls(**found)
        except SettingsError as error:
            faults += error.faults
        raise SettingsError(_in_order(cls, faults))
    return found


def _sound(cls: type[NatsSettings], name: str, value: Any) -> Any:
    """Return a dormant setting, or its default where it is wrong: the log is still set up by it."""
    item = next(item for item in fields(cls) if item.name == name)
    try:
        return _rule(item).check(value)
    except checks.ValueFaultError:
        # These two are kept, so that `dormant` does not call them unset.
        return value if name in ("bot_token", "nats_url") else item.default


def _first(env: Mapping[str, str], names: Iterable[str]) -> str:
    return next((text for name in names if (text := env.get(name, "").strip())), "")


def _proxy_from(env: Mapping[str, str]) -> str:
    """Return the proxy for the Bot API's scheme, else the one for all; lower case wins, as in urllib."""
    scheme = "http" if env.get("TELEGRAM_API_BASE_URL", "").strip().lower().startswith("http:") else "https"
    return _first(env, (f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY"))


def _in_order(cls: type[NatsSettings], faults: Iterable[str]) -> list[str]:
    """Sort faults as their variables are listed."""
    known = variables(cls)
    return sorted(faults, key=lambda fault: known.index(re.split(r"\W", fault, maxsplit=1)[0]))
