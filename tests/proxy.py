"""A proxy in front of a server that loses, cuts, delays or replaces the reply to a chosen command.

The server always acts, unless the reply is replaced by an error. MongoDB's messages are told apart by
their length header and the first key of their body, Redis's by the protocol's own arrays.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit, urlunsplit

from bson import encode

HEADER = 16  # bytes of a MongoDB message header
OP_MSG = 2013
BODY_AT = HEADER + 4 + 1  # after flags and the section's kind
REPLY_WAIT_S = 10.0
ANY = "*"
HELLO = {"", "hello", "ismaster", "isMaster", "endSessions", "CLIENT", "HELLO", "SELECT", "PING"}
STRANGE = {"ok": 0.0, "code": 4242, "codeName": "Weather", "errmsg": "strange weather today"}
PLACEHOLDER = b"*2\r\n$4\r\nECHO\r\n$11\r\nplaceholder\r\n"
PLACEHOLDER_REPLY = b"$11\r\nplaceholder\r\n"
STRANGE_REPLY = b"-STRANGE weather today\r\n"


class Fault(StrEnum):
    """What happens to the reply; the connection ends after a lost or a cut one."""

    DROP = "drop"
    CUT = "cut"
    DELAY = "delay"
    ANSWER = "answer"  # an error reply that no documentation names, instead of the server


@dataclass
class Plan:
    """Which replies to spoil: those of `command`, from the `skip`-th on, `times` in all.

    `ANY` is every command but those by which a client says hello.
    """

    command: str
    fault: Fault = Fault.DROP
    skip: int = 0
    times: int = 1
    delay_s: float = 1.0
    landed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def hits(self, command: str) -> bool:
        """Whether the reply to this command is to be spoiled now."""
        with self.lock:
            named = command not in HELLO if self.command == ANY else command == self.command
            if not named or self.landed >= self.times:
                return False
            if self.skip:
                self.skip -= 1
                return False
            self.landed += 1
            return True


@dataclass
class Proxy:
    """A listening proxy; `uri` is the server's own with the proxy's port."""

    uri: str
    plan: Plan

    @property
    def landed(self) -> int:
        """How many replies were spoiled."""
        return self.plan.landed


@contextmanager
def proxied(uri: str, plan: Plan) -> Iterator[Proxy]:
    """A proxy in front of the server at `uri`, for as long as the block runs."""
    parts = urlsplit(uri)
    read = read_mongo if parts.scheme == "mongodb" else read_redis
    listener = socket.create_server(("127.0.0.1", 0))
    target = (parts.hostname or "127.0.0.1", parts.port or 0)
    thread = threading.Thread(target=accept, args=(listener, target, plan, read), daemon=True)
    thread.start()
    changed = parts._replace(netloc=f"127.0.0.1:{listener.getsockname()[1]}")
    try:
        yield Proxy(urlunsplit(changed), plan)
    finally:
        listener.close()


Reader = Callable[[socket.socket, bytearray], tuple[bytes, str] | None]


def accept(listener: socket.socket, target: tuple[str, int], plan: Plan, read: Reader) -> None:
    """Serve every connection in a thread of its own until the listener closes."""
    while True:
        try:
            near, _ = listener.accept()
        except OSError:  # closed
            return
        threading.Thread(target=serve, args=(near, target, plan, read), daemon=True).start()


def serve(near: socket.socket, target: tuple[str, int], plan: Plan, read: Reader) -> None:
    """Pass requests on one by one; spoil the reply that the plan names."""
    buffer = bytearray()
    with near, socket.create_connection(target) as far:
        threading.Thread(target=copy, args=(far, near, plan), daemon=True).start()
        try:
            while (message := read(near, buffer)) is not None:
                data, command = message
                if not plan.hits(command):
                    far.sendall(data)
                    continue
                if plan.fault is Fault.ANSWER:
                    if data.startswith(b"*"):
                        far.sendall(PLACEHOLDER)  # its reply keeps the place among pipelined ones
                    else:
                        near.sendall(strange_reply(data))
                    continue
                spoil(far, near, data, plan)
                if plan.fault is not Fault.DELAY:
                    return
        except OSError:
            return


def strange_reply(request: bytes) -> bytes:
    """Answer a request to MongoDB with an error that nobody foresaw."""
    body = b"\0" * 4 + b"\0" + encode(STRANGE)
    header = (HEADER + len(body)).to_bytes(4, "little") + b"\0" * 4 + request[4:8]
    return header + OP_MSG.to_bytes(4, "little") + body


SPOILING: dict[int, threading.Event] = {}


def spoil(far: socket.socket, near: socket.socket, data: bytes, plan: Plan) -> None:
    """Send the request and let the copier know that its reply is to be spoiled."""
    done = threading.Event()
    SPOILING[near.fileno()] = done
    far.sendall(data)
    done.wait(REPLY_WAIT_S)


def copy(far: socket.socket, near: socket.socket, plan: Plan) -> None:
    """Copy replies back; the one that follows a spoiled request is lost, cut or late."""
    number = near.fileno()
    try:
        while reply := far.recv(65536):
            done = SPOILING.pop(number, None)
            if done is None:
                near.sendall(reply.replace(PLACEHOLDER_REPLY, STRANGE_REPLY))
                continue
            if plan.fault is Fault.DELAY:
                time.sleep(plan.delay_s)
                near.sendall(reply)
                done.set()
                continue
            if plan.fault is Fault.CUT:
                near.sendall(reply[: max(1, len(reply) // 2)])
            near.shutdown(socket.SHUT_RDWR)
            done.set()
            return
    except OSError:
        return
    finally:
        SPOILING.pop(number, None)


def receive(near: socket.socket, buffer: bytearray, size: int) -> bool:
    """Fill the buffer to `size` bytes; False when the client has gone."""
    while len(buffer) < size:
        data = near.recv(65536)
        if not data:
            return False
        buffer += data
    return True


def read_mongo(near: socket.socket, buffer: bytearray) -> tuple[bytes, str] | None:
    """One MongoDB message and the name of its command."""
    if not receive(near, buffer, HEADER):
        return None
    size = int.from_bytes(buffer[:4], "little")
    if not receive(near, buffer, size):
        return None
    data = bytes(buffer[:size])
    del buffer[:size]
    if int.from_bytes(data[12:16], "little") != OP_MSG:
        return data, ""
    key_at = BODY_AT + 4 + 1  # the body's length and its first element's type
    return data, data[key_at : data.index(0, key_at)].decode()


def read_redis(near: socket.socket, buffer: bytearray) -> tuple[bytes, str] | None:
    """One Redis command and its name."""
    end = 0
    words: list[bytes] = []
    line = read_line(near, buffer, end)
    if line is None:
        return None
    end += len(line)
    for _ in range(int(line[1:])):
        size_line = read_line(near, buffer, end)
        if size_line is None:
            return None
        end += len(size_line)
        size = int(size_line[1:])
        if not receive(near, buffer, end + size + 2):
            return None
        words.append(bytes(buffer[end : end + size]))
        end += size + 2
    data = bytes(buffer[:end])
    del buffer[:end]
    return data, words[0].decode().upper()


def read_line(near: socket.socket, buffer: bytearray, start: int) -> bytes | None:
    """A line of the buffer from `start`, its ending included."""
    while (at := buffer.find(b"\r\n", start)) < 0:
        if not receive(near, buffer, len(buffer) + 1):
            return None
    return bytes(buffer[start : at + 2])
