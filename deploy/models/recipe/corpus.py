#!/usr/bin/env python3
"""Builds the training corpus from Debian packages: corpus.py <directory with .deb files> <output directory>

Fetch the packages with fetch_packages.sh first. Writes corpus.train.xz and corpus.val.xz (documents, each followed by a
NUL byte) and manifest.tsv (what was used, with versions, sizes and licences), and prints what was refused and why.
"""
import glob
import hashlib
import lzma
import os
import re
import subprocess
import sys
import tempfile
import zlib
from concurrent.futures import ProcessPoolExecutor

import extract
import licences

HELD_OUT_PERCENT = 2
XZ_FILTERS = [dict(id=lzma.FILTER_LZMA2, preset=9 | lzma.PRESET_EXTREME, dict_size=256 << 20, lc=4, lp=0, pb=0)]


def package(deb):
    """(name, version, accepted, licences or reason, documents)"""
    name = os.path.basename(deb).split("_")[0]
    version = subprocess.run(["dpkg-deb", "-f", deb, "Version"], capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as root:
        subprocess.run(["dpkg-deb", "-x", deb, root], check=True)
        accepted, why = licences.verdict(name, licences.copyright_text(root, name))
        return name, version, accepted, why, extract.documents(root, name) if accepted else []


class Duplicates:
    """Drops exact copies, and documents over half of whose 8-line blocks were seen before."""

    def __init__(self):
        self.documents, self.blocks = set(), set()

    def seen(self, kind, text):
        digest = hashlib.blake2b(re.sub(r"\s+", " ", text).encode(), digest_size=8).digest()
        if digest in self.documents:
            return True
        self.documents.add(digest)
        if kind == "chat":           # its answer repeats lines of the source file on purpose
            return False
        lines = [l.strip() for l in text.split("\n") if l.strip()]
        blocks = {zlib.crc32("\n".join(lines[i:i + 8]).encode()) for i in range(0, max(1, len(lines) - 7), 4)}
        if len(blocks) > 3 and len(blocks & self.blocks) > 0.5 * len(blocks):
            return True
        self.blocks |= blocks
        return False


def split_of(name, path):
    """Held out by path: a chat document goes where its source file goes."""
    return "val" if zlib.crc32(f"{name} {path}".encode()) % 100 < HELD_OUT_PERCENT else "train"


def main(debs, out):
    with ProcessPoolExecutor(2) as pool:
        packages = list(pool.map(package, sorted(glob.glob(debs + "/*.deb"))))
    duplicates, parts, rows, kinds = Duplicates(), {"train": [], "val": []}, [], {}
    for name, version, accepted, why, documents in packages:
        if not accepted:
            print(f"refused\t{name}\t{why}")
            continue
        count = size = 0
        for path, kind, text in documents:
            if duplicates.seen(kind, text):
                continue
            split = split_of(name, path)
            parts[split].append(f"# {path}\n{text}" if kind == "code" else text)
            bytes_ = len(parts[split][-1].encode())
            count, size = count + 1, size + bytes_
            kinds[kind, split] = kinds.get((kind, split), 0) + bytes_
        if count:
            rows.append((name, version, count, size, why))
    os.makedirs(out, exist_ok=True)
    with open(out + "/manifest.tsv", "w") as f:
        f.write("package\tversion\tdocuments\tbytes\tlicences named in its copyright file\n")
        f.writelines("\t".join(map(str, r)) + "\n" for r in rows)
    for split, items in parts.items():    # package order compresses better; the trainer shuffles
        blob = "".join(t + "\0" for t in items).encode()
        packed = lzma.compress(blob, filters=XZ_FILTERS)
        with open(f"{out}/corpus.{split}.xz", "wb") as f:
            f.write(packed)
        print(f"{split}\t{len(items)} documents\t{len(blob)} bytes\t{len(packed)} packed")
    print(f"{len(rows)} packages", {f"{k}/{s}": v for (k, s), v in sorted(kinds.items())})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
