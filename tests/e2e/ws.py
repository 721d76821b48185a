"""A WebSocket client for the end-to-end tests (RFC 6455, no extensions), standard library only."""
import base64
import hashlib
import json
import os
import socket
import struct
import time

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class HandshakeError(Exception):
    def __init__(self, status, head, body):
        super().__init__(f"the upgrade was answered with {status}: {body[:300]!r}")
        self.status, self.head, self.body = status, head, body


class Closed(Exception):
    """The server closed; code is None where the connection broke without a close frame."""

    def __init__(self, code=None, reason=""):
        super().__init__(f"closed with {code} {reason}")
        self.code, self.reason = code, reason


class WebSocket:
    def __init__(self, host, port, path, headers=(), subprotocol=None, timeout=30):
        self.deadline = time.monotonic() + timeout
        self.sock = socket.create_connection((host, port), timeout=timeout)
        self.buffer = b""
        key = base64.b64encode(os.urandom(16))
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {host}:{port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key.decode()}",
            "Sec-WebSocket-Version: 13",
        ]
        if subprotocol:
            lines.append(f"Sec-WebSocket-Protocol: {subprotocol}")
        lines += [f"{name}: {value}" for name, value in dict(headers).items()]
        self.sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        head = self._until(b"\r\n\r\n").decode("latin-1")
        self.status = int(head.split()[1])
        if self.status != 101:
            raise HandshakeError(self.status, head, self._rest())
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
        if accept not in head:
            raise HandshakeError(self.status, head, b"wrong Sec-WebSocket-Accept")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.abort()

    def _fill(self):
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the socket brought nothing more in time")
        self.sock.settimeout(left)
        try:
            data = self.sock.recv(65536)
        except socket.timeout as e:
            raise TimeoutError("the socket brought nothing more in time") from e
        except ConnectionError as e:
            raise Closed() from e
        if not data:
            raise Closed()
        self.buffer += data

    def _until(self, mark):
        while mark not in self.buffer:
            self._fill()
        head, self.buffer = self.buffer.split(mark, 1)
        return head

    def _rest(self):
        try:
            while True:
                self._fill()
        except (Closed, TimeoutError):
            return self.buffer

    def _take(self, n):
        while len(self.buffer) < n:
            self._fill()
        out, self.buffer = self.buffer[:n], self.buffer[n:]
        return out

    def send_frame(self, opcode, payload=b"", fin=True):
        mask = os.urandom(4)
        head = bytes([(0x80 if fin else 0) | opcode])
        n = len(payload)
        if n < 126:
            head += bytes([0x80 | n])
        elif n < 65536:
            head += bytes([0x80 | 126]) + struct.pack(">H", n)
        else:
            head += bytes([0x80 | 127]) + struct.pack(">Q", n)
        masked = bytes(b ^ mask[i % 4] for i, b in enumerate(payload))
        self.sock.sendall(head + mask + masked)

    def send(self, message):
        """A text, or an object that is sent as JSON."""
        text = message if isinstance(message, str) else json.dumps(message)
        self.send_frame(TEXT, text.encode())

    def _frame(self):
        first, second = self._take(2)
        n = second & 0x7F
        if n == 126:
            (n,) = struct.unpack(">H", self._take(2))
        elif n == 127:
            (n,) = struct.unpack(">Q", self._take(8))
        return bool(first & 0x80), first & 0x0F, self._take(n)

    def receive(self, timeout=None):
        """The next text message. Pings are answered. Closed when the server closes."""
        if timeout is not None:
            self.deadline = time.monotonic() + timeout
        parts = b""
        while True:
            fin, opcode, payload = self._frame()
            if opcode == PING:
                self.send_frame(PONG, payload)
            elif opcode == CLOSE:
                code = struct.unpack(">H", payload[:2])[0] if len(payload) >= 2 else 1005
                raise Closed(code, payload[2:].decode(errors="replace"))
            elif opcode != PONG:
                parts += payload
                if fin:
                    return parts.decode()

    def receive_json(self, timeout=None):
        return json.loads(self.receive(timeout))

    def until(self, test, timeout=30):
        """Messages up to the first for which test is true, that one included."""
        self.deadline = time.monotonic() + timeout
        out = []
        while True:
            out.append(self.receive_json())
            if test(out[-1]):
                return out

    def close(self, code=1000):
        self.send_frame(CLOSE, struct.pack(">H", code))

    def abort(self):
        """Cuts the connection without a word, as a broken path does."""
        self.sock.close()
