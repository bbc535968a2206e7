"""Children and temporary directories that never outlive this process.

spawn() starts a child that the kernel kills when we die, whatever we die of. at_exit() runs on a
normal end, an exception, Ctrl-C, SIGTERM and SIGHUP; what a SIGKILL leaves on disk is removed by
the next run (temp_dir looks for directories whose owner is gone)."""

import atexit
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
PREFIX = "postrider-"

_undo = []
_lock = threading.RLock()


def _on_signal(number, _frame):
    sys.exit(128 + number)


def _catch_signals():
    """Turns the deadly signals into SystemExit, so that atexit runs. Ctrl-C is an exception already."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, _on_signal)


def at_exit(undo):
    """Registers a function to run when this process ends; returns it, for forget()."""
    _catch_signals()
    with _lock:
        _undo.append(undo)
    return undo


def forget(undo):
    with _lock:
        if undo in _undo:
            _undo.remove(undo)


@atexit.register
def _run_all():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if threading.current_thread() is threading.main_thread():
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not stop the cleaning
    while _undo:
        undo = _undo.pop()
        try:
            undo()
        except Exception as problem:  # pylint: disable=broad-except
            print(f"cleaning up: {problem}", file=sys.stderr)


# The kernel's "parent died" signal follows the thread that started the child, so one thread that
# lives as long as the process starts them all.
_orders = queue.Queue()


def _starter():
    while True:
        args, kwargs, answer = _orders.get()
        try:
            answer.put((subprocess.Popen(args, **kwargs), None))
        except BaseException as problem:  # pylint: disable=broad-except
            answer.put((None, problem))


_thread = None


def spawn(args, user=None, death_signal="KILL", **kwargs):
    """subprocess.Popen in a session of its own; `user` (root only) is whom to run it as."""
    global _thread
    with _lock:
        if _thread is None:
            _thread = threading.Thread(target=_starter, name="starter", daemon=True)
            _thread.start()
    wrap = ["setpriv", f"--pdeathsig={death_signal}"]
    if user:
        wrap = ["setpriv", f"--reuid={user}", f"--regid={user_group(user)}", "--init-groups",
                f"--pdeathsig={death_signal}"]
    # A shell starts what it puts into the background with SIGINT ignored, and that is inherited: a
    # test of Ctrl-C must not depend on how its run was started.
    wrap += ["--", "env", "--default-signal=INT"]
    kwargs.setdefault("stdin", subprocess.DEVNULL)
    answer = queue.Queue()
    _orders.put((wrap + [str(a) for a in args],
                 dict(kwargs, start_new_session=True), answer))
    process, problem = answer.get()
    if problem:
        raise problem
    return process


def user_group(user):
    import pwd
    return pwd.getpwnam(user).pw_gid


def kill(process, number=signal.SIGKILL, timeout=10):
    """Ends a child and everything in its session's process group."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
    return process.wait(timeout)


def _owner_is_gone(path):
    try:
        owner = int((path / "owner.pid").read_text())
    except (OSError, ValueError):
        return False
    try:
        os.kill(owner, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _base():
    """A short path: a socket's name must fit in 107 bytes, and TMPDIR may be long."""
    return "/tmp" if os.access("/tmp", os.W_OK) else tempfile.gettempdir()


def temp_dir(topic, user=None):
    """A fresh directory, removed at exit; `user` becomes its owner."""
    for old in pathlib.Path(_base()).glob(PREFIX + "*"):
        if _owner_is_gone(old):
            shutil.rmtree(old, ignore_errors=True)
    path = pathlib.Path(tempfile.mkdtemp(prefix=f"{PREFIX}{topic}-", dir=_base()))
    at_exit(lambda: shutil.rmtree(path, ignore_errors=True))
    (path / "owner.pid").write_text(str(os.getpid()))
    if user:
        shutil.chown(path, user)
    return path
