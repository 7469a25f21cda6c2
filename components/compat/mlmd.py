"""Hooks into private parts of ML Metadata's Python library.

Checked with ml-metadata 1.16.0 (older release line) and 1.21.0 (current release line).
"""

from __future__ import annotations

import ml_metadata as mlmd
from google.protobuf.message import Message


class InterceptedStore(mlmd.MetadataStore):  # type: ignore[misc]
    """ML Metadata's store, with one method that every call passes through, for a subclass to override.

    Hook: every public method of `MetadataStore` ends in the private `_call_method(method_name, request, response)`. The
    library offers no public place to repeat a call, or to change what is sent and received.
    """

    def call(self, method_name: str, request: Message, response: Message) -> None:
        """Send one request.

        Args:
          method_name: Name of the method of MetadataStoreService, such as `GetArtifacts`.
          request: The request's message.
          response: An empty message of the response's type; it is filled in.

        Raises:
          ml_metadata.errors.StatusError: The call failed.
        """
        super()._call_method(method_name, request, response)

    def take_connection(self, other: InterceptedStore) -> None:
        """Replace this store's connection by that of a store that was opened just now.

        Hook: the library has no method that connects again; the whole connection is in the object's `__dict__`.
        """
        self.__dict__.update(other.__dict__)

    def _call_method(self, method_name: str, request: Message, response: Message) -> None:
        self.call(method_name, request, response)
