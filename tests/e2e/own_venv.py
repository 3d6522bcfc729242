"""Virtual environments that tests make for themselves under build/, once, from PyPI."""

import faulthandler
import fcntl
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77  # the exit code that ctest takes for "skipped"
INSTALL_SECONDS = 300.0
FORGOTTEN_SECONDS = 1800.0  # in which a registry that did not answer is not asked again
STUCK_SECONDS = 3500.0  # a little less than a test's TIMEOUT in CMakeLists.txt: who is stuck says where
STUCK_AT = "FERRY_TEST_STUCK_AT"  # that moment by the machine's clock, for the script that runs again


def use_venv(name, requirements, *options):
    """Runs this script again with the Python of build/`name`, which is made if it is missing; skips the test if that fails.

    Returns the environment's folder. `requirements` is a file beside this one, `options` are of pip's install. The pip of .venv
    (launch/setup.sh) installs it, and compiles nothing: Python does so where a module is first used, which few are. One process
    makes an environment while others wait for it, each no longer than INSTALL_SECONDS; where PyPI did not answer within that
    time, the tests of the next half hour do not ask again.
    """
    venv = ROOT / "build" / name
    stuck_at = os.environ.setdefault(STUCK_AT, str(time.monotonic() + STUCK_SECONDS))
    faulthandler.dump_traceback_later(max(1.0, float(stuck_at) - time.monotonic()), exit=True)
    if pathlib.Path(sys.prefix).resolve() == venv.resolve():
        return venv
    venv.parent.mkdir(exist_ok=True)
    with open(venv.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # whoever holds it lets go of it within INSTALL_SECONDS
        problem = _install(venv, pathlib.Path(__file__).parent / requirements, options)
    if problem:
        print(f"skipped: {requirements} cannot be installed: {problem}")
        sys.exit(SKIPPED)
    python = venv / "bin/python"
    compiled = {"PYTHONPYCACHEPREFIX": str(venv / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
    os.execve(python, [str(python), *sys.argv], {**os.environ, **compiled})


def _install(venv, requirements, options):
    """Makes `venv`, unless it has what `requirements` names; what went wrong, or nothing."""
    wanted, stamp, silent = requirements.read_text(), venv / "installed.txt", venv.parent / "pypi-silent"
    if stamp.exists() and stamp.read_text() == wanted:
        return ""
    if silent.exists() and time.time() - silent.stat().st_mtime < FORGOTTEN_SECONDS:
        return "PyPI did not answer a short while ago"
    pip = [ROOT / ".venv/bin/pip", "--python", venv, "install", "-q", "--disable-pip-version-check", "--retries", "2", "--timeout", "20"]
    pip += ["--no-compile", *options, "-r", requirements]
    for command in ([sys.executable, "-m", "venv", "--clear", "--without-pip", venv], pip):
        if not pathlib.Path(command[0]).exists():
            return "launch/setup.sh made no .venv"
        try:
            code = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=INSTALL_SECONDS).returncode
        except subprocess.TimeoutExpired:
            silent.touch()
            return f"PyPI did not send it within {INSTALL_SECONDS:.0f} s"
        if code != 0:
            return f"{pathlib.Path(command[0]).name} ended with {code}; no access to PyPI?"
    stamp.write_text(wanted)
    return ""
