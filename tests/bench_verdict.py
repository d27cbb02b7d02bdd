#!/usr/bin/env python3
"""What it costs to judge a recorded file, beside reading its rows once with the stock shell.

  bench_verdict.py BUILD-FOLDER [FILE]

Without a file: one of SEQUENCES (250) sequences of ROWS (2,000) positions in two arms. Commands take
turns, RUNS (3) times; processor time, wall time and memory are medians, the ratio is of the processor
times of one round.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

PLAIN = "SELECT count(*), sum(pos), sum(length(topk)) FROM logits NOT INDEXED"


def run(args):
    """Processor seconds, wall seconds and MB of a command whose output is not wanted."""
    start = time.monotonic()
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawnp(args[0], args, os.environ, file_actions=quiet)
    _, status, usage = os.wait4(pid, 0)
    wall = time.monotonic() - start
    if os.waitstatus_to_exitcode(status) not in (0, 3, 4):  # 3 and 4 are verdicts
        sys.exit(f"{' '.join(args)}: ended with {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024


def bench(neartie, path):
    commands = {"plain read": ["sqlite3", "-readonly", path, PLAIN]}
    for name in ("verdict", "verdict --format json", "report", "blame --format csv", "percentiles"):
        words = name.split()
        commands[name] = [neartie, words[0], path, *words[1:]]
    rounds = []
    for _ in range(int(os.environ.get("RUNS", "3"))):
        rounds.append({name: run(args) for name, args in commands.items()})
    print(f"{'':24} {'cpu s':>8} {'wall s':>8} {'MB':>6} {'of a plain read':>16}")
    for name in commands:
        cpu, wall, mb = (statistics.median(r[name][i] for r in rounds) for i in range(3))
        ratio = statistics.median(r[name][0] / r["plain read"][0] for r in rounds)
        print(f"{name:24} {cpu:8.2f} {wall:8.2f} {mb:6.0f} {ratio:16.2f}")


def main():
    neartie = os.path.join(sys.argv[1], "collector", "neartie")
    if len(sys.argv) > 2:
        bench(neartie, sys.argv[2])
        return
    sequences, rows = os.environ.get("SEQUENCES", "250"), os.environ.get("ROWS", "2000")
    with tempfile.TemporaryDirectory(prefix="neartie-bench.") as folder:
        path = os.path.join(folder, "run.db")
        subprocess.run([neartie, "simulate", "-o", path, "--sequences", sequences, "--rows", rows],
                       check=True, stdout=subprocess.DEVNULL)
        print(f"{sequences} sequences of {rows} positions in two arms, {len(os.sched_getaffinity(0))} "
              "processors")
        bench(neartie, path)


main()
