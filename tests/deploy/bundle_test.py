#!/usr/bin/env python3
"""A bundle unpacked in another folder runs with an empty environment, and takes every library but libc's from itself."""
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["ARBORIST_SOURCE_DIR"])
BINARY = pathlib.Path(os.environ["ARBORIST_BINARY_DIR"])
SYSTEM = ("ld-linux", "libc.", "libm.", "libdl.", "librt.", "libpthread.", "libstdc++.", "libgcc_s.", "linux-vdso.")
FROM_A_SANITIZER = ("libasan.", "libubsan.", "libtsan.")


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
    check([])
    if (BINARY / "bin/cuda_tests.txt").exists():
        names = check(["--gpu"])
        missing = [name for name in (BINARY / "bin/cuda_tests.txt").read_text().split() if name not in names]
        if missing:
            sys.exit(f"a --gpu bundle lacks {missing}")
    else:
        print("skipped: --gpu, this build has no CUDA")


if __name__ == "__main__":
    main()
