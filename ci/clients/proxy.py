"""Three servers behind twemproxy with ketama; one is killed and comes back. Called by clients.sh.

proxy.py SERVER PROXY: the two programs.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

server, proxy = sys.argv[1:3]
KEYS = [f"key{number}" for number in range(300)]
LONG = 30.0

folder = tempfile.TemporaryDirectory()
running = {}


def wait_for(what, find):
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        found = find()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited in vain for {what}")


def start(name, port=-1):
    told = os.path.join(folder.name, name)
    if os.path.exists(told):
        os.remove(told)
    environment = dict(os.environ, MEMCACHED_PORT_FILENAME=told)
    words = [server, "-u", "root", "-p", str(port), "-t", "1"]
    running[name] = subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL)
    wait_for(f"the port of {name}", lambda: os.path.exists(told))
    with open(told) as file:
        return int(file.readline().split(": ")[1])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Client:
    """One that takes an error for an answer."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=LONG)
        self.file = self.socket.makefile("rb")

    def line(self):
        line = self.file.readline()
        assert line.endswith(b"\r\n"), "the connection has ended"
        return line[:-2].decode()

    def set(self, key, value):
        self.socket.sendall(f"set {key} 0 0 {len(value)}\r\n{value}\r\n".encode())
        reply = self.line()
        assert reply == "STORED" or reply.startswith("SERVER_ERROR"), reply
        return reply == "STORED"

    def get(self, key):
        """The value, None for a miss, or False for an error."""
        self.socket.sendall(f"get {key}\r\n".encode())
        head = self.line()
        if head == "END":
            return None
        if head.startswith("SERVER_ERROR"):
            return False
        assert head.startswith(f"VALUE {key} 0 "), head
        value = self.line()
        assert self.line() == "END"
        return value

    def items(self):
        self.socket.sendall(b"stats\r\n")
        items = None
        while (line := self.line()) != "END":
            if line.startswith("STAT curr_items "):
                items = int(line.split()[2])
        return items


def right(client):
    """Who has its value; nobody has another's. None if there was an error."""
    found = {key: client.get(key) for key in KEYS}
    assert all(value in (None, False, f"value of {key}") for key, value in found.items()), found
    return None if False in found.values() else {key for key in KEYS if found[key]}


def fill(client):
    """True if every key was taken, and is there."""
    done = [client.set(key, f"value of {key}") for key in KEYS]
    return all(done) and right(client) == set(KEYS)


try:
    ports = {name: start(name) for name in ("one", "two", "three")}
    port = free_port()
    config = os.path.join(folder.name, "config.yml")
    with open(config, "w") as file:
        print("pool:", f"  listen: 127.0.0.1:{port}", "  hash: fnv1a_64", sep="\n", file=file)
        print("  distribution: ketama", "  auto_eject_hosts: true", sep="\n", file=file)
        print("  server_failure_limit: 1", "  server_retry_timeout: 2000", sep="\n", file=file)
        print("  timeout: 5000", "  servers:", sep="\n", file=file)
        for name, number in ports.items():
            print(f"   - 127.0.0.1:{number}:1 {name}", file=file)
    log = os.path.join(folder.name, "log")
    words = [proxy, "-c", config, "-o", log, "-a", "127.0.0.1", "-s", str(free_port())]
    running["proxy"] = subprocess.Popen(words, stderr=subprocess.DEVNULL)

    def connect():
        try:
            return Client(port)
        except ConnectionRefusedError:
            return None

    client = wait_for("the proxy", connect)
    assert fill(client)
    parts = {name: Client(number).items() for name, number in ports.items()}
    assert sum(parts.values()) == len(KEYS) and min(parts.values()) > 0, parts

    # One is killed: its keys go elsewhere, and no others.
    own = Client(ports["two"])
    lost = {key for key in KEYS if own.get(key)}
    assert len(lost) == parts["two"]
    running["two"].kill()
    running["two"].wait()
    # The proxy tries it again now and then, which costs a request or two an error.
    left = wait_for("the others", lambda: right(client))
    assert left == set(KEYS) - lost, "another server's keys have moved"
    wait_for("all keys on two servers", lambda: fill(client))

    # It comes back, with nothing, and gets the same keys as before.
    start("two", ports["two"])
    own = Client(ports["two"])
    wait_for("all keys on three servers", lambda: fill(client) and own.items() == len(lost))
    assert {key for key in KEYS if own.get(key)} == lost
    for name in ports:
        running[name].send_signal(signal.SIGTERM)
        assert running.pop(name).wait(LONG) == 0, name
finally:
    for process in running.values():
        process.kill()
        process.wait()
    folder.cleanup()
