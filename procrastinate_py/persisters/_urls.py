"""URLs that may hold a password: what of them may be shown."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

HIDDEN = "***"
_SECRET_OPTIONS = ("password", "passwd", "pwd", "secret", "token", "key", "sslpassword")


def secrets_of(url: str) -> tuple[str, ...]:
    """What must never be shown, in every spelling that an error may hold; longest first."""
    found: set[str] = set()
    # Not urlsplit's: a password may hold what ends an authority for others, and must be hidden all the same.
    credentials, at, _ = url.partition("://")[2].rpartition("@")
    if at:
        found.add(credentials.partition(":")[2])
    try:
        options = parse_qsl(urlsplit(url).query)
    except ValueError:
        options = []
    found.update(value for name, value in options if any(word in name.lower() for word in _SECRET_OPTIONS))
    found |= {unquote(secret) for secret in found}
    return tuple(sorted((secret for secret in found if secret), key=len, reverse=True))


def scrubbed(text: str, secrets: tuple[str, ...]) -> str:
    """The text without them: for a driver's errors, which may quote what they were given."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def shown_url(url: str) -> str:
    """The URL as it may be logged: no password, and of its options only the names."""
    head, question, _ = scrubbed(url, secrets_of(url)).partition("?")
    return f"{head}?{HIDDEN}" if question else head
