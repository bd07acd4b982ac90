"""A server that lets a client in and then answers chosen commands with one error reply."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.proxy import read_redis


@contextmanager
def answering(reply: str, *, to: frozenset[str]) -> Iterator[str]:
    """The URL of a server that gives this error reply to these commands, and +OK to all others."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(near: socket.socket) -> None:
        buffer = bytearray()
        with near, suppress(ConnectionError):  # the client is gone
            while (message := read_redis(near, buffer)) is not None:
                refused = message[1].upper() in to
                near.sendall(f"-{reply}\r\n".encode() if refused else b"+none\r\n")

    def accept() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=serve, args=(near,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
    finally:
        listener.close()
