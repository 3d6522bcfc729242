"""Virtual environments that tests make for themselves under build/, once, from PyPI."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77  # the exit code that ctest takes for "skipped"


def use_venv(name, requirements, *options):
    """Runs this script again with the Python of build/`name`, which is made if it is missing; skips the test if that fails.

    Returns the environment's folder. `requirements` is a file beside this one, `options` are of pip's install. The pip of .venv
    (launch/setup.sh) installs it, and compiles nothing: Python does so where a module is first used, which few are.
    """
    venv = ROOT / "build" / name
    if pathlib.Path(sys.prefix).resolve() == venv.resolve():
        return venv
    wanted = (pathlib.Path(__file__).parent / requirements).read_text()
    stamp = venv / "installed.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        pip = [ROOT / ".venv/bin/pip", "--python", venv, "install", "-q", "--disable-pip-version-check", "--retries", "2"]
        pip += ["--no-compile", *options, "-r", pathlib.Path(__file__).parent / requirements]
        for command in ([sys.executable, "-m", "venv", "--clear", "--without-pip", venv], pip):
            if not pathlib.Path(command[0]).exists() or subprocess.run(command, stdin=subprocess.DEVNULL).returncode != 0:
                print(f"skipped: {requirements} cannot be installed (no .venv, or no access to PyPI?)")
                sys.exit(SKIPPED)
        stamp.write_text(wanted)
    python = venv / "bin/python"
    compiled = {"PYTHONPYCACHEPREFIX": str(venv / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
    os.execve(python, [str(python), *sys.argv], {**os.environ, **compiled})
