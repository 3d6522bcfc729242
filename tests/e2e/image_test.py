"""The container image: whether its second stage has all that Ferry needs, tried in a root of the packages that it installs."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import ferry_job
from ferry_job import FERRY, LIMIT_SECONDS, ROOT

DOCKERFILE = ROOT / "launch/deploy/Dockerfile"
HOME = "/opt/ferry"  # of the image
SKIPPED_FILES = ("/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/", "/usr/share/info/")


def output_of(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_SECONDS, **options).stdout


def listed_packages():
    """What the last stage of the Dockerfile installs."""
    stage = re.split(r"(?m)^FROM ", DOCKERFILE.read_text())[-1]
    return re.search(r"--no-install-recommends\s(.*?)&&", stage, re.S)[1].replace("\\", " ").split()


class Packages:
    """The packages of this system, by name, with what they depend on."""

    def __init__(self):
        self._depends, self._provider, self._basic = {}, {}, []
        form = "${Package}\t${Essential}\t${Priority}\t${Depends}, ${Pre-Depends}\t${Provides}\n"
        for line in output_of("dpkg-query", "-W", "-f", form).splitlines():
            name, essential, priority, depends, provides = line.split("\t")
            self._depends[name] = [[self._bare(one) for one in choice.split("|")] for choice in depends.split(",") if choice.strip()]
            self._provider.update({self._bare(one): name for one in provides.split(",") if one.strip()})
            if essential == "yes" or priority == "required":
                self._basic.append(name)

    @staticmethod
    def _bare(name):
        return re.sub(r"[ :(].*", "", name.strip())

    def _installed(self, name):
        return name if name in self._depends else self._provider.get(name)

    def with_dependencies(self, names):
        """`names`, what every Debian has, and all that these depend on."""
        left, found = [*names, *self._basic], set()
        while left:
            name = self._installed(left.pop())
            if name is None or name in found:
                continue
            found.add(name)
            for choice in self._depends[name]:
                left += [one for one in choice if self._installed(one)][:1]
        return found

    def missing(self, names):
        return [name for name in names if not self._installed(name)]


def make_root(root, packages):
    """A copy of what the packages have on this system, as a fresh system has it that installs them."""
    files = set()
    for name in packages:
        files.update(output_of("dpkg", "-L", name).splitlines())
    for link in [*pathlib.Path("/etc/alternatives").iterdir(), *(path for path in pathlib.Path("/usr/bin").iterdir() if path.is_symlink())]:
        if str(link) in files or (os.path.realpath(link) in files and "/etc/alternatives/" in f"{link}{os.readlink(link)}"):
            files.add(str(link))
    present = [path for path in sorted(files) if not path.startswith(SKIPPED_FILES) and (os.path.islink(path) or not os.path.isdir(path)) and os.path.lexists(path)]
    for link in ("/bin", "/sbin", "/lib", "/lib64"):
        if os.path.islink(link):
            (root / link[1:]).symlink_to(os.readlink(link))
    for folder in ("dev", "proc", "sys", "tmp", "etc", "root", "usr/bin", "usr/lib"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    names = "".join(f"{os.path.realpath(os.path.dirname(path))}/{os.path.basename(path)}\0" for path in present)
    packed = subprocess.Popen(["tar", "-C", "/", "-c", "--null", "-T", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    unpacked = subprocess.Popen(["tar", "-C", str(root), "-x"], stdin=packed.stdout)
    packed.stdout.close()
    packed.stdin.write(names.encode())
    packed.stdin.close()
    if unpacked.wait(LIMIT_SECONDS) != 0 or packed.wait(LIMIT_SECONDS) != 0:
        raise RuntimeError("the root cannot be copied")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    subprocess.run(["ldconfig", "-r", str(root)], check=True, timeout=LIMIT_SECONDS)


class ImageTest(unittest.TestCase):
    """Without Docker: the packages are copied from this system, which has them, and nothing else is."""

    @classmethod
    def setUpClass(cls):
        if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode != 0:
            raise unittest.SkipTest("no namespaces here")
        packages = Packages()
        missing = packages.missing(listed_packages())
        if missing:
            raise unittest.SkipTest(f"packages of the image are not on this system: {' '.join(missing)}")
        folder = tempfile.TemporaryDirectory(prefix="ferry-image-")
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        make_root(cls.root, packages.with_dependencies(listed_packages()))
        (cls.root / HOME[1:] / "bin").mkdir(parents=True)
        for source, target in ((FERRY, "bin"), (pathlib.Path(FERRY).with_name("libferry_listen_on.so"), "bin"), (ROOT / "launch/mpirun.sh", "launch"), (ROOT / "launch/demo", "launch")):
            (cls.root / HOME[1:] / target).mkdir(exist_ok=True)
            subprocess.run(["cp", "-r", str(source), str(cls.root / HOME[1:] / target)], check=True)

    def run_inside(self, *command):
        mounts = 'mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" && cd "$0" && exec chroot "$0" /usr/bin/env -i PATH=/opt/ferry/bin:/usr/bin:/bin "$@"'
        done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "sh", "-c", mounts, str(self.root), *command], capture_output=True, text=True, timeout=LIMIT_SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_it_has_every_library(self):
        self.assertRegex(self.run_inside("ferry", "--version"), r"^ferry \d")

    def test_it_answers_alone_and_over_ranks(self):
        generate = ("ferry", "generate", "--model", f"{HOME}/launch/demo", "--memory", "64MiB", "--max-tokens", "4", "--prompt", "The kernel")
        alone = self.run_inside(*generate)
        self.assertTrue(alone.strip())
        self.assertEqual(self.run_inside(f"{HOME}/launch/mpirun.sh", "-np", "3", *generate), alone)


if __name__ == "__main__":
    ferry_job.main()
