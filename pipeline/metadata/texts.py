r"""What stands on a database server for a text that ML Metadata's library was given.

PostgreSQL: the library (seen with release 1.16) has libpq escape each text, takes the first and the last sign away, and
puts quotes of its own around the rest. For a text with a backslash, libpq's answer does not begin with a quote but with
` E'`: what is sent then is no SQL any more, and JSON inside JSON, as in TFX's parameters, is full of backslashes. So a
sign of Unicode's private use area stands in the database for each of them.

MySQL: the library sends UTF-8, but lets the server believe that it is Latin-1 (which for MySQL is Windows-1252). The
library itself gets back what it wrote; everybody else reads `Ã¼` for `ü`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Texts:
    """How a kind of server keeps texts.

    Attributes:
      hide: a text as it stands there.
      reveal: the reverse.
    """

    hide: Callable[[str], str]
    reveal: Callable[[str], str]


_STAND_IN = "\ue05c"
_UNDEFINED = {number: chr(number) for number in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}
"""What Windows-1252 leaves open, and MySQL does not."""


def _of_latin(text: str) -> str:
    kept = b"".join(bytes([ord(each)]) if ord(each) in _UNDEFINED else each.encode("cp1252") for each in text)
    return kept.decode()


def _revealed(text: str) -> str:
    if text.isascii():
        return text
    try:
        return _of_latin(text)
    except UnicodeError:
        # Somebody else wrote it, and rightly.
        return text


def _hidden(text: str) -> str:
    if text.isascii():
        return text
    return "".join(_UNDEFINED.get(each) or bytes([each]).decode("cp1252") for each in text.encode())


POSTGRESQL = Texts(lambda text: text.replace("\\", _STAND_IN), lambda text: text.replace(_STAND_IN, "\\"))
MYSQL = Texts(_hidden, _revealed)
