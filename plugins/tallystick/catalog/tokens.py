"""Bearer tokens: a file with the SHA-256 of each, and the lakes that it may see. The file has no token in clear.

    # the notebooks
    9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  flights,orders
    60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752  *

A token is 256 random bits, so its plain SHA-256 can be stored: no dictionary has it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tallystick.catalog.versions import SelectionError, check_lake_name
from tallystick.errors import SettingsError

EVERY = "*"
FILE_BYTES_MAX = 1 << 20
TOKEN_CHARS_MAX = 512
_PREFIX = "tally_"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_HINT = "write one line per token, as `tally catalog --new-token` prints it."


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenGrant:
    """The lakes that a token may see, by their names; None means all of this catalog. `digest`: SHA-256 of the token."""

    digest: bytes
    lakes: frozenset[str] | None

    def may_see(self, lake: str) -> bool:
        """Return True if the token may see a lake."""
        return self.lakes is None or lake in self.lakes


def new_token() -> str:
    """Return a new token."""
    return _PREFIX + secrets.token_urlsafe(32)


def token_line(token: str, lakes: Iterable[str]) -> str:
    """Return the line of a token in the file; without lakes it may see all."""
    return f"{hashlib.sha256(token.encode()).hexdigest()}  {','.join(lakes) or EVERY}"


def parse_tokens(text: str, *, where: str) -> tuple[TokenGrant, ...]:
    """Return the grants of a file's text; raises SettingsError with the number of the line, never with its content."""
    found: dict[bytes, TokenGrant] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        place = f"{where}, line {number}"
        if len(words) != 2 or not _DIGEST.fullmatch(words[0]):
            raise SettingsError(
                f"{place}: expected a SHA-256 in hexadecimal and names of lakes, found something else.",
                hint=_HINT,
            )
        digest = bytes.fromhex(words[0])
        if digest in found:
            raise SettingsError(
                f"{place}: expected each token once, found one again.", hint="join the two lines."
            )
        found[digest] = TokenGrant(digest=digest, lakes=_lakes(words[1], place))
    if not found:
        raise SettingsError(f"{where}: expected a token, found none.", hint=_HINT)
    return tuple(found.values())


def _lakes(text: str, place: str) -> frozenset[str] | None:
    if text == EVERY:
        return None
    try:
        return frozenset(check_lake_name(name) for name in text.split(","))
    except SelectionError as error:
        raise SettingsError(f"{place}: {error}.", hint=_HINT) from error


class TokenFile:
    """The tokens of a file. A changed file is read again at the next request, so a token ends without a restart.

    While a changed file cannot be used, no token is accepted: an old one may have been taken out of it.
    """

    def __init__(self, path: Path) -> None:
        """Read the file; raises SettingsError."""
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._grants: tuple[TokenGrant, ...] = ()
        self._refresh()

    def grant_of(self, token: str) -> TokenGrant | None:
        """Return the grant of a token, or None. Raises SettingsError if the file cannot be used.

        The time does not depend on the content of the file: each digest is compared as a whole.
        """
        with self._lock:
            self._refresh()
            grants = self._grants
        digest = hashlib.sha256(token[: TOKEN_CHARS_MAX + 1].encode()).digest()
        found = None
        for grant in grants:
            if hmac.compare_digest(grant.digest, digest):
                found = grant
        return found if len(token) <= TOKEN_CHARS_MAX else None

    def _refresh(self) -> None:
        try:
            state = self._path.stat()
            seen = (state.st_mtime_ns, state.st_size, state.st_ino)
            if seen == self._seen:
                return
            self._seen, self._grants = None, ()
            if state.st_size > FILE_BYTES_MAX:
                raise SettingsError(
                    f"--tokens {self._path}: expected at most {FILE_BYTES_MAX} bytes, found {state.st_size}.",
                    hint=_HINT,
                )
            self._grants = parse_tokens(
                self._path.read_text(encoding="utf-8"), where=f"--tokens {self._path}"
            )
            self._seen = seen
        except (OSError, UnicodeDecodeError) as error:
            self._seen, self._grants = None, ()
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise SettingsError(
                f"--tokens {self._path}: expected a file with tokens, found: {reason}.", hint=_HINT
            ) from None
