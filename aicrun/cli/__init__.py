"""Cli: words and tables. It parses flags, calls `api`, and shows values; it decides nothing.

Start with `main.py`. Views turn values into screens (`views/human.py`, `views/json.py`); text from hosts passes
`safe_text.py` first.
"""
