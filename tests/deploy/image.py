"""The Dockerfile as far as it can be held against this checkout without building it. Each function returns complaints."""
import fnmatch
import json
import os
import re
import shlex

from kubernetes_manifests import USER
from manifests import IMAGE_ROOT, PROGRAMS, read

LABELS = ("title", "description", "licenses", "version", "revision", "created")
# deploy/bundle.sh packs these.
BUNDLED = ("deploy/bundle.sh", "deploy/bundle_readme.txt", "deploy/config/verifier.textproto",
           "deploy/models/arborist-tiny/target/tokenizer.json", "kernels/capi/arborist_kernels.h")


def instructions(root):
    """(instruction, rest) with continued lines joined."""
    lines = "\n".join(line for line in read(root, "deploy/Dockerfile").splitlines() if not line.startswith("#"))
    joined = re.sub(r"\\\n", " ", lines)
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def ignored(root, path):
    """Whether .dockerignore keeps `path` out of the build: the last pattern that fits it or a folder above it decides."""
    out = False
    parts = path.split("/")
    above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    for line in read(root, ".dockerignore").splitlines():
        pattern = line.strip().lstrip("!")
        anywhere = pattern.startswith("**/")
        if pattern and not pattern.startswith("#") and any(
                fnmatch.fnmatch(os.path.basename(each), pattern[3:]) if anywhere else fnmatch.fnmatch(each, pattern) for each in above):
            out = not line.startswith("!")
    return out


def image_complaints(root):
    found, out = instructions(root), []
    stages, copied = [], []
    last = {}
    for word, rest in found:
        if word == "FROM":
            image, *name = re.split(r"\s+AS\s+", rest)
            stages.append(name[0] if name else "")
            last = {}
            if ":" not in image or image.endswith(":latest"):
                out.append(f"Dockerfile: {image} is any version")
        elif word == "COPY":
            out += copy_complaints(root, shlex.split(rest), stages)
            copied.append(rest)
        elif word == "RUN":
            out += run_complaints(root, rest)
        last[word] = rest
    if last.get("USER") != f"{USER}:{USER}":
        out.append(f"Dockerfile: runs as {last.get('USER')}, expected {USER}:{USER}")
    if last.get("STOPSIGNAL") != "SIGTERM":
        out.append("Dockerfile: STOPSIGNAL SIGTERM expected, on which the services drain")
    for label in LABELS:
        if f"org.opencontainers.image.{label}=" not in last.get("LABEL", ""):
            out.append(f"Dockerfile: no label {label}")
    if last.get("COPY") != f"--from=build {IMAGE_ROOT} {IMAGE_ROOT}" or last.get("WORKDIR") != IMAGE_ROOT:
        out.append(f"Dockerfile: the bundle is expected at {IMAGE_ROOT}, where the configs look")
    if last.get("ENV") != f"PATH={IMAGE_ROOT}/bin" or json.loads(last["CMD"])[0] != "arborist":
        out.append("Dockerfile: the programs are expected on the path")
    version = re.search(r"project\(arborist VERSION (\S+)", read(root, "CMakeLists.txt")).group(1)
    if ("ARG", f"VERSION={version}") not in found:
        out.append(f"Dockerfile: the version is {version}")
    return out + context_complaints(root)


def copy_complaints(root, words, stages):
    sources = [word for word in words[:-1] if not word.startswith("--")]
    for word in words:
        if word.startswith("--from="):
            return [] if word[7:] in stages else [f"Dockerfile: no stage {word[7:]}"]
    return [f"Dockerfile: {source} is not in the build's context" for source in sources
            if source != "." and (not os.path.exists(os.path.join(root, source)) or ignored(root, source))]


def run_complaints(root, command):
    out = []
    presets = [each["name"] for each in json.loads(read(root, "CMakePresets.json"))["buildPresets"]]
    for preset in re.findall(r"--preset (\S+)", command):
        if preset not in presets:
            out.append(f"Dockerfile: no preset {preset}")
    targets = re.search(r"--target ([^&]+)", command)
    if targets and sorted(targets.group(1).split()) != sorted(["arborist", *PROGRAMS.values()]):
        out.append(f"Dockerfile: builds {targets.group(1).strip()}")
    for script in re.findall(r"(deploy/\S+\.sh)", command):
        if not os.access(os.path.join(root, script), os.X_OK) or ignored(root, script):
            out.append(f"Dockerfile: {script} cannot be run")
    for script, flag in re.findall(r"(deploy/install_packages\.sh) (--\S+)", command):
        if flag not in read(root, script):
            out.append(f"Dockerfile: {script} has no {flag}")
    return out


def context_complaints(root):
    """What the build reads is in the context, what lies around is not."""
    needed = ["CMakeLists.txt", "CMakePresets.json", "cmake/arborist_targets.cmake", *BUNDLED]
    needed += [f"{folder}/CMakeLists.txt" for folder in re.findall(r"add_subdirectory\((\w+)\)", read(root, "CMakeLists.txt"))]
    out = [f".dockerignore: keeps {path} out" for path in needed if ignored(root, path)]
    unwanted = (".git/HEAD", "build/release/bin/arborist", "deploy/models/arborist-tiny/target/.arborist-sha256", "deploy/compose.yaml",
                "tests/__pycache__/programs.pyc")
    return out + [f".dockerignore: lets {path} in" for path in unwanted if not ignored(root, path)]
