"""Cleaning, trimming and measuring of texts."""

from __future__ import annotations

import pytest

from telegram_connector.markup import Entity, Parsed
from telegram_connector.sandbox.answers import Refused
from telegram_connector.sandbox.text import finish, read


def kept(text: str, *entities: Entity) -> Parsed:
    return finish(Parsed(text, entities))


def bold(offset: int, length: int) -> Entity:
    return Entity("bold", offset, length)


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("a\tb\x00c", "a b c"),
        ("a\r\nb\rc", "a\nbc"),
        ("a\u2028b\u202ec", "abc"),
        ("A\u030a\u0333\u033f", "A"),
        ("a\u200e\u200f\u200eb", "a\u200c\u200c\u200eb"),
        ("\n  a b \n ", "a b"),
        ("\u00a0a\u00a0", "\u00a0a\u00a0"),
    ],
)
def test_cleaning(raw, clean):
    assert kept(raw).text == clean
    # With an entity the text is cleaned character by character; the outcome is the same.
    units = len(raw.encode("utf-16-le")) // 2
    assert kept(raw + "z", bold(units, 1)).text == kept(raw + "z").text


def test_entities_move_with_the_text():
    parsed = kept("\u2028😀 \r bold\tx \n", bold(6, 4))
    assert parsed.text == "😀  bold x"
    assert parsed.entities == (bold(4, 4),)


def test_leading_blanks_stay_inside_an_entity_and_trailing_ones_shorten_it():
    parsed = kept("  \n a  ", bold(1, 6))
    assert (parsed.text, parsed.entities) == (" \n a", (bold(0, 4),))


@pytest.mark.parametrize("blank", [" ", "\n", "\u200b\ufeff", "\u00a0", "\u2800", "\U000e0041", "\u2028"])
def test_blank_texts_are_empty(blank):
    with pytest.raises(Refused, match="text must be non-empty"):
        kept(blank)


def test_length_is_counted_in_code_points_after_cleaning():
    assert len(kept(" " * 10 + "😀" * 4096 + "\n").text) == 4096
    with pytest.raises(Refused, match="message is too long"):
        kept("😀" * 4097)


@pytest.mark.parametrize(
    ("entity", "words"),
    [
        (bold(1, 1), "entity begins in a middle of a UTF-16 symbol at byte offset 4"),
        (bold(0, 1), "entity ends in a middle of a UTF-16 symbol at byte offset 4"),
        (bold(9, 1), "entity begins after the end of the text at UTF-16 offset 9"),
        (bold(-1, 2), "receive an entity with incorrect offset -1"),
        (bold(0, -2), "receive an entity with incorrect length -2"),
        (bold(2, 5), "entity beginning at UTF-16 offset 2 ends after the end of the text at UTF-16 offset 7"),
    ],
)
def test_entities_outside_the_text(entity, words):
    with pytest.raises(Refused, match=words):
        kept("😀a", entity)


@pytest.mark.parametrize("value", ["not json", '{"type": "bold"}', ""])
def test_entities_that_are_no_list_are_ignored(value):
    assert read({"text": "hi", "entities": value}).entities == ()


@pytest.mark.parametrize("value", ["[1]", '[{"type": "bold", "length": 1}]', '[{"offset": 0, "length": 1}]'])
def test_entities_that_cannot_be_read(value):
    with pytest.raises(Refused, match="parse MessageEntity"):
        read({"text": "hi", "entities": value})


def test_a_parse_mode_makes_entities_be_ignored():
    assert read({"text": "hi", "parse_mode": "HTML", "entities": "[1]"}).entities == ()


def test_detected_entities_are_taken_and_dropped():
    assert read({"text": "@me", "entities": '[{"type": "mention", "offset": 0, "length": 3}]'}).entities == ()
