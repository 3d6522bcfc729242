"""`ferry devices` lists what there is, and --device takes it or says in one line why not."""

import argparse
import csv
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest
import unittest.mock
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
FERRY = os.environ.get("FERRY_BINARY", str(ROOT / "build/release/launch/ferry"))
LAVAPIPE = pathlib.Path("/usr/share/vulkan/icd.d/lvp_icd.x86_64.json")  # Mesa's driver that computes on the CPU
NO_DRIVER = pathlib.Path("/nonexistent/icd.json")
EMPTY_DRIVER = os.environ.get("FERRY_EMPTY_DRIVER", str(ROOT / "build/release/tests/e2e/libferry_empty_driver.so"))  # whose card is not there
GENERATE = ("generate", "--model", "demo", "--memory", "64MiB", "--max-tokens", "4", "--prompt", "The kernel")
SECONDS = 400  # a hang is found, a slow machine is none
CACHE = tempfile.TemporaryDirectory()  # in the place of the user's
# The driver's own cache stays where other tests filled it: compiling its shaders anew takes most of a run.
DRIVER_CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "mesa_shader_cache"


def environment_of(driver, cache=None):
    """Where the Vulkan loader sees no driver but `driver`."""
    environment = {**os.environ, "VK_DRIVER_FILES": str(driver), "VK_ICD_FILENAMES": str(driver), "XDG_CACHE_HOME": cache or CACHE.name}
    if DRIVER_CACHE.is_dir():
        environment["MESA_SHADER_CACHE_DIR"] = str(DRIVER_CACHE.parent)
    return environment


def run(*arguments, driver=NO_DRIVER, launcher=(), cache=None, library_path=None):
    """Runs ferry where the Vulkan loader sees no driver but `driver`: (exit code, stdout, lines of stderr)."""
    environment = environment_of(driver, cache)
    if library_path is not None:
        environment["LD_LIBRARY_PATH"] = library_path
    done = subprocess.run([*map(str, launcher), FERRY, *arguments], capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL, env=environment)
    return done.returncode, done.stdout, done.stderr.splitlines()


def devices(driver=NO_DRIVER):
    """What `ferry devices --json` says."""
    code, out, said = run("devices", "--json", driver=driver)
    if code != 0:
        raise AssertionError(said)
    return json.loads(out)


def is_built_in():
    return "built without" not in (devices()["lack"] or "")


def can_use_lavapipe():
    return is_built_in() and LAVAPIPE.exists() and devices(LAVAPIPE)["devices"][1]["refusal"] is None


class ListTest(unittest.TestCase):
    def check_table(self, driver):
        """The table says what the JSON object does; returns that."""
        listed = devices(driver)
        code, out, said = run("devices", driver=driver)
        self.assertEqual((code, said), (0, []))
        lines = out.splitlines()
        self.assertEqual(lines[0].split(), ["device", "name", "kind", "driver", "memory", "abilities"])
        for line, device in zip(lines[1:], listed["devices"]):
            self.assertEqual(line.split()[0], device["device"])
            self.assertIn(device["name"], line)
            if device.get("refusal"):
                self.assertIn(f"not usable: {device['refusal']}", line)
        rest = lines[1 + len(listed["devices"]) :]
        self.assertEqual(rest, [f"no Vulkan device: {listed['lack']}"] if listed["lack"] else [])
        return listed

    def test_the_cpu_comes_first(self):
        cpu = self.check_table(NO_DRIVER)["devices"][0]
        self.assertEqual((cpu["device"], cpu["kind"]), ("cpu", "CPU"))
        self.assertEqual(cpu["kernels"][-1], "ref")
        self.assertEqual(cpu["matmul"][-1], "ref")
        self.assertGreater(cpu["memory_bytes"], 1 << 28)

    def test_without_a_driver_there_is_a_reason(self):
        listed = self.check_table(NO_DRIVER)
        self.assertEqual(len(listed["devices"]), 1)
        self.assertTrue(listed["lack"])
        self.assertIn(f"\nvulkan: none ({listed['lack']})\n", run("--version")[1])

    def test_a_loader_that_cannot_be_opened_is_named(self):
        if not is_built_in():
            self.skipTest("no Vulkan in this build")
        with tempfile.TemporaryDirectory() as name:
            (pathlib.Path(name) / "libvulkan.so.1").write_text("no library")
            code, out, said = run("devices", library_path=name)
            self.assertEqual((code, said), (0, []))
            self.assertRegex(out, rf"\nno Vulkan device: no Vulkan loader: {re.escape(name)}/libvulkan.so.1: \w+")

    def test_a_driver_that_fails_leaves_the_cpu(self):
        if not is_built_in() or not pathlib.Path(EMPTY_DRIVER).exists():
            self.skipTest("no Vulkan in this build")
        expected = run(*GENERATE)[1]
        with tempfile.TemporaryDirectory() as name:
            manifest = pathlib.Path(name) / "driver.json"
            cases = [("{", "0", "VK_LOADER_DEBUG=error")]  # no JSON, which the loader calls a lack of memory
            for result, why in (("0", "no Vulkan driver lists a device"), ("-3", "initialisation failed"), ("-1", "out of host memory")):
                cases.append((json.dumps({"file_format_version": "1.0.0", "ICD": {"library_path": EMPTY_DRIVER, "api_version": "1.3.0"}}), result, why))
            for text, result, why in cases:
                with self.subTest(why), unittest.mock.patch.dict(os.environ, EMPTY_DRIVER_RESULT=result):
                    manifest.write_text(text)
                    listed = self.check_table(manifest)
                    self.assertEqual(len(listed["devices"]), 1)
                    self.assertIn(why, listed["lack"])
                    for device in ("vulkan", "vulkan:0"):
                        self.assertEqual(run(*GENERATE, "--device", device, driver=manifest), (2, "", [f"ferry: error: --device {device}: {listed['lack']}"]))
                    code, out, said = run(*GENERATE, "--device", "auto", driver=manifest)
                    self.assertEqual((code, out), (0, expected), said)
                    self.assertEqual(said[0], f"ferry: --device auto: computing on the CPU: {listed['lack']}")

    def test_lavapipe_is_a_device(self):
        if not is_built_in() or not LAVAPIPE.exists():
            self.skipTest("no Vulkan in this build, or no lavapipe")
        listed = self.check_table(LAVAPIPE)
        self.assertIsNone(listed["lack"])
        device = listed["devices"][1]
        self.assertEqual((device["device"], device["kind"]), ("vulkan:0", "CPU"))
        self.assertIn("llvmpipe", device["name"])
        self.assertGreater(device["memory_bytes"], 1 << 28)
        self.assertNotEqual(bool(device["abilities"]), bool(device["refusal"]))
        self.assertEqual(device["faults"], [], "what it has no matrices for, it cannot fail in")
        if not device["refusal"]:
            self.assertIn(f"\nvulkan: {device['name']}\n", run("--version", driver=LAVAPIPE)[1])


class DeviceTest(unittest.TestCase):
    def refuse(self, arguments, *fragments, driver=NO_DRIVER):
        code, out, said = run(*GENERATE, *arguments, driver=driver)
        self.assertEqual((code, out, len(said)), (2, "", 1), said)
        self.assertTrue(said[0].startswith("ferry: error: --"), said)
        for fragment in fragments:
            self.assertIn(fragment, said[0])

    def test_what_is_no_device(self):
        for text in ("nonsense", "vulkan:x", "vulkan:-1", ""):
            self.refuse((f"--device={text}",), "--device", *([f"'{text}'", "cpu, auto, vulkan, or vulkan:N"] if text else []))
        for device in ("auto", "vulkan", "vulkan:0"):
            self.refuse(("--device", device, "--kernels", "ref"), "--kernels", "'ref'", f"--device {device}")
            self.refuse(("--device", device, "--matmul", "ref"), "--matmul", "'ref'", "--device cpu")

    def test_devices_that_are_not_there(self):
        for driver in (NO_DRIVER, *([LAVAPIPE] if LAVAPIPE.exists() else [])):
            listed = devices(driver)
            self.refuse(("--device", "vulkan:7"), "--device vulkan:7: ", *([listed["lack"]] if listed["lack"] else ["llvmpipe"]), driver=driver)
        self.refuse(("--device", "vulkan"), "--device vulkan: ", devices()["lack"])

    def test_auto_without_a_gpu_is_the_cpu_and_says_why(self):
        expected = run(*GENERATE)
        self.assertEqual(expected[0], 0, expected[2])
        for driver in (NO_DRIVER, *([LAVAPIPE] if LAVAPIPE.exists() else [])):
            code, out, said = run(*GENERATE, "--device", "auto", driver=driver)
            self.assertEqual((code, out), (0, expected[1]), said)
            why = devices(driver)["lack"] or "vulkan:0 (llvmpipe"
            self.assertTrue(said[0].startswith(f"ferry: --device auto: computing on the CPU: {why}"), said)
            self.assertEqual(len(said), len(expected[2]) + 1, said)

    def test_a_job_says_so_once(self):
        code, out, said = run(*GENERATE, "--device", "auto", launcher=(ROOT / "launch/mpirun.sh", "-np", "3"))
        self.assertEqual((code, out), (0, run(*GENERATE)[1]), said)
        self.assertEqual(sum("--device auto" in line for line in said), 1, said)


class Started:
    """Processes of ferry that run beside each other, and what they say."""

    def __init__(self):
        self.processes = []

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        return self

    def __exit__(self, *_):
        for each in self.processes:
            each.process.kill()
            each.process.wait()
        self.folder.cleanup()

    def start(self, *arguments):
        process = argparse.Namespace(log=pathlib.Path(self.folder.name) / str(len(self.processes)))
        with process.log.open("w") as log:
            process.process = subprocess.Popen([FERRY, *arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment_of(LAVAPIPE))
        self.processes.append(process)
        return process

    def await_text(self, process, pattern):
        end = time.monotonic() + SECONDS
        while not (found := re.search(pattern, process.log.read_text())):
            if time.monotonic() > end or any(each.process.poll() is not None for each in self.processes):
                raise AssertionError(f"'{pattern}' is not in\n{process.log.read_text()}")
            time.sleep(0.05)
        return found

    def end(self, job, worker):
        """SIGTERM to the coordinator, which sends the worker home."""
        job.process.terminate()
        for process in (job, worker):
            code = process.process.wait(SECONDS)
            if code != 0:
                raise AssertionError(f"exit code {code}\n{process.log.read_text()}")


class ComputeTest(unittest.TestCase):
    """On lavapipe, which is slow: few tokens, small steps."""

    SMALL = ("--memory", "64MiB", "--peer-timeout", "600", "--token-budget", "128", "--prefill-chunk", "64", "--max-seqs", "2")

    def setUp(self):
        if not can_use_lavapipe():
            self.skipTest("no Vulkan in this build, or no lavapipe that it can use")
        self.generate = ("generate", "--model", "demo", *self.SMALL, "--token-ids", "443,3808,1132", "--max-tokens", "8", "--json", "--speculate", "0")
        self.expected = self.answer(run(*self.generate))

    def answer(self, done):
        code, out, said = done
        self.assertEqual(code, 0, said)
        return json.loads(out)["token_ids"]

    def job(self, coordinator, workers):
        """A job of three ranks, on the devices of these names: its tokens, and what it said."""
        first, others = ((*self.generate, "--device", device) for device in (coordinator, workers))
        done = run(*first, ":", "-np", "2", FERRY, *others, driver=LAVAPIPE, launcher=(ROOT / "launch/mpirun.sh", "-np", "1"))
        return self.answer(done), done[2]

    def test_a_device_computes_the_tokens_of_the_cpu(self):
        for device in ("vulkan", "vulkan:0"):
            done = run(*self.generate, "--device", device, driver=LAVAPIPE)
            self.assertEqual(self.answer(done), self.expected)
            self.assertTrue(done[2][0].startswith("ferry: computing on vulkan:0 (llvmpipe"), done[2])

    def test_pipelines_are_kept_in_the_cache_and_what_is_broken_there_is_made_again(self):
        with tempfile.TemporaryDirectory() as cache:
            for _ in range(2):
                self.assertEqual(self.answer(run(*self.generate, "--device", "vulkan", driver=LAVAPIPE, cache=cache)), self.expected)
                (kept,) = (pathlib.Path(cache) / "ferry").iterdir()
                self.assertTrue(kept.name.startswith("pipelines-"), kept)
                self.assertGreater(kept.stat().st_size, 32)
                kept.write_bytes(kept.read_bytes()[:40])
        self.assertEqual(self.answer(run(*self.generate, "--device", "vulkan", driver=LAVAPIPE, cache="/dev/null")), self.expected)

    def test_devices_and_processors_work_together_and_say_so(self):
        for coordinator, workers in (("vulkan", "cpu"), ("cpu", "vulkan"), ("vulkan", "vulkan")):
            with self.subTest(coordinator=coordinator, workers=workers):
                tokens, said = self.job(coordinator, workers)
                self.assertEqual(tokens, self.expected)
                warnings = [line for line in said if line.startswith("ferry: warning: rank 1 has ")]
                self.assertEqual(len(warnings), 0 if coordinator == workers else 1, said)
                for part in ("--device vulkan (llvmpipe", "--kernels ", "(1 other rank differs, too)", "last bits"):
                    self.assertTrue(all(part in line for line in warnings), warnings)

    def test_a_worker_joins_on_another_device_than_its_coordinators(self):
        """In bf16, of which a device computes most experts' bits as a CPU does, but not all; then one of two dies."""
        prompt = {"prompt": [443, 3808, 1132], "max_tokens": 8, "temperature": 0, "return_token_ids": True}
        for coordinator, steady in (("cpu", "vulkan"), ("vulkan", "cpu")):  # the coordinator, and the worker that stays
            with self.subTest(coordinator), Started() as started:
                place = f"unix:ferry-devices-{os.getpid()}-{coordinator}"
                ports = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--elastic", place, "--redundancy", "2x")
                job = started.start("serve", "--model", "demo", *self.SMALL, "--speculate", "0", *ports, "--device", coordinator)
                address = started.await_text(job, r"serving http on (\S+)")[1]
                workers = {device: started.start("worker", "--model", "demo", "--join", place, "--device", device) for device in ("vulkan", "cpu")}
                for rank in (1, 2):
                    started.await_text(job, rf"rank {rank} has joined, with up to 64 experts")

                def answer():
                    request = urllib.request.Request(f"http://{address}/v1/completions", json.dumps(prompt).encode(), {"Content-Type": "application/json"})
                    with urllib.request.urlopen(request, timeout=SECONDS) as response:
                        return json.load(response)["choices"][0]["token_ids"]

                self.assertEqual(answer(), self.expected)
                odd = workers["vulkan" if coordinator == "cpu" else "cpu"]
                rank = started.await_text(odd, r"ferry: warning: rank (\d) has --(?:device|kernels) .* last bits")[1]
                self.assertIn(f"ferry: rank {rank} has joined", odd.log.read_text())
                if coordinator == "cpu":
                    self.assertIn(" could be compared with nobody's", job.log.read_text())
                workers["cpu" if steady == "vulkan" else "vulkan"].process.kill()
                self.assertEqual(answer(), self.expected)
                started.end(job, workers[steady])

    def test_packed_weights_are_those_quantised_at_load(self):
        for spec in ("w8a8", "w4a8"):
            with self.subTest(spec), tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                self.assertEqual(run("quantize", "--model", "demo", "--quantize", spec, "--out", str(folder / "packed"))[0], 0)
                dumps = []
                for model, quantize in (("demo", ("--quantize", spec)), (str(folder / "packed"), ())):
                    out = folder / f"dump{len(dumps)}"
                    arguments = ("dump", "--model", model, *self.SMALL, *quantize, "--token-ids", "443,3808,1132", "--out", str(out))
                    code, _, said = run(*arguments, "--device", "vulkan", driver=LAVAPIPE)
                    self.assertEqual(code, 0, said)
                    dumps.append(out.read_bytes())
                self.assertEqual(*dumps)

    def test_more_memory_than_a_device_has_is_refused_before_anything_is_loaded(self):
        for option, value, part in (("--memory", "1PiB", "of caches (--memory)"), ("--token-budget", "900000", "for the rows of a step (--token-budget)")):
            given = [value if before == option else argument for before, argument in zip(("", *self.generate), self.generate)]
            if option == "--memory":
                given[given.index("--max-seqs") + 1], given[given.index("--token-budget") + 1] = "16000", "20000"
            code, out, said = run(*given, "--device", "vulkan", driver=LAVAPIPE)
            self.assertEqual((code, out), (1, ""), said)
            self.assertTrue(said[-1].startswith("ferry: error: --device vulkan:0 (llvmpipe"), said)
            for fragment in (part, "needs", "available: "):
                self.assertIn(fragment, said[-1])

    def test_what_only_processors_do_is_refused(self):
        screen = r"--lm-head-screen: lm_head is {} for vulkan:0 \(llvmpipe.*; allowed: bf16, for the CPU's own kernels \(--device cpu, "
        for options, refusal in ((("--lm-head-screen", "--dtype", "bf16"), screen.format("bf16")),
                                 (("--lm-head-screen", "--dtype", "f32"), screen.format("f32")),
                                 (("--kv-cache-dtype", "int8"), "--kv-cache-dtype: 'int8'; allowed: auto or bf16 with --device vulkan")):
            with self.subTest(options=options):
                code, out, said = run(*self.generate, *options, "--device", "vulkan", driver=LAVAPIPE)
                self.assertEqual((code, out), (2, ""), said)
                self.assertRegex(said[-1], "^ferry: error: " + refusal)

    def test_bench_measures_a_device_whose_own_time_the_capture_holds(self):
        with tempfile.TemporaryDirectory() as name:
            capture = pathlib.Path(name) / "capture"
            sizes = ("-p", "8", "-n", "2", "-r", "1")
            code, out, said = run("bench", "--model", "demo", *self.SMALL, *sizes, "--json", "--device", "vulkan", "--trace", str(capture), driver=LAVAPIPE)
            self.assertEqual(code, 0, said)
            self.check_bench(json.loads(out))
            self.check_lane(json.loads((capture / "trace.json").read_text())["traceEvents"])
            rows = self.table(capture, "device")
            for row in rows:
                self.assertTrue(row["device"].startswith("llvmpipe"))
                self.assertIn(row["clock"], ("calibrated", "bracketed"))
                self.assertAlmostEqual(float(row["busy_us"]) + float(row["idle_us"]), float(row["wall_us"]), delta=0.0021)
                self.assertLessEqual(float(row["busy_share"]), 1)
                for count in ("busy_us", "dispatches", "barriers", "submissions"):
                    self.assertGreater(float(row[count]), 0, row)
            operators = self.table(capture, "operator")
            kinds = {row["operator"]: row["kind"] for row in operators}
            for zone in ("MatMul.in_proj_qkv", "GroupedMatmulSwiglu", "MatMul.lm_head", "Memcpy"):
                self.assertEqual(kinds[zone], "device", kinds)
            self.assertEqual(len(kinds), len(operators), "each operator once: on the device, not where the host hands it over")
            # Of each layer of a group of steps by its kind: the device's time, and the host's while that has nothing to do.
            phases = {row["phase"]: float(row["us_per_step"]) for row in self.table(capture, "phase") if row["steps"] not in ("", "0")}
            for phase, us_per_step in phases.items():
                layers = [float(row["total_us"]) for row in self.table(capture, "layer") if row["phase"] == phase]
                self.assertAlmostEqual(sum(layers), us_per_step, delta=0.001 * (len(layers) + 1))

    @staticmethod
    def table(capture, name):
        with (capture / "csv" / f"{name}.csv").open() as file:
            return list(csv.DictReader(file))

    def check_lane(self, events):
        """The device's spans follow one another without overlap; those of operators lie inside their step of the coordinator."""
        lanes = [(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and e["args"]["name"].startswith("llvmpipe")]
        self.assertEqual(len(lanes), 1)
        window = lambda e: (round(1000 * e["ts"]), round(1000 * e["ts"]) + round(1000 * e["dur"]))
        drawn = [e for e in events if e["ph"] == "X"]
        spans = sorted((*window(e), e["name"], e["args"].get("step")) for e in drawn if e["cat"] == "comp" and (e["pid"], e["tid"]) == lanes[0])
        for (_, end, _, _), (begin, _, _, _) in zip(spans, spans[1:]):
            self.assertLessEqual(end, begin)
        steps = {e["args"]["step"]: window(e) for e in drawn if e["cat"] == "step"}
        of_steps = [span for span in spans if span[3] in steps and span[2] != "Memcpy"]
        self.assertGreater(len(of_steps), 100)
        for begin, end, name, step in of_steps:
            self.assertTrue(steps[step][0] <= begin <= end <= steps[step][1], (name, step))

    def check_bench(self, found):
        """The device is measured against what it reads and multiplies at best."""
        self.assertTrue(found["device"].startswith("vulkan:0 (llvmpipe"))
        self.assertTrue(found["is_possible"])
        self.assertEqual(found["multiply_unit"], "fused multiply-adds")
        self.assertGreater(found["load"]["bytes"], 10_000_000)
        self.assertGreater(found["load"]["seconds"], 0)
        for row in (*found["prefill"], *found["decode"]):
            self.assertGreater(row["tokens_per_s"]["median"], 0)
            self.assertGreater(row["read_bytes_per_s"], 0)
            self.assertGreater(row["flops_per_s"], 0)
            self.assertEqual(row["share_of_roof"], max(row["share_of_read"], row["share_of_flops"]))
            for share, work, roof in (("share_of_read", "bytes_per_token", "read_bytes_per_s"), ("share_of_flops", "flops_per_token", "flops_per_s")):
                self.assertAlmostEqual(row[share], row["tokens_per_s"]["median"] * row[work] / row[roof])


if __name__ == "__main__":
    unittest.main(verbosity=2)
