"""What outlives the process: attempts and migrations, read once and written behind."""

from __future__ import annotations

import json
from concurrent.futures import Future

import pytest

from telegram_connector import state as state_module
from telegram_connector.delivery import DeliveryId
from telegram_connector.errors import Disconnected
from telegram_connector.events import Event, StateUnavailable
from telegram_connector.state import ATTEMPTS_KEY, MIGRATIONS_KEY, State


class SlowStore:
    """A `Store` whose writes end when the test says so."""

    def __init__(self, documents: dict[str, bytes] | None = None) -> None:
        self.documents = documents or {}
        self.error: Exception | None = None
        self.writes: list[tuple[str, bytes, Future[None]]] = []

    def get(self, key: str) -> Future[bytes | None]:
        future: Future[bytes | None] = Future()
        if self.error:
            future.set_exception(self.error)
        else:
            future.set_result(self.documents.get(key))
        return future

    def put(self, key: str, value: bytes) -> Future[None]:
        future: Future[None] = Future()
        self.writes.append((key, value, future))
        return future

    def finish(self, error: Exception | None = None) -> None:
        """End every write under way."""
        for key, value, future in self.writes:
            if future.done():
                continue
            if error:
                future.set_exception(error)
            else:
                self.documents[key] = value
                future.set_result(None)

    def written(self, key: str) -> list[object]:
        return [json.loads(value) for name, value, _ in self.writes if name == key]


def id_of(sequence: int) -> DeliveryId:
    return DeliveryId("S", sequence, sequence * 1000)


def row(sequence: int, count: int) -> list[object]:
    return ["S", sequence, sequence * 1000, count]


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def state(store: SlowStore, events: list[Event]) -> State:
    return State(store, events.append)


@pytest.fixture
def loaded(state: State) -> State:
    load(state)
    return state


def load(state: State, floor: int = 0) -> dict[str, str]:
    fetched = state.fetch()
    assert fetched is not None
    state.adopt(fetched, floor)
    return fetched.moved


# Reading


def test_an_empty_store_is_an_empty_state(state: State, events: list[Event]):
    assert load(state) == {}
    assert (state.loaded, state.attempts(id_of(1)), events) == (True, 0, [])


def test_what_an_earlier_process_wrote_is_read_again(store: SlowStore, loaded: State):
    loaded.failed(id_of(1))
    loaded.failed(id_of(1))
    loaded.moved("a", "b")
    loaded.flush()
    store.finish()
    next_one = State(store, lambda _: None)
    assert load(next_one) == {"a": "b"}
    assert next_one.attempts(id_of(1)) == 2


def test_attempts_at_or_below_the_ack_floor_are_not_taken_over(store: SlowStore, state: State):
    store.documents[ATTEMPTS_KEY] = json.dumps([row(4, 1), row(5, 2), row(6, 3)]).encode()
    load(state, floor=5)
    assert [state.attempts(id_of(n)) for n in (4, 5, 6)] == [0, 0, 3]


def test_what_happened_before_reading_is_added_to_what_was_read(store: SlowStore, state: State):
    store.documents[ATTEMPTS_KEY] = json.dumps([row(1, 3), row(2, 1)]).encode()
    store.documents[MIGRATIONS_KEY] = b'{"a": "b", "c": "d"}'
    state.failed(id_of(1))
    state.moved("a", "newer")
    assert load(state) == {"a": "b", "c": "d"}
    assert [state.attempts(id_of(n)) for n in (1, 2)] == [4, 1]
    state.flush()
    assert store.written(MIGRATIONS_KEY) == [{"a": "newer", "c": "d"}]


def test_a_store_that_cannot_be_read_is_told_once_and_asked_again(
    store: SlowStore, state: State, events: list[Event]
):
    store.error = Disconnected("not connected")
    assert state.fetch() is None
    assert state.fetch() is None
    assert events == [StateUnavailable("cannot be read: not connected")]
    store.error = None
    assert load(state) == {}


def test_no_answer_is_told_in_words(
    state: State, store: SlowStore, events: list[Event], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(state_module, "LOAD_SECONDS", 0.0)
    monkeypatch.setattr(store, "get", lambda key: Future())
    assert state.fetch() is None
    assert events == [StateUnavailable("cannot be read: no answer")]


@pytest.mark.parametrize(
    "document",
    [b"not JSON", b"{}", b'[["S", 1, 2]]', b'[["S", "1", 2, 3]]', b'[["\xff", 1, 2, 3]]', b"[" * 9999],
)
def test_an_unreadable_document_starts_empty_and_leaves_the_other_alone(
    store: SlowStore, state: State, events: list[Event], document: bytes
):
    store.documents |= {ATTEMPTS_KEY: document, MIGRATIONS_KEY: b'{"a": "b"}'}
    assert load(state) == {"a": "b"}
    assert [type(event) for event in events] == [StateUnavailable]
    assert ATTEMPTS_KEY in events[0].reason


# Counting


def test_failures_are_counted_per_message_and_forgotten_when_it_is_settled(loaded: State):
    assert [loaded.failed(id_of(1)), loaded.failed(id_of(2)), loaded.failed(id_of(1))] == [1, 1, 2]
    loaded.settled(id_of(1))
    assert [loaded.attempts(id_of(n)) for n in (1, 2)] == [0, 1]


def test_only_so_many_are_kept_those_that_failed_longest_ago_going_first(
    loaded: State, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(state_module, "MAX_ATTEMPTS_KEPT", 3)
    for sequence in (1, 2, 3, 1, 4):
        loaded.failed(id_of(sequence))
    assert [loaded.attempts(id_of(n)) for n in (1, 2, 3, 4)] == [2, 0, 1, 1]


def test_what_is_read_is_bounded_too(store: SlowStore, state: State, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state_module, "MAX_ATTEMPTS_KEPT", 3)
    store.documents[ATTEMPTS_KEY] = json.dumps([row(n, 1) for n in range(1, 10)]).encode()
    state.failed(id_of(20))
    load(state)
    assert [n for n in range(1, 21) if state.attempts(id_of(n))] == [8, 9, 20]


# Writing behind


def test_nothing_is_written_before_the_rest_is_known(store: SlowStore, state: State):
    state.failed(id_of(1))
    assert (state.flush(), store.writes) == ([], [])
    load(state)
    state.flush()
    assert store.written(ATTEMPTS_KEY) == [[row(1, 1)]]


def test_only_what_has_changed_is_written(store: SlowStore, loaded: State):
    assert loaded.flush() == []
    loaded.moved("a", "b")
    assert len(loaded.flush()) == 1
    assert [key for key, _, _ in store.writes] == [MIGRATIONS_KEY]
    store.finish()
    assert loaded.flush() == []
    assert len(store.writes) == 1


def test_forgetting_what_was_never_counted_writes_nothing(store: SlowStore, loaded: State):
    loaded.settled(id_of(1))
    loaded.flush()
    assert store.writes == []


def test_a_document_is_written_by_one_write_at_a_time(store: SlowStore, loaded: State):
    loaded.failed(id_of(1))
    loaded.flush()
    loaded.failed(id_of(1))
    assert len(loaded.flush()) == 1
    assert store.written(ATTEMPTS_KEY) == [[row(1, 1)]]
    store.finish()
    loaded.flush()
    assert store.written(ATTEMPTS_KEY) == [[row(1, 1)], [row(1, 2)]]


def test_a_write_does_not_wait_for_another_documents(store: SlowStore, loaded: State):
    loaded.failed(id_of(1))
    loaded.flush()
    loaded.moved("a", "b")
    assert len(loaded.flush()) == 2


def test_a_failed_write_is_told_once_and_tried_again(store: SlowStore, loaded: State, events: list[Event]):
    loaded.failed(id_of(1))
    for _ in range(3):
        loaded.flush()
        store.finish(Disconnected("not connected"))
    loaded.flush()
    assert store.written(ATTEMPTS_KEY) == [[row(1, 1)]] * 4
    assert events == [StateUnavailable("attempts cannot be written: not connected")]
    store.finish()
    assert loaded.flush() == []


def test_a_write_that_fails_again_after_it_worked_is_told_again(
    store: SlowStore, loaded: State, events: list[Event]
):
    for error in (Disconnected("lost"), None, Disconnected("lost")):
        loaded.failed(id_of(1))
        loaded.flush()
        store.finish(error)
    loaded.flush()
    assert len(events) == 2
