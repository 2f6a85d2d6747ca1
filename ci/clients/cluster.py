"""Three servers behind twemproxy and behind the ketama of libmemcached and spymemcached: one is
killed and comes back, is cut off and comes back with what it had, and a fourth joins and leaves.
Each row of the table in docs/cluster.md is checked here, under its name. Called by clients.sh.

    cluster.py SERVER PROXY JAVA_CLASSES

PROXY or JAVA_CLASSES (Ring.java and spymemcached, as a class path) is - where it is not there;
libmemcached comes with pylibmc. The proxy's configuration and warm.py are those of docs/cluster.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

try:
    import pylibmc
except ImportError:
    pylibmc = None

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLE = os.path.join(ROOT, "docs", "cluster")
WARM = os.path.join(EXAMPLE, "warm.py")
sys.dont_write_bytecode = True
sys.path.insert(0, EXAMPLE)
import warm  # noqa: E402

server_program, proxy_program, java_classes = sys.argv[1:4]
LONG = 40.0
COUNT = 300
ERROR = object()
folder = tempfile.TemporaryDirectory()
cleanup = contextlib.ExitStack()
running = {}
ports = {}
rows = set()


def wait_for(what, find):
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        if found := find():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited in vain for {what}")


def checked(row, what):
    rows.add(row)
    print(f"  {row}: {what}", flush=True)


def spawn(name, words, **options):
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, **options)
    running[name] = process
    return process


def start(name):
    """A server, at the port that it picked when it was first started."""
    told = os.path.join(folder.name, name)
    with contextlib.suppress(FileNotFoundError):
        os.remove(told)
    environment = dict(os.environ, MEMCACHED_PORT_FILENAME=told)
    words = [server_program, "-u", "root", "-p", str(ports.get(name, -1)), "-t", "1"]
    spawn(name, words, env=environment)
    wait_for(f"the port of {name}", lambda: os.path.exists(told))
    with open(told) as file:
        ports[name] = int(file.readline().split(": ")[1])


def kill(name):
    running[name].kill()
    running.pop(name).wait()


def stop(name):
    """Returns when no thread of the server runs any more."""
    process = running[name]
    process.send_signal(signal.SIGSTOP)
    tasks = f"/proc/{process.pid}/task"

    def all_stopped():
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/stat") as file:
                if file.read().rpartition(") ")[2][0] != "T":
                    return False
        return True

    wait_for(f"{name} to stop", all_stopped)


def address(name):
    return f"127.0.0.1:{ports[name]}"


def ring(names):
    """The name of the server that owns a key, by warm.py's ring."""
    by_address = {address(name): name for name in names}
    found = warm.Ring(list(by_address))
    return lambda key: by_address[found.owner(key.encode())]


class Direct(warm.Server):
    """A connection to one server, past every ring."""

    def __init__(self, name):
        super().__init__(address(name))

    def ask(self, *requests):
        """The first line of each reply. So many requests at a time that none has to wait."""
        replies = []
        for first in range(0, len(requests), 500):
            part = requests[first : first + 500]
            self.send(*(request.encode() + b"\r\n" for request in part))
            self.flush()
            replies += [self.line().decode() for _ in part]
        return replies

    def values(self):
        """All items: values by key."""
        assert self.ask("lru_crawler mgdump hash") == ["OK"]
        keys = []
        while (line := self.line()) != b"EN":
            keys.append(line.split(b" ")[1])
        found = {}
        for first in range(0, len(keys), 500):
            part = keys[first : first + 500]
            self.send(*(b"mg " + key + b" u v\r\n" for key in part))
            self.flush()
            for key in part:
                if size := self.line().split(b" ")[1:]:
                    found[key.decode()] = self.data(int(size[0]))[:-2].decode()
        return found


def values(name):
    with Direct(name) as direct:
        return direct.values()


class Proxy:
    """twemproxy with the example's configuration, at other addresses and with shorter times."""

    name = "twemproxy"

    def __init__(self, names, fails_over=True):
        with socket.socket() as probe, socket.socket() as stats:
            probe.bind(("127.0.0.1", 0))
            stats.bind(("127.0.0.1", 0))
            port, stats_port = probe.getsockname()[1], stats.getsockname()[1]
        with open(os.path.join(EXAMPLE, "twemproxy.yml")) as file:
            text = file.read()
        text = re.sub(r"   - 10\..*\n", "", text)
        for word, value in (
            ("listen", f"127.0.0.1:{port}"),
            ("server_retry_timeout", "3000"),
            ("timeout", "1500"),
            ("auto_eject_hosts", "true" if fails_over else "false"),
        ):
            text, count = re.subn(rf"(?m)^(  {word}:) \S+", rf"\1 {value}", text)
            assert count == 1, word
        text += "".join(f"   - {address(name)}:1\n" for name in names)
        self.fails_over = fails_over
        config = os.path.join(folder.name, f"proxy{port}.yml")
        with open(config, "w") as file:
            file.write(text)
        words = [proxy_program, "-c", config, "-o", config + ".log"]
        spawn(config, [*words, "-a", "127.0.0.1", "-s", str(stats_port)])

        def connect():
            with contextlib.suppress(ConnectionRefusedError):
                return socket.create_connection(("127.0.0.1", port), timeout=LONG)

        self.socket = wait_for("the proxy", connect)
        self.file = self.socket.makefile("rb")

    def ask(self, sent):
        self.socket.sendall(sent.encode())
        return self.file.readline().decode().rstrip()

    def set(self, key, value):
        reply = self.ask(f"set {key} 0 0 {len(value)}\r\n{value}\r\n")
        assert reply == "STORED" or reply.startswith("SERVER_ERROR"), reply
        return reply == "STORED"

    def get(self, key):
        reply = self.ask(f"get {key}\r\n")
        if reply == "END":
            return None
        if reply.startswith("SERVER_ERROR"):
            return ERROR
        assert reply.startswith(f"VALUE {key} 0 "), reply
        value = self.file.readline().decode().rstrip()
        assert self.file.readline() == b"END\r\n"
        return value


class Libmemcached:
    """libmemcached's weighted ketama, which leaves a dead server out (remove_failed) or not."""

    name = "libmemcached"

    def __init__(self, names, fails_over=True):
        self.fails_over = fails_over
        behaviors = {"ketama_weighted": True, "connect_timeout": 2000, "_poll_timeout": 2000}
        if fails_over:
            behaviors |= {"remove_failed": 1, "retry_timeout": 1, "dead_timeout": 3}
        self.client = pylibmc.Client([address(name) for name in names], behaviors=behaviors)

    def set(self, key, value):
        try:
            return self.client.set(key, value)
        except pylibmc.Error:
            return False

    def get(self, key):
        try:
            return self.client.get(key)
        except pylibmc.Error:
            return ERROR


class Spymemcached:
    """spymemcached's ketama in libmemcached's format: Redistribute, or Cancel."""

    name = "spymemcached"

    def __init__(self, names, fails_over=True):
        self.fails_over = fails_over
        mode = "Redistribute" if fails_over else "Cancel"
        words = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", java_classes]
        words += ["Ring", mode, "1500", *map(address, names)]
        pipe = subprocess.PIPE
        self.process = spawn(self, words, stdin=pipe, stdout=pipe, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip()

    def set(self, key, value):
        reply = self.ask(f"set {key} {value}")
        assert reply == "STORED" or reply.startswith("ERROR"), reply
        return reply == "STORED"

    def get(self, key):
        word, _, rest = self.ask(f"get {key}").partition(" ")
        assert word in ("VALUE", "MISS", "ERROR"), word
        return {"VALUE": rest, "MISS": None, "ERROR": ERROR}[word]


class Load:
    """A client with keys of its own. `lost` are the keys of a dead server for which the client
    finds no other one."""

    def __init__(self, kind, names, fails_over=True):
        self.client = kind(names, fails_over)
        self.name = kind.name if fails_over else f"{kind.name} without failover"
        self.keys = [f"{self.name.replace(' ', '-')}-{number}" for number in range(COUNT)]
        self.at(names)
        self.lost = set()

    def at(self, names):
        owner = ring(names)
        self.owners = {key: owner(key) for key in self.keys}

    def of(self, name):
        return {key for key in self.keys if self.owners[key] == name} - self.lost

    def write(self, value, keys=None):
        """Writes until each key was taken once."""
        left = set(self.keys if keys is None else keys) - self.lost

        def all_taken():
            left.difference_update([key for key in left if self.client.set(key, value)])
            return not left

        wait_for(f"{self.name} to write {value}", all_taken)

    def read(self):
        return {key: self.client.get(key) for key in self.keys if key not in self.lost}

    def settled(self, find=lambda found: True):
        """What is read when no read is an error any more, and `find` agrees."""

        def look():
            found = self.read()
            return found if ERROR not in found.values() and find(found) else None

        return wait_for(f"{self.name} to settle", look)


def misses(found):
    return {key for key, value in found.items() if value is None}


def with_value(found, value):
    return {key for key, there in found.items() if there == value}


def share(part, of):
    return f"{len(part)} of {of}"


def run_warm(*words):
    done = subprocess.run([sys.executable, WARM, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def all_are_up(loads):
    """The row `up`."""
    for load in loads:
        load.write("v1")
    held = {name: values(name) for name in ports}
    for load in loads:
        for key in load.keys:
            at = [name for name in ports if key in held[name]]
            assert at == [load.owners[key]], (load.name, key, at)
    checked("up", f"{len(loads)} clients place {COUNT} keys each where warm.py's ring does")


def find_orphans(load):
    """Keys of a dead server for which spymemcached tries no other: their reads stay errors."""
    if load.name == "spymemcached":
        orphans = load.of("two")
        for _ in range(3):
            orphans = {key for key in orphans if load.client.get(key) is ERROR}
        assert len(orphans) < COUNT / 20, orphans
        load.lost = orphans


def one_dies(loads, no_failover):
    """The rows `dies` and `dies, no failover`."""
    kill("two")
    for load in loads:
        first = load.read()
        find_orphans(load)
        errors = with_value(first, ERROR) - load.lost
        # Two or three, and some more if the client tries the server again now.
        assert len(errors) < 12, errors
        found, lost = load.settled(), load.of("two")
        assert misses(found) == lost, "another server's keys have moved"
        assert with_value(found, "v1") == set(found) - lost
        assert 0.2 * COUNT < len(lost) < 0.47 * COUNT, len(lost)
        load.write("v2")
        assert with_value(load.settled(), "v2") == set(found)
        said = f"{share(lost, COUNT)} keys miss behind {len(errors)} errors"
        checked("dies", f"{load.name}: {said}, {len(load.lost)} stay errors")
    for load in no_failover:
        lost = load.of("two")

        def only_its_keys(load=load, lost=lost):
            found = load.read()
            assert with_value(found, "v1") >= set(found) - lost
            return with_value(found, ERROR) == lost

        wait_for(f"errors of {load.name}", only_its_keys)
        assert not any(load.client.set(key, "v2") for key in sorted(lost)[:20])
        checked("dies, no failover", f"{load.name}: {share(lost, COUNT)} keys are errors")


def it_returns_cold(loads, no_failover):
    """The row `returns cold`."""
    start("two")
    for load in loads + no_failover:
        lost = load.of("two")
        found = load.settled(lambda found, lost=lost: misses(found) == lost)
        assert with_value(found, "v1" if load in no_failover else "v2") == set(found) - lost
        checked("returns cold", f"{load.name}: {share(lost, COUNT)} keys miss, nothing is stale")


def it_is_cut_off(loads):
    """The rows `fails again`, `cut off` and `late write`, and the cure of all three."""
    for load in loads:
        load.write("v3")
    owner, direct = ring(ports), Direct("two")
    late, brief = [key for key in (f"late{n}" for n in range(COUNT)) if owner(key) == "two"][:2]
    assert direct.ask(f"set {brief} 0 2 2\r\nv3") == ["STORED"]
    over = time.monotonic() + 3
    stop("two")
    direct.socket.settimeout(0.2)
    try:
        raise AssertionError(direct.ask(f"set {late} 0 0 2\r\nv4"))
    except TimeoutError:
        direct.socket.close()
    for load in loads:
        found, moved = load.settled(), load.of("two")
        assert with_value(found, "v2") == moved, "what was written when it was dead"
        assert with_value(found, "v3") == set(found) - moved
        checked("fails again", f"{load.name}: {share(moved, COUNT)} keys are stale")
        load.write("v4")
        assert with_value(load.settled(), "v4") == set(found)
    wait_for("the end of a short item's time", lambda: time.monotonic() > over)
    running["two"].send_signal(signal.SIGCONT)
    with Direct("two") as direct:
        assert direct.ask(f"mg {brief} s") == ["EN"], "its time has stood still"
        wait_for("the late write", lambda: direct.ask(f"mg {late} s") == ["HD s2"])
    checked("late write", "a write that had timed out is there")
    checked("cut off", "an item with a TTL of 2 s is over")
    for load in loads:
        own, there = load.of("two"), values("two")
        # The first write that found it cut off may have been late, too.
        stale = {key for key in own if there[key] == "v3"}
        assert stale | with_value(there, "v4") >= own and len(stale) > len(own) - 5
        found = load.settled(lambda found, own=own: all(found[key] == there[key] for key in own))
        assert with_value(found, "v4") == set(found) - stale
        checked("cut off", f"{load.name}: {share(stale, COUNT)} keys are stale")
    with Direct("two") as direct:
        assert direct.ask("flush_all") == ["OK"]
    for load in loads:
        assert misses(load.settled()) == load.of("two")
    servers = ",".join(map(address, ports))
    for neighbour in ("one", "three"):
        run_warm("--ring", servers, "--move", address(neighbour), address("two"))
    left = {**values("one"), **values("three")}
    for load in loads:
        found = load.settled()
        assert with_value(found, "v4") == set(found)
        assert not load.of("two") & set(left), "copies at the neighbours"
    for row in ("fails again", "cut off"):
        checked(row, "after flush_all and warm.py --move nothing is stale, missing or left")


BULK = {f"bulk{number}": f"{number:0100}" for number in range(8000)}


def fill_bulk():
    owner = ring(ports)
    for name in ports:
        own = [key for key in BULK if owner(key) == name]
        with Direct(name) as direct:
            replies = direct.ask(*(f"set {key} 7 900 100\r\n{BULK[key]}" for key in own))
        assert set(replies) == {"STORED"}


def odd_items(names):
    """Items at `one` that belong to `four`, by what is odd about them: keys, and their requests."""
    owner = ring(names)
    own = [key for key in (f"odd{number}" for number in range(200)) if owner(key) == "four"]
    binary = next(
        text
        for text in (f"odd key {number}" for number in range(200))
        if owner(text) == "four"
    )
    encoded = warm.base64.b64encode(binary.encode()).decode()
    year = 365 * 86400 + int(time.time())
    requests = {
        own[0]: f"ms {own[0]} 1 T{year}\r\nx",
        own[1]: f"ms {own[1]} 1 F4294967295\r\nx",
        own[2]: f"ms {own[2]} 0\r\n",
        own[3]: f"ms {own[3]} 4\r\n\r\n\r\n",
        encoded + " b": f"ms {encoded} 1 b T100\r\nx",
        own[4]: f"ms {own[4]} 1\r\nx\r\nmd {own[4]} I T100",
    }
    with Direct("one") as direct:
        assert direct.ask(*requests.values()) == ["HD"] * len(requests)
        assert direct.line() == b"HD", "marked as stale"
    return list(requests)


def check_odd_items(keys):
    with Direct("four") as direct:
        year, flags, empty, lines, encoded, stale = direct.ask(*(f"mg {key} s t f" for key in keys))
    assert re.fullmatch(r"HD s1 t31[45]\d{5} f0", year), year
    assert flags == "HD s1 t-1 f4294967295" and empty == "HD s0 t-1 f0", (flags, empty)
    assert lines == "HD s4 t-1 f0" and stale == "EN", (lines, stale)
    assert re.fullmatch(r"HD s1 t(100|[5-9]\d) f0", encoded), encoded


class ChangedBeside(warm.Copier):
    """Copies an item that changes at its old server before it is deleted there."""

    def stored(self, words):
        with Direct("one") as direct:
            assert direct.ask(f"set {words.decode()} 0 0 1\r\ny") == ["STORED"]
        return super().stored(words)


def check_move_of_a_changed_item():
    with Direct("one") as source, Direct("four") as target:
        assert source.ask("set changed 0 0 1\r\nx") == ["STORED"]
        ChangedBeside(source, target, move=True).batch([b"changed"])
        assert target.ask("mg changed s") == ["HD s1"]
        assert source.ask("mg changed s") == ["HD s1"], "a newer value is deleted"
        assert source.ask("delete changed") == target.ask("delete changed") == ["DELETED"]


def a_fourth_joins(kinds, loads):
    """The rows `joins` and `lists differ`; the clients with four servers."""
    fill_bulk()
    old = list(ports)
    start("four")
    pairs = []
    for kind, load in zip(kinds, loads):
        new = Load(kind, list(ports))
        new.lost = load.lost
        found, moved = new.settled(), new.of("four")
        assert misses(found) == moved and with_value(found, "v4") == set(found) - moved
        assert all(new.owners[key] in ("four", load.owners[key]) for key in new.keys)
        assert 0.13 * COUNT < len(moved) < 0.4 * COUNT, len(moved)
        checked("joins", f"{load.name}: {share(moved, COUNT)} keys miss, the others are found")
        # Half of them are written by clients that know of it.
        written = set(sorted(moved)[::2])
        new.write("v5", written)
        assert with_value(load.settled(), "v4") == set(found)
        checked("lists differ", f"{load.name}: clients with the old list find {len(written)} stale")
        pairs.append((load, new, written))
    assert list(ports) == [*old, "four"]
    return pairs


def it_is_warmed(pairs):
    """The row `warm`."""
    owner = ring(ports)
    own = sorted(key for key in BULK if owner(key) == "four")
    odd = odd_items(ports)
    with Direct("four") as direct:
        assert set(direct.ask(*(f"mg {key} s" for key in own))) == {"EN"}
        assert direct.ask(f"delete {own[0]}") == ["NOT_FOUND"]
    # Beside the copying, the other half is written.
    writers = []
    for _, new, written in pairs:
        rest = new.of("four") - written
        writers.append(threading.Thread(target=new.write, args=("v5", rest)))
    words = ["--ring", ",".join(map(address, ports)), "--rate", "1000"]
    begin = time.monotonic()
    for writer in writers:
        writer.start()
    said = [run_warm(*words, address(name), address("four")) for name in ("one", "two", "three")]
    took = time.monotonic() - begin
    for writer in writers:
        writer.join()
    copied = sum(int(re.search(r"(\d+) copied", line).group(1)) for line in said)
    assert copied >= len(own) and took > copied / 1000, (copied, took)
    with Direct("four") as direct:
        replies = direct.ask(*(f"mg {key} s f t" for key in own))
    assert all(re.fullmatch(r"HD s100 f7 t(900|8\d\d)", reply) for reply in replies)
    found = values("four")
    assert all(found[key] == BULK[key] for key in own)
    assert not any(owner(key) != "four" for key in found if " " not in key and "=" not in key)
    check_odd_items(odd)
    checked("warm", f"0 of {len(own)} keys hit before, all after; {copied} items in {took:.1f} s")
    checked("warm", "a deletion before the copy is undone")
    for _, new, _ in pairs:
        found, moved = new.settled(), new.of("four")
        assert with_value(found, "v5") == moved, "a newer value is overwritten"
        assert with_value(found, "v4") == set(found) - moved
        checked("warm", f"{new.name}: {len(moved)} values written before and beside it stay")


def the_fourth_leaves(pairs):
    """The row `leaves`, and its cure: clients with the old list are those that it has left."""
    for load, new, _ in pairs:
        found, moved = load.settled(), new.of("four")
        assert with_value(found, "v4") == set(found)
        checked("leaves", f"{load.name}: {share(moved, COUNT)} keys would be stale")
    check_move_of_a_changed_item()
    for name in ("one", "two", "three"):
        words = ["--ring", ",".join(map(address, ports)), "--move"]
        run_warm(*words, address(name), address("four"))
    for load, new, _ in pairs:
        found, moved = load.settled(), new.of("four")
        assert misses(found) == moved and with_value(found, "v4") == set(found) - moved
        assert with_value(new.settled(), "v5") == moved
        checked("leaves", f"{load.name}, after warm.py --move: they miss")


def main():
    kinds = []
    if proxy_program != "-":
        kinds.append(Proxy)
    if pylibmc:
        kinds.append(Libmemcached)
    if java_classes != "-":
        kinds.append(Spymemcached)
    if not kinds:
        print("SKIPPED: no client with ketama")
        return
    for name in ("one", "two", "three"):
        start(name)
    loads = [Load(kind, list(ports)) for kind in kinds]
    no_failover = [Load(kind, list(ports), False) for kind in kinds]
    all_are_up(loads + no_failover)
    one_dies(loads, no_failover)
    it_returns_cold(loads, no_failover)
    it_is_cut_off(loads)
    pairs = a_fourth_joins(kinds, loads)
    it_is_warmed(pairs)
    the_fourth_leaves(pairs)
    for name in ports:
        running[name].send_signal(signal.SIGTERM)
        assert running.pop(name).wait(LONG) == 0, name
    with open(os.path.join(ROOT, "docs", "cluster.md")) as file:
        promised = set(re.findall(r"(?m)^\| `([a-z, ]+)` \|", file.read()))
    assert promised == rows, promised ^ rows


try:
    main()
finally:
    for process in running.values():
        process.kill()
        process.wait()
    folder.cleanup()
