"""What the connector is told from outside."""

from __future__ import annotations

import base64
import importlib.util
from pathlib import Path

import nkeys
import pytest

from telegram_connector.errors import SettingsError
from telegram_connector.settings import NatsSettings, Settings, unknown_variables, variables

TOKEN = "123456789:AAF-secret_secret_secret_secret_sec"


def seed_of(prefix: int) -> str:
    return nkeys.encode_seed(bytes(range(32)), prefix).decode()


SEED = seed_of(nkeys.PREFIX_BYTE_USER)
PUBLIC = nkeys.from_seed(bytearray(SEED, "ascii")).public_key.decode()
CREDS = (
    "-----BEGIN NATS USER JWT-----\neyJ0eXAi.eyJqdGki.c2ln\n------END NATS USER JWT------\n\n"
    f"-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
)
NATS = {"NATS_URL": "nats://n1:4222", "NATS_TELEGRAM_NKEY_SEED": SEED}
ENV = {**NATS, "TELEGRAM_BOT_TOKEN": TOKEN, "TELEGRAM_CHAT_ID": "-1001234567890"}


def settings(**changes: str) -> Settings:
    return Settings.from_env({**ENV, **changes})


def faults(**changes: str | None) -> tuple[str, ...]:
    """Return the faults of a good environment with these changes (None: unset)."""
    env = {name: value for name, value in {**ENV, **changes}.items() if value is not None}
    with pytest.raises(SettingsError) as caught:
        Settings.from_env(env)
    return caught.value.faults


def test_the_defaults():
    assert settings() == Settings(
        nats_url="nats://n1:4222",
        nats_nkey_seed=SEED,
        nats_creds=None,
        nats_creds_file=None,
        nats_auth=None,
        nats_ca=None,
        durable="tg_outbound",
        stream="TELEGRAM_OUTBOUND",
        subject="telegram.outbound",
        ack_wait_seconds=60.0,
        max_pending=10_000,
        bot_token=TOKEN,
        chat_id="-1001234567890",
        api_base_url="https://api.telegram.org",
        allow_http=False,
        max_deliver=5,
        nak_backoff_seconds=30.0,
        drain_seconds=25.0,
        workers=1,
        pacing=False,
        bot_rate=30.0,
        chat_rate=1.0,
        group_rate_per_minute=20.0,
        log_level="INFO",
        log_format="json",
        https_proxy=None,
        no_proxy=None,
        ca_bundle=None,
    )


def test_every_fault_is_told_at_once_and_no_value():
    found = faults(
        NATS_URL="http://sekret1@n1:4222",
        NATS_TELEGRAM_NKEY_SEED=SEED[:-1],
        TG_ACK_WAIT_SECS="sekret2",
        TG_MAX_PENDING="0",
        TELEGRAM_BOT_TOKEN="sekret3",
        TELEGRAM_CHAT_ID="sekret 4",
        TELEGRAM_API_BASE_URL="https://u:sekret5@host",
        TG_MAX_DELIVER="x",
        TG_ALLOW_HTTP="maybe",
        TG_DRAIN_SECS="-1",
        LOG_LEVEL="LOUD",
        LOG_FORMAT="xml",
        TG_SUBJECT="a..b",
        TG_STREAM="a.b",
        TG_DURABLE_NAME="a b",
    )
    assert [fault.split(" ", 1)[0] for fault in found] == [
        "NATS_URL",
        "NATS_TELEGRAM_NKEY_SEED",
        "TG_DURABLE_NAME",
        "TG_STREAM",
        "TG_SUBJECT",
        "TG_ACK_WAIT_SECS",
        "TG_MAX_PENDING",
        "TELEGRAM_BOT_TOKEN",
        "TELEGRAM_CHAT_ID",
        "TELEGRAM_API_BASE_URL",
        "TG_ALLOW_HTTP",
        "TG_MAX_DELIVER",
        "TG_DRAIN_SECS",
        "LOG_LEVEL",
        "LOG_FORMAT",
    ]
    assert not any(word in " ".join(found) for word in ("ekret", "host", SEED[:10], "LOUD", "http://"))


def test_an_embedding_program_gets_the_same_faults_and_no_environment(monkeypatch):
    monkeypatch.setenv("TELEGRAM_CHAT_ID", "5")
    with pytest.raises(SettingsError) as caught:
        Settings(bot_token=TOKEN, nats_url="n1", nats_nkey_seed=SEED, max_pending="7", log_level=3)
    assert [fault.split(" ", 1)[0] for fault in caught.value.faults] == [
        "TG_MAX_PENDING",
        "TELEGRAM_CHAT_ID",
        "LOG_LEVEL",
    ]


def test_wrong_types_are_faults_and_never_crash():
    for name in Settings.__dataclass_fields__:
        good = {"bot_token": TOKEN, "chat_id": "5", "nats_url": "n1", "nats_auth": "none"}
        with pytest.raises(SettingsError):
            Settings(**{**good, name: object()})


def test_they_are_frozen():
    with pytest.raises(AttributeError):
        settings().max_deliver = 6  # type: ignore[misc]


# --- dormant -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", [None, "", " \n"])
@pytest.mark.parametrize(
    "missing", [("TELEGRAM_BOT_TOKEN",), ("NATS_URL",), ("TELEGRAM_BOT_TOKEN", "NATS_URL")]
)
def test_dormant(missing, empty):
    env = {**ENV, "TG_MAX_PENDING": "x", "LOG_LEVEL": "LOUD", "LOG_FORMAT": "TEXT", "TG_ACK_WAIT_SECS": "-1"}
    for name in missing:
        del env[name]
        if empty is not None:
            env[name] = empty
    found = Settings.from_env(env)
    assert found.dormant == missing
    # The log is set up all the same, so this must be sound.
    assert (found.log_level, found.log_format) == ("INFO", "text")


def test_a_dormant_setting_may_be_wrong_in_every_way():
    found = Settings.from_env(
        {"NATS_URL": "nats://u:sekret@[bad", "TELEGRAM_API_BASE_URL": "https://sekret@x"}
    )
    assert found.dormant == ("TELEGRAM_BOT_TOKEN",)
    assert "sekret" not in repr(found)
    assert "sekret" in found.secrets
    assert Settings().dormant == ("TELEGRAM_BOT_TOKEN", "NATS_URL")


def test_awake():
    assert settings().dormant == ()


def test_nats_settings_alone_need_a_url():
    with pytest.raises(SettingsError) as caught:
        NatsSettings.from_env({"NATS_TELEGRAM_NKEY_SEED": SEED})
    assert caught.value.faults == ("NATS_URL is not set",)


# --- NATS --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("n1:4222", ("nats://n1:4222",)),
        ("tls://n1", ("tls://n1",)),
        ("nats://n1:4222/, [::1]:4223 ,", ("nats://n1:4222", "nats://[::1]:4223")),
    ],
)
def test_nats_servers(url, servers):
    assert settings(NATS_URL=url).nats_servers == servers


@pytest.mark.parametrize(
    "url",
    [
        "http://n1:4222",
        "ws://n1",
        "nats://",
        "nats://n1:x",
        "nats://n1:0",
        "nats://n1:70000",
        "nats://n 1",
        ",",
        "nats://n1/x",
        "nats://n1?x=1",
        "nats://[bad",
        "nats://u:p@n1,nats://n2",
    ],
)
def test_wrong_nats_urls(url):
    (fault,) = faults(NATS_URL=url, NATS_TELEGRAM_NKEY_SEED=None)
    assert fault.startswith("NATS_URL ")
    assert "n1" not in fault


@pytest.mark.parametrize(
    "way",
    [
        {"NATS_TELEGRAM_NKEY_SEED": f" {SEED}\n"},
        {"NATS_CREDS": CREDS},
        {"NATS_AUTH": "none"},
        {"NATS_URL": "nats://user:pass@n1"},
        {"NATS_URL": "nats://token@n1"},
    ],
)
def test_one_way_to_log_in_is_enough(way):
    NatsSettings.from_env({"NATS_URL": "n1", **way})


def test_a_seed_is_stripped():
    assert settings(NATS_TELEGRAM_NKEY_SEED=f" {SEED}\n").nats_nkey_seed == SEED


def test_no_way_to_log_in():
    (fault,) = faults(NATS_TELEGRAM_NKEY_SEED="  ")
    assert fault.startswith("NATS_TELEGRAM_NKEY_SEED is not set")
    assert all(name in fault for name in ("NATS_CREDS", "NATS_CREDS_FILE", "NATS_URL", "NATS_AUTH=none"))


@pytest.mark.parametrize(
    ("second", "named"),
    [
        ({"NATS_CREDS": CREDS}, "NATS_TELEGRAM_NKEY_SEED and NATS_CREDS "),
        ({"NATS_AUTH": "none"}, "NATS_TELEGRAM_NKEY_SEED and NATS_AUTH "),
        ({"NATS_URL": "nats://u:sekret@n1"}, "NATS_URL (credentials in it) and NATS_TELEGRAM_NKEY_SEED "),
    ],
)
def test_two_ways_to_log_in_contradict_each_other(second, named):
    (fault,) = faults(**second)
    assert fault.startswith(named)
    assert "sekret" not in fault


def test_a_creds_file(tmp_path: Path):
    file = tmp_path / "user.creds"
    file.write_text(CREDS)
    found = settings(NATS_TELEGRAM_NKEY_SEED="", NATS_CREDS_FILE=str(file))
    assert found.nats_creds_file == str(file)
    (fault,) = faults(NATS_TELEGRAM_NKEY_SEED=None, NATS_CREDS_FILE=str(tmp_path / "absent"))
    assert fault == "NATS_CREDS_FILE names a file that cannot be read (No such file or directory)"
    file.write_text("nothing")
    (fault,) = faults(NATS_TELEGRAM_NKEY_SEED=None, NATS_CREDS_FILE=str(file))
    assert fault.startswith("NATS_CREDS_FILE is not a NATS credentials file")


def swapped(text: str, at: int) -> str:
    """Return the seed with one character mistyped."""
    return text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]


@pytest.mark.parametrize(
    ("seed", "words"),
    [
        (SEED[:-3], "is cut short: 55 of 58 characters"),
        (SEED + "A", "is too long: 59 of 58 characters"),
        (SEED.lower(), "lower-case"),
        (f'"{SEED}"', "quotes"),
        (SEED[:20] + " " + SEED[20:], "white space"),
        (SEED + "\\n", "white space or a backslash"),
        (SEED[:20] + "1" + SEED[21:], "characters that no seed has"),
        (PUBLIC, "is a public key"),
        (seed_of(nkeys.PREFIX_BYTE_ACCOUNT), "is the seed of an account"),
        (seed_of(nkeys.PREFIX_BYTE_SERVER), "is the seed of a server"),
        (seed_of(nkeys.PREFIX_BYTE_OPERATOR), "is the seed of an operator"),
        ("SZ" + SEED[2:], "is not a seed"),
        ("P" + SEED[1:], "is not a seed"),
        ("none", "lower-case"),
        (swapped(SEED, 30), "checksum"),
        (swapped(SEED, 56), "checksum"),
        (swapped(SEED, 2), "checksum"),
        # Two spare bits of the last character are not part of the key.
        (SEED[:-1] + chr(ord(SEED[-1]) + 1), "checksum"),
    ],
)
def test_what_is_wrong_with_a_seed_is_said_in_words(seed, words):
    (fault,) = faults(NATS_TELEGRAM_NKEY_SEED=seed)
    assert fault.startswith("NATS_TELEGRAM_NKEY_SEED ")
    assert words in fault
    assert seed not in fault
    (fault,) = faults(NATS_TELEGRAM_NKEY_SEED=None, NATS_CREDS=CREDS.replace(SEED, seed))
    assert fault.startswith("NATS_CREDS ")


def test_every_mistyped_character_is_noticed():
    for at in range(len(SEED)):
        assert len(faults(NATS_TELEGRAM_NKEY_SEED=swapped(SEED, at))) == 1


def test_real_seeds_pass():
    for first in range(64):
        seed = nkeys.encode_seed(bytes([first] * 32), nkeys.PREFIX_BYTE_USER).decode()
        nkeys.from_seed(bytearray(seed, "ascii"))
        assert settings(NATS_TELEGRAM_NKEY_SEED=seed).nats_nkey_seed == seed


@pytest.mark.parametrize(
    ("creds", "words"),
    [
        (CREDS.replace("\n", "\\n"), "line ends"),
        (SEED, "is not a NATS credentials file"),
        (CREDS.replace("USER JWT", "USER"), "is not a NATS credentials file"),
    ],
)
def test_wrong_creds(creds, words):
    (fault,) = faults(NATS_TELEGRAM_NKEY_SEED=None, NATS_CREDS=creds)
    assert fault.startswith("NATS_CREDS ")
    assert words in fault


def test_nats_ca(tmp_path: Path):
    import certifi

    everything = Path(certifi.where()).read_text("utf-8")
    end = "-----END CERTIFICATE-----"
    pem = everything[everything.index("-----BEGIN") : everything.index(end) + len(end)]
    assert settings(NATS_CA=pem).nats_ca == pem
    file = tmp_path / "ca.pem"
    file.write_text(pem)
    assert settings(NATS_CA=str(file)).nats_ca == str(file)
    assert faults(NATS_CA=str(tmp_path)) == ("NATS_CA names a file that cannot be read (Is a directory)",)
    assert faults(NATS_CA="-----BEGIN CERTIFICATE-----\nx") == ("NATS_CA holds no certificates in PEM form",)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a*", "a>", "a/b", "a\\b", "a\tb", "x" * 256])
def test_names_that_jetstream_refuses(name):
    good = {"nats_url": "n1", "nats_auth": "none"}
    for field, variable in (("durable", "TG_DURABLE_NAME"), ("stream", "TG_STREAM")):
        with pytest.raises(SettingsError, match=f"^{variable} "):
            NatsSettings(**good, **{field: name})


@pytest.mark.parametrize("subject", ["a", "telegram.*.x", "telegram.>", ">", "*", "a.b-c_d"])
def test_subjects(subject):
    assert settings(TG_SUBJECT=subject).subject == subject


@pytest.mark.parametrize("subject", ["a..b", ".a", "a.", "a b", "a*", "a.>.b", "a.b>", "a.\x01"])
def test_wrong_subjects(subject):
    assert [fault.split()[0] for fault in faults(TG_SUBJECT=subject)] == ["TG_SUBJECT"]


# --- numbers, words, flags ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "good", "wrong"),
    [
        ("TG_ACK_WAIT_SECS", ["1", "2.5", "1e2"], ["0.9", "nan", "inf", "1e12", "x", "-1"]),
        ("TG_MAX_PENDING", ["1", "+7"], ["0", "-1", "1.0", "1_000", "x", "9" * 17, "9" * 5000, "１"]),
        ("TG_MAX_DELIVER", ["1"], ["0"]),
        ("TG_WORKERS", ["1", "32", "256"], ["0", "-1", "1.5", "257", "many"]),
        ("TG_PACING", ["on", "off", "1"], ["fast", "30"]),
        ("TG_BOT_RATE", ["30", "0.5", "1000"], ["0", "-1", "nan", "inf", "30/s", "10001"]),
        ("TG_CHAT_RATE", ["1", "0.01"], ["0", "0.001", "x"]),
        ("TG_GROUP_RATE_PER_MIN", ["20", "7.5"], ["0", "x"]),
        ("TG_NAK_BACKOFF_SECS", ["0.1"], ["0", "-1", "nan"]),
        ("TG_DRAIN_SECS", ["0", "25"], ["-0.1", "inf"]),
        ("TG_ALLOW_HTTP", ["1", "0", "TRUE", "no", "on", "off", "Yes", "false"], ["2", "ja"]),
        ("LOG_LEVEL", ["debug", "Info", "WARNING", "error"], ["LOUD", "10"]),
        ("LOG_FORMAT", ["JSON", "text"], ["xml"]),
        (
            "TELEGRAM_CHAT_ID",
            ["5", "-1001234567890", "@some_chat"],
            ["0", "+5", "05", "@abc", "@a-bcd", "9" * 19, "x"],
        ),
        (
            "TELEGRAM_BOT_TOKEN",
            [f" {TOKEN}\n"],
            [f"bot{TOKEN}", TOKEN[:20], "0" + TOKEN, TOKEN + "x" * 50, TOKEN + "/"],
        ),
    ],
)
def test_values(variable, good, wrong):
    for value in good:
        settings(**{variable: value})
    for value in wrong:
        (fault,) = faults(**{variable: value})
        assert fault.startswith(f"{variable} ")
        assert len(value) < 3 or value not in fault


def test_values_are_normalised():
    found = settings(
        LOG_LEVEL="debug", LOG_FORMAT="TEXT", TELEGRAM_BOT_TOKEN=f"{TOKEN}\n", TG_ALLOW_HTTP="on"
    )
    assert (found.log_level, found.log_format, found.bot_token) == ("DEBUG", "text", TOKEN)
    assert found.allow_http is True


# --- the Bot API -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "is_telegram"),
    [
        ("https://api.telegram.org/", True),
        ("https://API.telegram.org", True),
        ("https://bots.example:8443/prefix/", False),
        ("http://localhost:8081", False),
        ("http://127.8.9.1:8081", False),
        ("http://[::1]:8081", False),
    ],
)
def test_api_base_urls(url, is_telegram):
    found = settings(TELEGRAM_API_BASE_URL=url)
    assert found.api_base_url == url.rstrip("/")
    assert found.api_is_telegram is is_telegram


@pytest.mark.parametrize(
    "url",
    [
        "ftp://h",
        "api.telegram.org",
        "https://",
        "https://u@h",
        "https://h?x",
        "https://h#x",
        "https://h?",
        "https://h h",
        "http://bots.example",
        "http://128.0.0.1",
        f"https://h/bot{TOKEN}",
        "https://h/bot",
        "https://h:x",
    ],
)
def test_wrong_api_base_urls(url):
    (fault,) = faults(TELEGRAM_API_BASE_URL=url)
    assert fault.startswith("TELEGRAM_API_BASE_URL ")
    assert TOKEN not in fault


def test_plain_http_must_be_allowed_outright():
    (fault,) = faults(TELEGRAM_API_BASE_URL="http://bots.example")
    assert "TG_ALLOW_HTTP=1" in fault
    settings(TELEGRAM_API_BASE_URL="http://bots.example", TG_ALLOW_HTTP="1")


PROXY = "http://me:sekret@proxy:3128"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, None),
        ({"HTTPS_PROXY": PROXY}, PROXY),
        ({"https_proxy": PROXY, "HTTPS_PROXY": "http://other"}, PROXY),
        ({"ALL_PROXY": PROXY}, PROXY),
        ({"all_proxy": "http://other", "HTTPS_PROXY": PROXY}, PROXY),
        ({"HTTP_PROXY": PROXY}, None),
        ({"HTTPS_PROXY": "proxy:3128"}, "http://proxy:3128"),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "x.org, .telegram.org"}, None),
        ({"HTTPS_PROXY": PROXY, "no_proxy": "*"}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "example.org"}, PROXY),
        ({"HTTPS_PROXY": PROXY, "TELEGRAM_API_BASE_URL": "https://localhost:8081"}, None),
        ({"HTTPS_PROXY": PROXY, "TELEGRAM_API_BASE_URL": "http://h", "TG_ALLOW_HTTP": "1"}, None),
        ({"http_proxy": PROXY, "TELEGRAM_API_BASE_URL": "http://h", "TG_ALLOW_HTTP": "1"}, PROXY),
        (
            {"HTTPS_PROXY": PROXY, "TELEGRAM_API_BASE_URL": "https://h:8443", "NO_PROXY": "h:8443"},
            None,
        ),
    ],
)
def test_proxy_url(env, expected):
    assert settings(**env).proxy_url == expected


def test_wrong_proxies():
    assert [fault.split()[0] for fault in faults(HTTPS_PROXY="ftp://sekret")] == ["HTTPS_PROXY"]
    assert [fault.split()[0] for fault in faults(ALL_PROXY="http://h:x")] == ["HTTPS_PROXY"]
    # One that is not used is nobody's business.
    settings(HTTPS_PROXY="ftp://sekret", NO_PROXY="api.telegram.org")


def test_a_socks_proxy_needs_its_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert settings(HTTPS_PROXY="socks5h://h:1080").proxy_url == "socks5h://h:1080"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (fault,) = faults(HTTPS_PROXY="socks5h://h:1080")
    assert "pip install 'telegram-connector[socks]'" in fault


def test_ca_bundle(tmp_path: Path):
    assert settings(CURL_CA_BUNDLE=str(tmp_path)).ca_bundle == str(tmp_path)
    (fault,) = faults(REQUESTS_CA_BUNDLE=str(tmp_path / "absent"))
    assert fault.startswith("REQUESTS_CA_BUNDLE ")
    assert str(tmp_path) not in fault


# --- secrets and names -------------------------------------------------------------------------------------


def test_secrets_are_known_and_not_shown():
    found = settings(
        NATS_URL="nats://user:p%40ss@n1,nats://lonely-token@n2", NATS_TELEGRAM_NKEY_SEED="", HTTPS_PROXY=PROXY
    )
    assert set(found.secrets) == {TOKEN, "p%40ss", "p@ss", "lonely-token", "sekret"}
    assert not any(secret in repr(found) for secret in found.secrets)
    with_creds = settings(NATS_TELEGRAM_NKEY_SEED="", NATS_CREDS=CREDS)
    assert set(with_creds.secrets) == {TOKEN, CREDS.strip(), SEED, "eyJ0eXAi.eyJqdGki.c2ln"}
    assert not any(secret in repr(with_creds) for secret in with_creds.secrets)
    assert set(settings().secrets) == {TOKEN, SEED}
    assert SEED not in repr(settings())


def test_every_variable_is_listed():
    class Recorder(dict[str, str]):
        asked: set[str] = set()  # noqa: RUF012 - shared on purpose

        def get(self, key, default=None):  # type: ignore[no-untyped-def]
            self.asked.add(key)
            return super().get(key, default)

    Settings.from_env(Recorder(ENV))
    Settings.from_env(Recorder(ENV, TELEGRAM_API_BASE_URL="http://localhost"))
    assert Recorder.asked == set(variables(Settings))
    assert set(variables(NatsSettings)) < set(variables(Settings))


def test_typos_are_noticed():
    env = {**ENV, "TG_MAX_DELIVERY": "5", "TG_ALLOW_HTTP": "1", "OTHER": "x"}
    assert unknown_variables(env) == ("TG_MAX_DELIVERY",)


def test_the_seed_format_is_what_nkeys_writes():
    raw = base64.b32decode(SEED + "=" * (-len(SEED) % 8))
    assert len(SEED) == 58
    assert len(raw) == 36
