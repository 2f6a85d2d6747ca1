"""The same conversations with two servers, byte-compared: memcached and ours. Called by converse.sh.

    converse.py binary|text PORT PORT SEED COUNT     conversations are made from seeds, one after the other
    converse.py record PORT SEED COUNT               what one server says, as tests/binary.txt has it
    converse.py again MEMCACHED FILE                 tests/conversations.txt with what this program says

Versions differ between servers. Which replies have the same version has to be the same.
"""

import base64
import os
import random
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
from itertools import zip_longest

HEADER = struct.Struct(">BBHBBHIIQ")
END = 0x0A0A0A0A
GETS, STORES, EXTENDS = [0x00, 0x09, 0x0C, 0x0D], [1, 2, 3, 0x11, 0x12, 0x13], [0x0E, 0x0F, 0x19, 0x1A]
TOUCHES, CHANGES, DELETES = [0x1C, 0x1D, 0x1E, 0x23, 0x24], [5, 6, 0x15, 0x16], [4, 0x14]
# Numbers, nearly numbers, and others. None has 64 bits: for a minus sign in these memcached 1.6.45
# looks beyond the value, where anything may stand.
VALUES = [b"", b"0", b"5", b"10", b"5 ", b" 5", b"5x", b"-1", b"abc", b"\0\xff\r\n", b"0007",
          b"4611686018427387903", b"18446744073709551616", b"v" * 300, b"w" * 20_000]
TIMES = [0, 0, 0, 100, 2_592_000, 2_592_001, 0x7FFFFFFF, 0xFFFFFFFE]
LARGEST = 2**62


def packet(op, key=b"", extras=b"", value=b"", version=0, opaque=0, wrong=()):
    wrong = dict(wrong)
    body = len(extras) + len(key) + len(value)
    head = HEADER.pack(wrong.get("magic", 0x80), op, wrong.get("key", len(key)),
                       wrong.get("extras", len(extras)), wrong.get("kind", 0), wrong.get("place", 0),
                       wrong.get("body", body), opaque, version)
    return head + extras + key + value


class Maker:
    """Requests. A version is 0, a wrong one, or "last": the last that a reply had."""

    def __init__(self, seed, attempt=0):
        self.random = random.Random(seed)
        # Others' keys are not ours.
        self.keys = [b"%d.%d.%s" % (seed, attempt, name) for name in (b"a", b"b")]

    def version(self):
        return self.random.choice([0, 0, 0, 0, "last", "last", 9_000_000_000_000_000_000])

    def request(self):
        pick = self.random.choice
        key, opaque = pick(self.keys), self.random.getrandbits(32)
        if self.random.random() < 0.02:
            key = pick([key.ljust(250, b"k"), key.ljust(251, b"k"), key + b" ", key + b"\0\n"])
        kind, time = self.random.random(), pick(TIMES)
        if kind < 0.22:
            return (pick(GETS), key, b"", b"", 0, opaque)
        if kind < 0.48:
            extras = struct.pack(">II", pick([0, 1, 0xFFFFFFFF]), time)
            value = pick(VALUES) if self.random.random() < 0.99 else b"x" * 1_048_577
            return (pick(STORES), key, extras, value, self.version(), opaque)
        if kind < 0.58:
            return (pick(EXTENDS), key, b"", pick(VALUES), self.version(), opaque)
        if kind < 0.76:
            by, first = pick([0, 1, 5, 2**40]), pick([0, 7, LARGEST])
            extras = struct.pack(">QQI", by, first, pick([time, 0xFFFFFFFF]))
            return (pick(CHANGES), key, extras, b"", self.version(), opaque)
        if kind < 0.83:
            return (pick(DELETES), key, b"", b"", self.version(), opaque)
        if kind < 0.93:
            return (pick(TOUCHES), key, struct.pack(">I", time), b"", 0, opaque)
        return self.other(opaque)

    def other(self, opaque):
        kind = self.random.randrange(16)
        if kind < 3:
            return (0x0A, b"", b"", b"", 0, opaque)
        if kind < 6:
            delay = self.random.choice([b"", b"\0\0\0\0"])
            return (self.random.choice([8, 0x18]), b"", delay, b"", 0, opaque)
        if kind < 8:
            which = self.random.choice([b"nonsense", b"detail", b"detail on", b"sizes", b"detail dump"])
            return (0x10, which, b"", b"", 0, opaque)
        if kind < 10:
            # Not with extras or a key, behind which memcached drops as much again.
            op = self.random.choice([0x1F, 0x25, 0x48, 0x80, 0xFF])
            return (op, b"", b"", self.random.choice([b"", b"xyz"]), 0, opaque)
        if kind < 12:
            op = self.random.choice([0x20, 0x21, 0x22])
            if op == 0x20:
                return (op, b"", b"", b"", 0, opaque)
            return (op, b"PLAIN", b"", b"\0a\0b", 0, opaque)
        if kind < 13:
            return (self.random.choice([7, 0x17]), b"", b"", b"", 0, opaque)
        return self.misshapen(opaque)

    def misshapen(self, opaque):
        """What ends a conversation. Not a value behind a touch or a report, which memcached takes for
        the next request."""
        pick = self.random.choice
        op = pick(GETS + DELETES + CHANGES + [8, 0x18, 0x0A, 7, 0x17, 0x20, 1, 0x11, 2, 0x1C, 0x1E])
        extras = pick([b"", b"1", b"123", b"12345", b"x" * 21])
        key = pick([b"", self.keys[0]])
        value = b"" if op in (0x1C, 0x1E) else pick([b"", b"v"])
        wrong = pick([{}, {"key": len(key) + 9}, {"magic": 0x81}, {"body": 0}, {"extras": 255}])
        return (op, key, extras, value, 0, opaque, wrong)

    def conversation(self):
        """Requests, and whether each waits for the reply to the one before. Nothing follows one that
        may end it: what a server has not read when it closes may cost the client replies."""
        requests = [self.request() for _ in range(self.random.randrange(1, 14))]
        waits = self.random.random() < 0.7
        if not waits:
            # No numbers either: how memcached stores one depends on what it has not sent yet.
            return [one for one in requests if one[0] not in CHANGES and not may_end(one)], waits
        ends = [at for at, request in enumerate(requests) if may_end(request)]
        return requests[: ends[0] + 1] if ends else requests, waits


def may_end(request):
    return request[0] in (7, 0x17) or len(request) > 6 or len(request[1]) > 250


MARK = packet(0x0A, opaque=END)


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(10)
        self.rest, self.last = b"", 0

    def ask(self, request):
        """Sends it, and reads all replies to it."""
        data = as_bytes(request, self.last)
        try:
            self.socket.sendall(data if may_end(request) else data + MARK)
            if may_end(request):
                self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has closed already
        return self.replies()

    def replies(self):
        """Replies up to the end mark, or to the end."""
        found = []
        while True:
            while len(self.rest) >= HEADER.size:
                head = HEADER.unpack_from(self.rest)
                size = HEADER.size + head[6]
                if len(self.rest) < size:
                    break
                reply, self.rest = self.rest[:size], self.rest[size:]
                if head[7] == END:
                    return found
                self.last = head[8] or self.last
                found.append(reply)
            try:
                more = self.socket.recv(1 << 20)
            except ConnectionResetError:
                more = b""
            except socket.timeout:
                return found + [b"HANGS"]
            if not more:
                return found + [b"EOF" + self.rest]
            self.rest += more


def as_bytes(request, last):
    op, key, extras, value, version, opaque, *wrong = request
    version = last if version == "last" else version
    if not wrong:
        return packet(op, key, extras, value, version, opaque)
    # Enough for what a wrong header may claim; no more, because memcached keeps back a reply if it
    # has read nonsense behind the request.
    more = {"key": 9, "extras": 255}
    fill = sum(more.get(name, 0) for name in wrong[0])
    return packet(op, key, extras, value, version, opaque, wrong[0]) + b"y" * fill


def talk(port, conversation):
    """All replies; versions are numbered in the order in which they are seen."""
    requests, waits = conversation
    client, found, seen = Client(port), [], {0: 0}
    if waits:
        for request in requests:
            found += client.ask(request)
    else:
        client.socket.sendall(b"".join(as_bytes(request, 5) for request in requests) + MARK)
        found = client.replies()
    client.socket.close()
    for at, reply in enumerate(found):
        if len(reply) >= HEADER.size:
            version = HEADER.unpack_from(reply)[8]
            found[at] = reply[:16] + b"#%d#" % seen.setdefault(version, len(seen)) + reply[24:]
    return found


class TextMaker:
    """Lines of the text and meta protocols, some of them wrong. "LAST" is the last version of a reply.

    What differs on purpose (docs/server.md) is not made: lengths that can't be read, flags that mean
    nothing to their command, and binary keys in replies, whose mark memcached loses."""

    TEXTS = [b"", b"0", b"5", b"10", b"5 ", b"abc", b"x" * 40, b"-1", b"4611686018427387903", b"w" * 1_500]
    # What must never be taken for a request.
    COMMANDS = [b"flush_all", b"version", b"mn\r\nmn", b"set z 0 0 1\r\nz", b"quit", b"verbosity 1"]

    def __init__(self, seed, attempt=0):
        self.random = random.Random(seed)
        # Others' keys are not ours. The last is one in base64, too.
        self.keys = [b"%d.%d.%s" % (seed, attempt, name) for name in (b"a", b"b")]
        self.coded = base64.b64encode(b"%d.%d.c" % (seed, attempt))

    def key(self):
        if self.random.random() < 0.02:
            own = self.keys[0]
            return self.random.choice([own.ljust(250, b"k"), own.ljust(251, b"k"), own + b"\x7f\xff"])
        return self.random.choice(self.keys)

    def number(self):
        if self.random.random() < 0.05:
            return self.random.choice([b"x", b"-1", b"1x", b"99999999999999999999999"])
        return self.random.choice([b"0", b"1", b"7", b"100", b"007"])

    def time(self):
        times = [b"0", b"0", b"100", b"-1", b"2592001", b"2000000000", b"x"]
        return self.random.choice(times[: self.random.choice([3, 6, 6, 7])])

    def quiet(self):
        return self.random.choice([b" noreply", b" noreply", b" more"]) if self.random.random() < 0.2 else b""

    def version(self):
        return self.random.choice([b"LAST", b"LAST", b"9000000000000000000"])

    def request(self):
        kind, pick = self.random.random(), self.random.choice
        if kind < 0.5:
            return self.meta()
        if kind < 0.6:
            # Right ones: memcached counts those before a wrong one as asked for.
            keys = b" ".join(pick(self.keys) for _ in range(self.random.randrange(4)))
            return pick([b"get ", b"gets ", b"gets "]) + keys + b"\r\n"
        if kind < 0.65:
            # A long key costs memcached replies.
            return pick([b"gat ", b"gats "]) + self.time() + b" " + pick(self.keys) + b"\r\n"
        if kind < 0.82:
            return self.store()
        if kind < 0.9:
            return pick([b"incr ", b"decr "]) + self.key() + b" " + self.number() + self.quiet() + b"\r\n"
        if kind < 0.94:
            return b"delete " + self.key() + pick([b"", b"", b"", b" 0", b" 5"]) + self.quiet() + b"\r\n"
        if kind < 0.97:
            return b"touch " + self.key() + b" " + self.time() + self.quiet() + b"\r\n"
        return self.rare() + b"\r\n"

    def rare(self):
        return self.random.choice([
            b"flush_all", b"flush_all x", b"flush_all 0 noreply", b"flush_all noreply", b"  flush_all", b"flush_all 0 x",
            b"verbosity", b"verbosity 0", b"verbosity x noreply", b"", b"x", b"xy", b"nonsense", b"nonsense noreply",
            b"noreply", b"  noreply", b"   ", b" get a", b"GET a", b"bget a", b"get", b"gets ", b"gat", b"gat 1",
            b"gats x", b"stats sizes", b"stats nonsense", b"incr", b"incr a", b"decr noreply", b"touch", b"touch a",
            b"delete", b"delete noreply", b"cache_memlimit", b"cache_memlimit 1", b"cache_memlimit x noreply",
            b"cache_memlimit 4000000000", b"shutdown", b"shutdown x",
        ])

    def store(self):
        word = self.random.choice([b"set", b"set", b"add", b"replace", b"append", b"prepend", b"cas"])
        key, flags, time, version, data = self.key(), self.number(), self.time(), b"", self.random.choice(self.TEXTS)
        if flags[0:1] == b"9":
            flags = b"4294967295"
        if word == b"cas":
            version = b" " + self.version()
        if self.random.random() < 0.15:
            data, wrong = self.random.choice(self.COMMANDS), self.random.randrange(4)
            key = b"k" * 251 if wrong == 0 else key
            flags = self.random.choice([b"x", b"-1", b"1x", b"99999999999999999999"]) if wrong == 1 else flags
            time = self.random.choice([b"x", b"1x", b"-", b"0x1"]) if wrong == 2 else time
            if wrong == 3 and word == b"cas":
                version = self.random.choice([b"", b" x", b" -1", b" +1", b" 18446744073709551616"])
        # Not more than there is, which would take in the mark.
        length = b"%d" % len(data) if not data or self.random.random() < 0.97 else b"1"
        return b" ".join([word, key, flags, time, length + version]) + self.quiet() + b"\r\n" + data + b"\r\n"

    def flags(self, letters, key=b""):
        letters = letters + [b"P", b"L"]
        if key == self.coded and self.random.random() < 0.7:
            letters = [b"b"] + [letter for letter in letters if letter != b"k"]
        chosen = self.random.sample(letters, self.random.randrange(min(7, len(letters) + 1)))
        tokens = {b"T": self.time, b"N": self.time, b"R": lambda: self.random.choice([b"30", b"200", b"0", b"-1", b"x", b""]),
                  b"C": self.version, b"F": self.number, b"J": self.number, b"D": self.number,
                  b"E": lambda: self.random.choice([b"3", b"9000000000000000000", b"9000000000000000001", b"x", b""]),
                  b"O": lambda: self.random.choice([b"1", b"abc", b"o" * 31, b""]),
                  b"P": lambda: self.random.choice([b"", b"/path"]), b"L": lambda: self.random.choice([b"", b"5"]),
                  b"M": lambda: self.random.choice(self.modes)}
        return b"".join(b" " + letter + tokens.get(letter, bytes)() for letter in chosen)

    def wrong(self, kinds):
        return self.random.choice(kinds) if self.random.random() < 0.05 else b""

    def meta(self):
        pick = self.random.choice
        kind, key = self.random.random(), self.key() if self.random.random() < 0.8 else self.coded
        wrong = [b" Z", b" k k", b" 5", b" q q Z", b" w"]
        if kind < 0.35:
            letters = [b"v", b"f", b"h", b"k", b"O", b"q", b"s", b"c", b"T", b"N", b"R", b"u", b"E", b"C", b"t"]
            return b"mg " + key + self.flags(letters, key) + self.wrong(wrong + [b" !", b" {", b" v v"]) + b"\r\n"
        if kind < 0.65:
            self.modes = [b"S", b"E", b"A", b"P", b"R", b"set", b"x", b"", b"Set", b"a"]
            data = pick(self.TEXTS)
            letters = [b"c", b"C", b"F", b"I", b"k", b"O", b"q", b"T", b"M", b"s", b"E", b"N"]
            flags = self.flags(letters, key)
            if self.random.random() < 0.1:
                data = pick(self.COMMANDS)
                flags += pick(wrong + [b" O" + b"o" * 32, b" Mx", b" Tx", b" C", b" F1x", b" F F"])
            return b"ms " + key + b" %d" % len(data) + flags + b"\r\n" + data + b"\r\n"
        if kind < 0.8:
            letters = [b"k", b"O", b"q", b"C", b"I", b"T", b"x", b"E", b"F"]
            return b"md " + key + self.flags(letters, key) + self.wrong(wrong + [b" !", b" O" + b"o" * 32]) + b"\r\n"
        if kind < 0.97:
            self.modes = [b"I", b"D", b"+", b"decr", b"Decr", b"-", b"x", b""]
            # Without T: memcached gives the time to the old number, also if a longer one replaces it.
            letters = [b"v", b"c", b"k", b"O", b"q", b"C", b"D", b"J", b"N", b"M", b"E", b"t"]
            return b"ma " + key + self.flags(letters, key) + self.wrong(wrong + [b" !"]) + b"\r\n"
        return pick([b"mn", b"mn x", b"mg", b"md", b"ma ", b"me", b"mx a", b"mx noreply", b"me none", b"me none !", b"mg ==== b", b"mg abc b q"]) + b"\r\n"

    def conversation(self):
        """Requests, and whether each waits for the reply to the one before."""
        requests = [self.request() for _ in range(self.random.randrange(1, 14))]
        waits = self.random.random() < 0.6
        if not waits:
            # Neither versions nor, as in the binary protocol, numbers.
            requests = [one.replace(b"LAST", b"1") for one in requests if not ALONE.match(one)]
        return requests, waits


TEXT_MARK, TEXT_MARKED = b"mg - k Oend\r\n", b"EN k- Oend\r\n"
ALONE = re.compile(rb"incr |decr |ma ")
# What is over has less than nothing left, which memcached tells without its sign.
# The seconds until a moment of the calendar may differ by one.
FAR = re.compile(rb"(?<= t)[0-9]{8,9}(?= |\r\n)")
OVER = re.compile(rb"(?<= t)42949[0-9]{5}(?= |\r\n)")
# Of gets, and of meta commands.
VERSION = re.compile(rb"^(VALUE \S+ \d+ \d+ )(\d+)(?=\r\n)|( c)(\d+)(?= |\r\n)", re.M)


def talk_text(port, conversation):
    """All replies, each up to the mark; versions are numbered in the order in which they are seen."""
    client, found, seen, last = Client(port), [], {b"0": 0}, b"1"
    requests, waits = conversation
    for request in requests if waits else [b"".join(requests)]:
        client.socket.sendall(request.replace(b"LAST", last) + TEXT_MARK)
        while not client.rest.endswith(TEXT_MARKED):
            try:
                more = client.socket.recv(1 << 20)
            except OSError:
                more = b""
            if not more:
                return found + [client.rest + b"EOF"]
            client.rest += more
        reply, client.rest = client.rest.removesuffix(TEXT_MARKED), b""

        def named(match):
            nonlocal last
            version = match[2] or match[4]
            last = version if version != b"0" else last
            number = seen.setdefault(version, len(seen))
            return (match[1] or match[3]) + b"#%d#" % number

        found.append(FAR.sub(b"far", OVER.sub(b"0", VERSION.sub(named, reply))))
    client.socket.close()
    return found


def compare(maker, talk, one, other, seed, count):
    kinds, again = {}, 0
    for number in range(seed, seed + count):
        # Now and then memcached holds an item itself for a moment, and stores a number otherwise.
        for attempt in range(3):
            conversation = maker(number, attempt).conversation()
            first, second = talk(one, conversation), talk(other, conversation)
            again += attempt
            if first == second:
                break
        for reply in first:
            kind = kind_of(reply)
            kinds[kind] = kinds.get(kind, 0) + 1
        if first != second:
            tell(number, conversation, first, second)
            sys.exit(1)
    counts = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    print(f"{count} conversations from seed {seed} on are the same, {again} at a later attempt; "
          f"replies: {counts}")


def kind_of(reply):
    """A status, or the first word."""
    if reply[:1] == b"\x81":
        return reply[6:8].hex()
    word = (reply.split() or [b"nothing"])[0]
    return "number" if word.isdigit() else word.decode(errors="replace")[:20]


def tell(number, conversation, first, second):
    print(f"seed {number}")
    for request in conversation[0]:
        print("  >", str(request)[:200])
    for a, b in zip_longest(first, second):
        print("  <" if a == b else "  < DIFFERS", str(a)[:200], "" if a == b else str(b)[:200])


def record(port, seed, count):
    dots = "." * 16
    print("# Conversations and memcached 1.6.45's replies, each with a fresh server, packet by packet. Dots")
    print("# stand for a version; in a request for the last that a reply had. Recorded from the program")
    print(f"# itself: converse.py record PORT {seed} {count}")
    for number in range(seed, seed + count):
        requests, _ = Maker(number).conversation()
        if any(len(request[3]) > 100 for request in requests):
            continue
        client, said = Client(port), b""
        sent = []
        for request in requests:
            is_last, text = request[4] == "last" and client.last, as_bytes(request, 0).hex()
            sent.append(text[:32] + dots + text[48:] if is_last else text)
            said += b"".join(client.ask(request))
        print(">", *sent)
        print("<", *[text for text in hexes(said, dots)])


def hexes(said, dots):
    while len(said) >= HEADER.size:
        head = HEADER.unpack_from(said)
        size = HEADER.size + head[6]
        text = said[:size].hex()
        yield text[:32] + (dots if head[8] else text[32:48]) + text[48:]
        said = said[size:]
    if said:
        yield said.decode()


ESCAPES = {b"\\r": b"\r", b"\\n": b"\n", b"\\t": b"\t", b"\\\\": b"\\"}


def again(program, file):
    """Prints a file of conversations with what a fresh server says in each."""
    for line in open(file, "rb").read().splitlines():
        if not line.startswith(b"<"):
            print(line.decode("latin-1"))
        if line.startswith(b">"):
            sent = re.sub(rb"\\[rnt\\]", lambda found: ESCAPES[found[0]], line[1:].lstrip())
            reply = said_by(program, sent)
            for plain, escaped in ((b"\\", b"\\\\"), (b"\r", b"\\r"), (b"\n", b"\\n"), (b"\t", b"\\t")):
                reply = reply.replace(plain, escaped)
            print("< " + reply.decode("latin-1"))


def said_by(program, sent):
    """What a fresh server says, until it is silent for a while or closes."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "socket")
        user = ["-u", "root"] if os.geteuid() == 0 else []
        server = subprocess.Popen([program, "-s", path, "-t", "1", *user])
        client = socket.socket(socket.AF_UNIX)
        for _ in range(200):
            try:
                client.connect(path)
                break
            except OSError:
                time.sleep(0.02)
        client.sendall(sent)
        client.settimeout(0.3)
        said = b""
        try:
            while more := client.recv(1 << 20):
                said += more
            said += b"<EOF>"
        except (socket.timeout, ConnectionResetError):
            pass
        server.kill()
        server.wait()
        return said


what, *numbers = sys.argv[1:]
if what == "again":
    again(*numbers)
    sys.exit()
numbers = [int(number) for number in numbers]
if what == "binary":
    compare(Maker, talk, *numbers)
elif what == "text":
    compare(TextMaker, talk_text, *numbers)
else:
    record(*numbers)
