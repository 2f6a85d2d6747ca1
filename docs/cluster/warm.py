#!/usr/bin/env python3
"""Copies items from one memcached server to another that serves them from now on.

    warm.py [--ring SERVER,SERVER,...] [--move] FROM TO

A server is HOST:PORT, as clients name it. `lru_crawler mgdump hash` lists FROM's keys; `mg` reads
their items without marking them as used; `ms` with the mode `add` writes them to TO. So a value
that TO already has is newer and stays, and flags and remaining time come along. Items that expire
within the second, or are marked as stale, are left out.

--ring: only the keys that this ring gives to TO. It is libmemcached's ketama_weighted with equal
weights (twemproxy: `hash: md5`, `distribution: ketama`; spymemcached: the format LIBMEMCACHED).
--move: deletes FROM's copy behind it, unless it has changed. For servers whose clients have
switched: a copy that is left at FROM is read again, as it was, when TO fails or leaves.
"""

import argparse
import base64
import bisect
import hashlib
import socket
import struct
import sys
import tempfile
import time

POINTS = 40  # digests of a server, each with four points
MOST_SERVERS = 24  # beyond it, rounding gives some clients' rings fewer points
MONTH = 30 * 86400  # a longer time is a moment of the calendar
BATCH_BYTES = 1 << 20


class Failed(Exception):
    """What ends the program with a message."""


class Server:
    """A connection: what is sent waits for flush()."""

    def __init__(self, name):
        self.name = name
        host, _, port = name.rpartition(":")
        try:
            self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=30)
        except (OSError, ValueError) as error:
            raise Failed(f"{name}: {error}") from error
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self.socket.makefile("rb", 1 << 16)
        self.writer = self.socket.makefile("wb", 1 << 16)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *parts):
        for part in parts:
            self.writer.write(part)

    def flush(self):
        self.writer.flush()

    def line(self):
        line = self.reader.readline()
        if not line.endswith(b"\r\n"):
            raise Failed(f"{self.name} has closed the connection")
        return line[:-2]

    def data(self, length):
        data = self.reader.read(length + 2)
        if len(data) != length + 2:
            raise Failed(f"{self.name} has closed the connection")
        return data


class Ring:
    """Which server a key belongs to."""

    def __init__(self, servers):
        if len(set(servers)) != len(servers) or len(servers) > MOST_SERVERS:
            raise Failed(f"a ring has at most {MOST_SERVERS} servers, each once")
        points = []
        for server in servers:
            # The usual port is no part of a point's name.
            name = server[: -len(":11211")] if server.endswith(":11211") else server
            for number in range(POINTS):
                digest = hashlib.md5(f"{name}-{number}".encode()).digest()
                points += [(point, server) for point in struct.unpack("<4I", digest)]
        points.sort()
        self.points = [point for point, _ in points]
        self.servers = [server for _, server in points]

    def owner(self, key):
        (point,) = struct.unpack("<I", hashlib.md5(key).digest()[:4])
        return self.servers[bisect.bisect_left(self.points, point) % len(self.points)]


def dump(source, wanted, file):
    """Writes the words behind each `mg` of FROM's list to the file. The list is read at once,
    as a server may disconnect a client that leaves its replies unread. The number of keys."""
    source.send(b"lru_crawler mgdump hash\r\n")
    source.flush()
    reply = source.line()
    if reply != b"OK":
        raise Failed(f"{source.name} does not list its keys: {reply.decode()}")
    count = 0
    while (line := source.line()) != b"EN":
        words = line.split(b" ")[1:]
        key = base64.b64decode(words[0]) if b"b" in words[1:] else words[0]
        if wanted(key):
            file.write(b" ".join(words) + b"\n")
            count += 1
    return count


def read_item(source, words):
    """The flags of an `mg`'s reply by letter, and the value with its line's end; or None."""
    reply = source.line()
    if reply == b"EN":
        return None
    head = reply.split(b" ")
    if head[0] != b"VA":
        raise Failed(f"{source.name} answers mg {words.decode()}: {reply.decode()}")
    data = source.data(int(head[1]))
    return {flag[:1]: flag[1:] for flag in head[2:]}, data


class Copier:
    """Copies items, and counts what has become of them."""

    def __init__(self, source, target, move):
        self.source, self.target, self.move = source, target, move
        self.copied = self.kept = self.gone = self.refused = self.bytes = 0

    def batch(self, keys):
        """One round trip to each server. A value is sent on as soon as it is read."""
        for words in keys:
            self.source.send(b"mg ", words, b" u c f t s v\r\n")
        self.source.flush()
        sent = []
        for words in keys:
            item = read_item(self.source, words)
            ttl = int(item[0][b"t"]) if item else 0
            if ttl == 0 or b"X" in item[0]:
                self.gone += 1
                continue
            flags, data = item
            if ttl > MONTH:
                ttl += int(time.time())
            key, *binary = words.split(b" ")
            head = b" ".join([key, flags[b"s"], b"ME", b"T%d" % max(ttl, 0), b"F" + flags[b"f"]])
            self.target.send(b"ms ", b" ".join([head, *binary]), b"\r\n", data)
            self.bytes += len(data)
            sent.append((words, flags[b"c"]))
        self.target.flush()
        there = [pair for pair in sent if self.stored(pair[0])]
        if self.move:
            for words, version in there:
                self.source.send(b"md ", words, b" C", version, b"\r\n")
            self.source.flush()
            for _ in there:
                self.source.line()

    def stored(self, words):
        """Whether TO has the item now, or had it."""
        reply = self.target.line()
        if reply == b"HD":
            self.copied += 1
        elif reply == b"NS":
            self.kept += 1
        else:
            self.refused += 1
            print(f"{self.target.name} refuses {words.decode()}: {reply.decode()}", file=sys.stderr)
        return reply in (b"HD", b"NS")


def warm(options):
    wanted = lambda key: True
    if options.ring:
        ring = Ring(options.ring.split(","))
        if options.target not in ring.servers:
            raise Failed(f"{options.target} is not in the ring")
        wanted = lambda key: ring.owner(key) == options.target
    start = time.monotonic()
    with Server(options.source) as source, Server(options.target) as target, \
            tempfile.TemporaryFile() as file:
        copy = Copier(source, target, options.move)
        count = dump(source, wanted, file)
        file.seek(0)
        size = min(options.batch, 10)
        while keys := [line[:-1] for _, line in zip(range(size), file)]:
            before = copy.bytes
            copy.batch(keys)
            # About a megabyte in flight, whatever the values' lengths.
            mean = (copy.bytes - before) / len(keys)
            size = max(1, min(options.batch, int(BATCH_BYTES / max(mean, 1))))
            done = copy.copied + copy.kept + copy.gone + copy.refused
            due = max(done / options.rate, copy.bytes / options.megabytes / 1e6)
            time.sleep(max(0, start + due - time.monotonic()))
    print(
        f"{count} keys: {copy.copied} copied, {copy.kept} kept at {options.target}, "
        f"{copy.gone} gone, {copy.refused} refused; {copy.bytes} bytes "
        f"in {time.monotonic() - start:.1f} s"
    )
    return 1 if copy.refused else 0


def main():
    about, _, rest = __doc__.partition("\n")
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, epilog=rest, formatter_class=form)
    parser.add_argument("source", metavar="FROM")
    parser.add_argument("target", metavar="TO")
    parser.add_argument("--ring", help="the servers that clients have from now on")
    parser.add_argument("--move", action="store_true", help="delete FROM's copies")
    parser.add_argument("--rate", type=float, default=20_000, help="items a second at most")
    parser.add_argument("--megabytes", type=float, default=50, help="MB a second at most")
    parser.add_argument("--batch", type=int, default=100, help="items in flight at most")
    try:
        return warm(parser.parse_args())
    except (Failed, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
