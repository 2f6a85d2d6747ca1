"""What libmemcached's tools do to a server, in both protocols. Called by clients.sh.

    tools.py FOLDER PORT: the folder of the programs, and the server's port.
"""

import os
import re
import subprocess
import sys
import tempfile

programs, port = sys.argv[1:3]
SERVER = f"--servers=127.0.0.1:{port}"
LIMIT = 60


def run(name, *words, fails=False):
    """What the tool prints; it must end with 0, or with something else if it `fails`."""
    command = [os.path.join(programs, name), SERVER, *words]
    done = subprocess.run(command, capture_output=True, timeout=LIMIT)
    assert (done.returncode != 0) == fails, (command, done)
    return done.stdout


def files(binary):
    """Files in, out, listed and removed; a large one, and one that is too large."""
    mode = ["--binary"] if binary else []
    run("memcping")
    run("memcflush", *mode)
    sizes = {"empty": 0, "line": 1, "small": 100, "large": 1_000_000}
    contents = {name: os.urandom(size) for name, size in sizes.items()}
    contents["line"] = b"\r\nEND\r\nVALUE small 0 1\r\n"
    for name, content in contents.items():
        with open(name, "wb") as file:
            file.write(content)
    with open("larger", "wb") as file:
        file.write(b"v" * 1_100_000)
    run("memccp", *mode, "--set", *contents)
    for name, content in contents.items():
        run("memcexist", *mode, name)
        run("memccat", *mode, f"--file=copy of {name}", name)
        with open(f"copy of {name}", "rb") as file:
            assert file.read() == content, name
    both = contents["small"] + b"\n" + contents["line"] + b"\n"
    assert run("memccat", *mode, "small", "line") == both
    run("memccp", *mode, "--add", "small", fails=True)
    run("memccp", *mode, "--replace", "small")
    run("memccp", *mode, "--set", "larger", fails=True)
    run("memccat", *mode, "larger", fails=True)
    run("memccat", *mode, "none", fails=True)
    run("memctouch", *mode, "--expire=1000", "small")
    run("memctouch", *mode, "--expire=1000", "none", fails=True)
    run("memcrm", *mode, "small", "large")
    run("memcexist", *mode, "small", fails=True)
    assert sorted(run("memcdump").decode().split()) == ["empty", "line"]
    run("memcflush", *mode)
    assert run("memcdump") == b""


def facts():
    with open("item", "w") as file:
        file.write("x")
    run("memccp", "item")
    stats = run("memcstat").decode()
    assert re.search(r"\bthreads: 2\b", stats) and re.search(r"\bversion: 1\.6", stats), stats
    for word in ("items", "slabs", "settings"):
        assert run("memcstat", word), word
    run("memcstat", "--server-version")


def loads():
    for test in ("set", "get", "mget"):
        for mode in ([], ["--binary"]):
            words = [f"--test={test}", "--concurrency=4", "--execute-number=500", "--flush"]
            run("memcslap", *words, *mode)
    run("memcslap", "--test=set", "--concurrency=2", "--execute-number=500", "--non-blocking")
    if os.path.exists(os.path.join(programs, "memcaslap")):
        for mode in ([], ["--binary"], ["--division=16"]):
            words = ["--threads=1", "--concurrency=8", "--execute_number=4000", "--verify=1"]
            said = run("memcaslap", *words, *mode).decode()
            assert re.search(r"get_misses: 0\n(.*\n)*verify_failed: 0\n", said), said


def capable():
    """libmemcached's tests of a server. Two want an error for `delete` with many words behind the
    key, which memcached 1.6.45 ignores, too."""
    command = [os.path.join(programs, "memccapable"), "-h", "127.0.0.1", "-p", port, "-t", "10"]
    done = subprocess.run(command, capture_output=True, timeout=LIMIT, text=True)
    passed = re.findall(r"(?m)^(\w[\w ]*?) +\[pass\]$", done.stdout)
    failed = re.findall(r"(ascii delete noreply|ascii delete) {2,}(?!\[)", done.stdout)
    assert len(passed) == 52 and failed == ["ascii delete", "ascii delete noreply"], done


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    files(False)
    files(True)
    facts()
    loads()
    capable()
