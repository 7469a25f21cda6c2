"""Hooks into private parts of ML Metadata's Python library.

Checked with ml-metadata 1.16.0 (older release line) and 1.21.0 (current release line).
"""

from __future__ import annotations

import ml_metadata as mlmd
from google.protobuf.message import Message


class InterceptedStore(mlmd.MetadataStore):  # type: ignore[misc]
    """ML Metadata's store with a method through which all calls pass. Subclasses override it.

    Hook: every public method of `MetadataStore` calls the private `_call_method(method_name, request, response)`. The
    library does not offer a public way to repeat a call, or to change its request or response.
    """

    def call(self, method_name: str, request: Message, response: Message) -> None:
        """Send a request.

        Args:
          method_name: Name of the method of MetadataStoreService, such as `GetArtifacts`.
          request: Message of the request.
          response: Empty message of the response's type. It is filled in.

        Raises:
          ml_metadata.errors.StatusError: The call failed.
        """
        super()._call_method(method_name, request, response)

    def take_connection(self, other: InterceptedStore) -> None:
        """Replace this store's connection by the connection of a store that was just opened.

        Hook: the library does not offer a method that reconnects. The whole connection is in the object's `__dict__`.

        Args:
          other: The store whose connection is used from now on.
        """
        self.__dict__.update(other.__dict__)

    def _call_method(self, method_name: str, request: Message, response: Message) -> None:
        self.call(method_name, request, response)
