#!/usr/bin/env python3
"""A bundle unpacked in another folder runs with an empty environment, takes every library but libc's from itself, and serves with
the configs and models that lie in it."""
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from programs import BIN, ROOT as SOURCE  # noqa: E402

SYSTEM = ("ld-linux", "libc.", "libm.", "libdl.", "librt.", "libpthread.", "libstdc++.", "libgcc_s.", "linux-vdso.")
FROM_A_SANITIZER = ("libasan.", "libubsan.", "libtsan.")


def serve(root, sockets):
    """The three commands of README.txt, listening elsewhere; ends them."""
    draft = ["--model", "models/arborist-tiny/drafter"]
    address = {name: f"unix:{sockets}/{name}.sock" for name in ("verifier", "drafter", "coordinator")}
    flags = {"verifier": ["--drafter", draft[1]],
             "drafter": ["--verifier", address["verifier"], "--target", "models/arborist-tiny/target", *draft],
             "coordinator": ["--verifier", address["verifier"], "--drafter", address["drafter"]]}
    running = []
    try:
        for name in flags:
            command = [f"bin/arborist-{name}", "--config", f"config/{name}.textproto", "--listen", address[name], *flags[name]]
            running.append(subprocess.Popen(command, cwd=root, env={}))
            health = ["bin/arborist", "health", "--address", address[name], "--service", f"arborist.v1.{name.capitalize()}Service",
                      "--wait", "60s"]
            if subprocess.run(health, cwd=root, env={}, stdout=subprocess.DEVNULL).returncode != 0:
                sys.exit(f"arborist-{name} of a bundle is not SERVING")
        said = subprocess.run(["bin/arborist", "generate", "--address", address["coordinator"], "--prompt", "import os",
                               "--max-tokens", "20"], cwd=root, env={}, capture_output=True, text=True)
        if said.returncode != 0:
            sys.exit(f"generate from a bundle: {said.returncode} {said.stdout}{said.stderr}")
    finally:
        for process in running:
            process.kill()
            process.wait()


def check(flags):
    with tempfile.TemporaryDirectory() as folder:
        archive = pathlib.Path(folder) / "arborist.tar.gz"
        packed = subprocess.run([SOURCE / "deploy/bundle.sh", *flags, archive], capture_output=True, text=True)
        if packed.returncode != 0:
            sys.exit(f"deploy/bundle.sh {' '.join(flags)} ended with {packed.returncode}: {packed.stdout}{packed.stderr}")
        subprocess.run(["tar", "-C", folder, "-xzf", archive], check=True)
        root = pathlib.Path(folder) / "arborist"
        helped = subprocess.run([root / "bin/arborist", "--help"], env={}, capture_output=True, text=True)
        if helped.returncode != 0 or "generate" not in helped.stdout:
            sys.exit(f"arborist --help from a bundle: {helped.returncode} {helped.stdout}{helped.stderr}")
        if flags and not (root / "include/arborist_kernels.h").exists():
            sys.exit("a --gpu bundle lacks include/arborist_kernels.h")
        if not flags:
            serve(root, folder)
        names = sorted(path.name for path in (root / "bin").iterdir() if path.suffix != ".txt" and path.name != "COMMIT")
        for name in names:
            for line in subprocess.run(["ldd", root / "bin" / name], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
                                       check=True).stdout.splitlines():
                library = line.split()[0].rsplit("/", 1)[-1]
                if not library.startswith(SYSTEM + FROM_A_SANITIZER) and str(root) not in line:
                    sys.exit(f"{name} of a bundle takes a library from outside: {line.strip()}")
        print(packed.stdout.strip())
        return names


def main():
    helped = subprocess.run([SOURCE / "deploy/bundle.sh", "--help"], capture_output=True, text=True)
    if helped.returncode != 0 or not helped.stdout.startswith("usage: deploy/bundle.sh"):
        sys.exit(f"deploy/bundle.sh --help: {helped.returncode} {helped.stdout}{helped.stderr}")
    check([])
    if (BIN / "cuda_tests.txt").exists():
        names = check(["--gpu"])
        missing = [name for name in (BIN / "cuda_tests.txt").read_text().split() if name not in names]
        if missing:
            sys.exit(f"a --gpu bundle lacks {missing}")
    else:
        print("skipped: --gpu, this build has no CUDA")


if __name__ == "__main__":
    main()
