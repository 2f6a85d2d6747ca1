#!/usr/bin/env python3
"""Counts instructions and locked instructions of a call, for ci/instructions.sh.

    instructions.py PROGRAM [CASE]...

Writes a line for each case of PROGRAM: instructions, locked ones, name. Needs valgrind and objdump.
The loop around the call is counted, too: three instructions, and some five more that make a key.
"""
import collections
import concurrent.futures
import functools
import os
import re
import subprocess
import sys
import tempfile

CALLS = 1000
LOCKED = re.compile(r"\s*([0-9a-f]+):\s+(?:lock |xchg .*\()")
POSITION = re.compile(r"0x[0-9a-f]+ |[-+*]")


@functools.cache
def locked_instructions(path):
    """The addresses in a file of instructions that lock a line."""
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True
    ).stdout
    return {int(found.group(1), 16) for found in map(LOCKED.match, listing.splitlines()) if found}


def costs(lines):
    """What each instruction of a callgrind file cost: {(file, address): count}."""
    names, found = {}, collections.Counter()
    path, address, is_call = None, 0, False
    for line in lines:
        if line.startswith(("ob=", "cob=")):
            kind, _, text = line.strip().partition("=")
            number, _, name = text.partition(" ")
            name = names.setdefault(number, name)
            path = name if kind == "ob" else path
        elif line.startswith("calls="):
            is_call = True
        elif POSITION.match(line):
            position, *rest = line.split()
            at = address
            if position.startswith("0x"):
                at = int(position, 16)
            elif position != "*":
                at += int(position, 16) if position[1:].startswith("0x") else int(position)
            # The line after "calls=" has the cost of the function that was called, and the next
            # position is not relative to it.
            if not is_call:
                found[path, at] += int(rest[-1])
                address = at
            is_call = False
    return found


def count(program, case, folder):
    """Instructions and locked instructions of a call."""
    file = os.path.join(folder, re.sub(r"\W", "-", case))
    command = ["valgrind", "--quiet", "--tool=callgrind", "--dump-instr=yes", "--dump-line=no"]
    command += ["--collect-atstart=no", "--toggle-collect=*measured*"]
    command += ["--zero-before=*counted_from_here*", f"--callgrind-out-file={file}"]
    run = subprocess.run(command + [program, case], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise SystemExit(f"{case}: {run.stderr}")
    with open(file, encoding="utf-8", errors="replace") as lines:
        found = costs(lines)
    os.remove(file)
    every = sum(found.values())
    locked = sum(
        times
        for (path, address), times in found.items()
        if os.path.exists(path) and address in locked_instructions(path)
    )
    return round(every / CALLS), locked / CALLS


def main():
    program, *cases = sys.argv[1:]
    if not cases:
        listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True)
        cases = listed.stdout.splitlines()
    with tempfile.TemporaryDirectory() as folder:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            counted = pool.map(lambda case: count(program, case, folder), cases)
            for case, (every, locked) in zip(cases, counted):
                print(f"{every:6} {locked:5.1f}  {case}", flush=True)


main()
