"""``python -m telegram_connector`` is ``telegram-connector``."""

from telegram_connector.cli import main

if __name__ == "__main__":
    main()
