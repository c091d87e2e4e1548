"""Starts the three real processes on Unix sockets in a temporary folder, and talks to them through the client."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from programs import BIN  # noqa: E402

SOURCE = os.environ.get("ARBORIST_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODELS = os.path.join(SOURCE, "deploy", "models", "arborist-tiny")


class Service:
    """One process and its log."""

    def __init__(self, folder, name, flags, config=None):
        self.folder, self.name, self.flags = folder, name, flags
        self.config = config or os.path.join(SOURCE, "deploy", "config", f"{name}.textproto")
        self.address = f"unix:{folder}/{name}.sock"
        self.process = None

    def start(self, wait=True):
        command = [os.path.join(BIN, f"arborist-{self.name}"), "--config", self.config, "--listen", self.address] + self.flags
        self.log = open(os.path.join(self.folder, f"{self.name}.log"), "ab")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        if wait:
            self.wait_serving()

    def wait_serving(self, seconds=60):
        service = f"arborist.v1.{self.name.capitalize()}Service"
        result = subprocess.run([client(), "health", "--address", self.address, "--service", service, "--wait", f"{seconds}s"],
                                capture_output=True, text=True, timeout=seconds + 30)
        if result.returncode != 0:
            with open(self.log.name, encoding="utf-8", errors="replace") as log:
                raise AssertionError(f"{self.name} is not SERVING: {result.stdout}{result.stderr}\n{log.read()[-3000:]}")

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        if self.process:
            self.process.wait(timeout=30)
            self.log.close()
        self.process = None

    def terminate(self, seconds=20):
        """SIGTERM; returns the exit status."""
        self.process.terminate()
        status = self.process.wait(timeout=seconds)
        self.log.close()
        self.process = None
        return status


class Cluster:
    """A coordinator, a drafter and a verifier of the shipped pair."""

    def __init__(self, drafter_flags=None, coordinator_flags=None, drafter_config=None, device="cpu"):
        self.folder = tempfile.mkdtemp(prefix="arborist-pipeline-")
        target, draft = os.path.join(MODELS, "target"), os.path.join(MODELS, "drafter")
        self.verifier = Service(self.folder, "verifier", ["--model", target, "--drafter", draft, "--device", device])
        verifier_address = self.verifier.address
        flags = drafter_flags or ["--target", target, "--model", draft]
        self.drafter = Service(self.folder, "drafter", ["--verifier", verifier_address, "--device", device] + flags, drafter_config)
        self.coordinator = Service(self.folder, "coordinator", ["--verifier", verifier_address, "--drafter", self.drafter.address,
                                                                "--tokenizer", target] + (coordinator_flags or []))

    def start(self, drafter=True):
        self.verifier.start()
        if drafter:
            self.drafter.start()
        self.coordinator.start()

    def stop(self):
        for service in (self.coordinator, self.drafter, self.verifier):
            service.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def generate(self, *flags, check=True, timeout=120):
        """Runs `arborist generate --json`; returns the parsed answer."""
        result = self.generate_process(*flags).communicate_checked(check, timeout)
        return result

    def generate_process(self, *flags):
        return Generation([client(), "generate", "--address", self.coordinator.address, "--json", *map(str, flags)])


class Generation:
    """A running `arborist generate`."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def communicate_checked(self, check=True, timeout=120):
        out, err = self.process.communicate(timeout=timeout)
        if not check:
            return self.process.returncode, out, err
        if self.process.returncode != 0:
            raise AssertionError(f"generate failed with {self.process.returncode}: {out}{err}")
        return json.loads(out)


def client():
    return os.path.join(BIN, "arborist")


def wait_until(condition, seconds, what):
    """Polls until condition() is true; fails with `what` after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(what)
