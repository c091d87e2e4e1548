"""Turns the files of one unpacked package into cleaned documents."""
import ast
import gzip
import html
import os
import re
import zlib

from config import CHAT_ASSISTANT, CHAT_END, CHAT_MIDDLE, CHAT_USER

MAX_DOCUMENT = 120_000               # longer files are cut
MIN_DOCUMENT = 200                   # shorter ones teach nothing
MAX_FILE = 1_500_000
CODE_CAP, DOC_CAP = 3_000_000, 9_000_000   # at most so many bytes of one package, so that none dominates


def clean(text):
    text = text.replace("\r\n", "\n").replace("\t", "    ")
    text = re.sub(r"[ \t]+\n", "\n", text)
    text = re.sub(r"\n{4,}", "\n\n\n", text)
    return text.strip("\n") + "\n"


def drop_licence_header(text):
    """The same comment block heads thousands of files; a model would learn to recite it."""
    lines = text.split("\n")
    i = 0
    while i < len(lines) and (lines[i].startswith("#") or not lines[i].strip()):
        i += 1
    head = "\n".join(lines[:i]).lower()
    boilerplate = head.startswith("#!") or any(w in head for w in ("license", "licence", "copyright", "coding"))
    return "\n".join(lines[i:]) if boilerplate else text


def html_to_text(text):
    body = re.search(r'<(?:div|main|article)[^>]*(?:class|role|id)="(?:body|main|content|document|CHAPTER|SECT1|REFENTRY|sect1|refentry|chapter|section)"', text)
    if body:
        text = text[body.start():]
    text = re.sub(r"(?is)<(script|style|head|nav|footer).*?</\1>", "", text)
    text = re.sub(r'(?is)<div class="nav(?:header|footer)".*?</div>', "", text)
    text = re.sub(r"(?i)<(p|div|h[1-6]|li|tr|dt|dd|pre|br)[^>]*>", "\n", text)
    text = html.unescape(re.sub(r"<[^>]+>", "", text))
    return re.sub(r"\n[ \n]*\n", "\n\n", text).replace("¶", "").replace("\xa0", " ")


def chat(question, answer):
    return (f"{CHAT_USER}user{CHAT_MIDDLE}{question}{CHAT_END}"
            f"{CHAT_ASSISTANT}assistant{CHAT_MIDDLE}{answer}{CHAT_END}")


def conversations(text, limit):
    """Chat documents from documented functions: the docstring asks, the source answers."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    lines, found = text.split("\n"), 0
    for node in ast.walk(tree):
        if found >= limit:
            return
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("test"):
            continue
        doc = ast.get_docstring(node)
        if not doc:
            continue
        first = re.sub(r"\s+", " ", doc.strip().split("\n\n")[0]).strip()
        body = lines[node.lineno - 1:node.end_lineno]
        if not 20 <= len(first) <= 160 or not 80 <= sum(map(len, body)) <= 1600 or "`" in first:
            continue
        indent = len(body[0]) - len(body[0].lstrip())
        code = "\n".join(l[indent:] if not l[:indent].strip() else l for l in body)
        yield chat(f"Write a Python function `{node.name}`: {first.rstrip('.')}.", f"```python\n{code}\n```")
        found += 1


def kind_of(path, is_doc, has_sources):
    """code, rst, html, or None for files that are left out"""
    name = os.path.basename(path)
    if name.endswith(".py"):
        return "code"
    if re.search(r"\.(rst|md|rst\.txt)(\.gz)?$", name) or ("_sources" in path and name.endswith((".txt", ".txt.gz"))):
        return "rst" if is_doc or "/doc/" in path else None
    generated = name.startswith(("genindex", "search", "bookindex", "release", "py-modindex", "classes", "hierarchy"))
    if is_doc and not has_sources and re.search(r"\.html(\.gz)?$", name) and not generated:
        return "html"
    return None


def read(path, kind):
    """The cleaned text of one file, or None where it is data, binary, foreign or minified."""
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8", errors="replace") as f:
        text = f.read(MAX_FILE + 1)
    if len(text) > MAX_FILE or "\0" in text or "\ufffd" in text:
        return None
    text = clean(html_to_text(text) if kind == "html" else text)
    if kind == "code":
        text = clean(drop_licence_header(text))
    if len(text) < MIN_DOCUMENT or max(map(len, text.split("\n"))) > 1000:
        return None
    if sum(c > "\x7f" for c in text) > 0.02 * len(text) or sum(c.isdigit() for c in text) > 0.2 * len(text):
        return None
    return text


def files_of(root, is_doc):
    paths = [os.path.join(d, f) for d, _, fs in os.walk(root) for f in fs]
    paths = [p for p in paths if not os.path.islink(p) and os.path.getsize(p) >= MIN_DOCUMENT]
    has_sources = any("_sources" in p for p in paths)
    out = [(zlib.crc32(p[len(root):].encode()), p, kind_of(p, is_doc, has_sources)) for p in paths]
    return sorted(e for e in out if e[2])    # a fixed, shuffled order


def documents(root, package):
    """[(path, kind, text)] of a package unpacked at root, up to the cap"""
    is_doc = bool(re.search(r"-doc(-\d+)?$", package))
    out, size = [], 0
    for _, path, kind in files_of(root, is_doc):
        if size > (DOC_CAP if is_doc else CODE_CAP):
            break
        text = read(path, kind)
        before = len(out)
        if text is None:
            continue
        short = path[len(root):].split("dist-packages/")[-1].split("_sources/")[-1].split("python3.11/")[-1]
        if kind == "code" and "/test" not in short:
            out += [(short, "chat", c) for c in conversations(text, 6)]
        out.append((short, kind, text[:MAX_DOCUMENT]))
        size += sum(len(t) for _, _, t in out[before:])
    return out
