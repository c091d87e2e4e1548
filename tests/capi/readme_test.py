#!/usr/bin/env python3
"""The C example of kernels/capi/README.md compiles as C99 against the installed header alone, and links with the installed library:

    readme_test.py CMAKE BUILD_FOLDER C_COMPILER"""
import pathlib
import re
import subprocess
import sys
import tempfile

README = pathlib.Path(__file__).resolve().parents[2] / "kernels/capi/README.md"


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")


def main():
    cmake, build, compiler = sys.argv[1:]
    examples = re.findall(r"^```c\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    if not examples:
        sys.exit(f"{README} has no C example")
    with tempfile.TemporaryDirectory() as folder:
        run(cmake, "--install", build, "--component", "capi", "--prefix", folder)
        for number, text in enumerate(examples):
            source, library = pathlib.Path(folder) / f"example{number}.c", f"{folder}/example{number}.so"
            source.write_text(text)
            run(compiler, "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{folder}/include", source,
                f"-L{folder}/lib", "-larborist_kernels", f"-Wl,-rpath-link,{folder}/lib", "-Wl,-z,defs", "-o", library)
    print(f"{len(examples)} example(s) of kernels/capi/README.md compile and link")


if __name__ == "__main__":
    main()
