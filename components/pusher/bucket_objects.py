"""The interface of the objects below a URL in a bucket, with writes on condition that an object is unchanged."""

from __future__ import annotations

from typing import BinaryIO, Protocol


class ObjectChangedError(Exception):
    """An object was not written, because another process wrote it, or deleted it, since its tag was read."""


class Objects(Protocol):
    """The objects below a URL. Their names are relative to it.

    All methods raise an InputError if credentials or the bucket are missing, and a MachineError if the store does not
    answer. Every write of one object is atomic: readers see its old content or its new content.

    Attributes:
      url: The URL, without a slash at its end.
    """

    url: str

    def list_names(self, prefix: str) -> list[str]:
        """Return the names that begin with a prefix, which is empty or ends with a slash."""

    def read(self, name: str) -> tuple[bytes, str]:
        """Return the content of an object, and a tag that identifies this content.

        Raises:
          FileNotFoundError: The object does not exist.
        """

    def write(self, name: str, content: bytes, tag: str | None) -> None:
        """Write a small object on condition that nobody has changed it.

        Args:
          name: Name of the object.
          content: New content.
          tag: Tag of the content that is replaced. None if the object must not exist.

        Raises:
          ObjectChangedError: The object has another tag, or does not exist, or with `tag` None, exists.
        """

    def upload(self, name: str, source: BinaryIO) -> None:
        """Write an object of any size, without a condition."""

    def open(self, name: str) -> BinaryIO:
        """Download an object to a temporary file and open that.

        Raises:
          FileNotFoundError: The object does not exist.
        """

    def delete(self, name: str) -> None:
        """Delete an object. Another process may have deleted it."""
