"""Times a process from its start to its end, and says what many such times have in common."""

import ctypes
import os
import signal
import statistics
import sys
import time

# From linux/ptrace.h.
PTRACE_TRACEME, PTRACE_CONT, PTRACE_SETOPTIONS = 0, 7, 0x4200
PTRACE_O_TRACEEXIT, PTRACE_EVENT_EXIT = 0x40, 6


def run(words, stdin=None, environment=os.environ):
    """Milliseconds of a program whose output is thrown away; a failure is an error, because its time would mean nothing."""
    with open(stdin or os.devnull, "rb") as source, open(os.devnull, "wb") as nowhere:
        actions = [
            (os.POSIX_SPAWN_DUP2, source.fileno(), 0),
            (os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1),
            (os.POSIX_SPAWN_DUP2, nowhere.fileno(), 2),
        ]
        start = time.perf_counter_ns()
        pid = os.posix_spawn(words[0], words, environment, file_actions=actions)
        _, status = os.waitpid(pid, 0)
        end = time.perf_counter_ns()
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        raise RuntimeError(f"{' '.join(words)} ended with {code}")
    return (end - start) / 1e6


def peak_kib(words):
    """The most memory that a program held.

    `ru_maxrss` of a child begins with what its parent held when it was forked, so a small program would get the size of
    this interpreter. The kernel's own mark of the program is read instead, at the moment before it ends.
    """
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    pid = os.fork()
    if pid == 0:
        try:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(nowhere, stream)
            ptrace(PTRACE_TRACEME, 0, None, None)
            os.execv(words[0], words)
        finally:
            os._exit(127)
    peak, is_new = None, True
    while True:
        _, status = os.waitpid(pid, 0)
        if not os.WIFSTOPPED(status):
            return peak if os.waitstatus_to_exitcode(status) == 0 else None
        pass_on = os.WSTOPSIG(status)
        if is_new:
            ptrace(PTRACE_SETOPTIONS, pid, None, PTRACE_O_TRACEEXIT)
            is_new, pass_on = False, 0
        elif status >> 8 == signal.SIGTRAP | PTRACE_EVENT_EXIT << 8:
            with open(f"/proc/{pid}/status") as lines:
                peak = next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)
            pass_on = 0
        ptrace(PTRACE_CONT, pid, None, pass_on)


def quartiles(samples):
    """Median and the middle half, which is what one noisy machine can honestly say."""
    if len(samples) == 1:
        low = middle = high = samples[0]
    else:
        low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return {"p25": low, "median": middle, "p75": high}


def interleave(title, rounds, runners):
    """Runs every runner once a round, each round beginning with another one, and returns the times by label.

    A runner returns milliseconds. What disturbs the machine for seconds then disturbs all of them alike.
    """
    labels = list(runners)
    if not sys.stderr.isatty():
        finish(f"{title}: {rounds} rounds of {', '.join(labels)} …")
    times = {label: [] for label in labels}
    for index in range(rounds):
        shift = index % len(labels)
        for label in labels[shift:] + labels[:shift]:
            progress(title, index, rounds, label)
            times[label].append(runners[label]())
    medians = ", ".join(f"{label} {statistics.median(times[label]):.1f} ms" for label in labels)
    finish(f"{title}: {medians}  ({rounds} rounds)")
    return times


def ratios(peer, ours):
    """Peer through ours, round by round."""
    return [theirs / mine for theirs, mine in zip(peer, ours)]


def progress(title, index, rounds, label):
    """One line that moves, where there is a terminal."""
    if sys.stderr.isatty():
        filled = 24 * index // rounds
        line = f"\r\x1b[K{title}  {'█' * filled}{'░' * (24 - filled)}  {index + 1}/{rounds}  {label}"
        sys.stderr.write(line)
        sys.stderr.flush()


def finish(line):
    start = "\r\x1b[K" if sys.stderr.isatty() else ""
    sys.stderr.write(f"{start}{line}\n")
    sys.stderr.flush()
