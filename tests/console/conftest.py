"""Fixtures for the console's tests."""

from __future__ import annotations

from tests.console.stage import stage

__all__ = ["stage"]
