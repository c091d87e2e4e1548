"""Decides from a Debian copyright file whether a package may enter the corpus.

A package passes when every licence that the file names is on the permissive list below and no line of the file names a
copyleft licence. The second rule also reads free text, because old copyright files have no `License:` fields, and it
covers the packaging itself (`Files: debian/*`), whose licence is often another than upstream's.
"""
import glob
import os
import re

PERMISSIVE = re.compile(
    r"^(apache|asl|bsd|[234]-clause|expat|mit\b|mit-|mit/|x11|isc|psf|python|cnri|zlib|zpl|zope|public[- ]?domain|pd\b|cc0|cc-by-[34]\.0$|cc-by-[234]$"
    r"|boost|bsl|unlicense|postgresql|tcl|hpnd|historical|wtfpl|0bsd|anaconda-bsd|unicode|ofl|sil|pil|ntp|openssl|curl|numpy|simplified bsd"
    r"|matplotlib|custom-|double-metaphone|nagaysau|antigrain|openstack|pyramid|iso-1986|naist|egenix|afl|blessing|llvm|bsdlike|qhullbsd)",
    re.IGNORECASE)

COPYLEFT = re.compile(
    r"\b[AL]?GPL(?!-? ?compat)|general public licen|\bMPL\b|mozilla public|[- ]SA[- ]\d|share-?alike|\bEPL\b|eclipse public|\bCDDL\b|\bEUPL\b"
    r"|artistic|\bGFDL\b|free documentation licen|[- ]NC[- ]|non-?commercial|\bQPL\b|\bCeCILL", re.IGNORECASE)

# Files whose free text trips a rule above although nothing of the package is under that licence; each was read.
READ_AND_PERMISSIVE = {
    **dict.fromkeys(
        ("libpython3.11-minimal", "libpython3.11-stdlib", "libpython3.11-testsuite", "python3.11-doc"),
        "PSF-2.0 and permissive licences of single modules; the GPL is named for the readline library and for libffi's "
        "manual, which hold no text of the corpus, and in the PSF's own remarks on compatibility"),
    **dict.fromkeys(("python3-scipy", "python-scipy-doc"), "BSD-3-Clause and others; a part was relicensed from GPL to BSD-3 by its authors"),
    "python3-matplotlib": "PSF-based matplotlib licence, BSD, MIT, CC-BY-4.0; LGPL is named only as allowed for add-ons",
    "llvm-14-doc": "Apache-2.0 with LLVM exceptions (whose text names the GPL), BSD-3-Clause, MIT, Python",
    "python3-asyncpg": "Apache-2.0, PSF-2.0 (whose text remarks on GPL compatibility)",
    "python3-poetry-core": "Expat, BSD, Apache-2.0, PSF-2.0 (whose text remarks on GPL compatibility)",
    **dict.fromkeys(("python3-werkzeug", "python-werkzeug-doc"), "BSD-3-clause; GAP (all-permissive)"),
    "python3-numba": "BSD-2-Clause; BSD-3-Clause; CC0-1.0; Expat; informal (free use with notice)",
    "python3-markdown": "BSD-3-clause; etree13 (HPND)",
    "python3-eventlet": "Expat; Apache-2.0; BSD-3-clause under other names",
    "python3-certbot": "Apache-2.0 under another name",
    "python3-txtorcon": "Expat; all-permissive",
    "python3-fastapi": "MIT (field left empty)",
    "python3-dnspython": "ISC (free text)",
    "python3-html5lib": "MIT (free text)",
}


def names(text):
    """The licences of a machine-readable copyright file: the first line of every License field."""
    return sorted({m.strip() for m in re.findall(r"(?mi)^License:[ \t]*(\S.*)$", text)})


def atoms(name):
    """'Apache-2.0 and (BSD-3 or Expat)' -> its single licences"""
    return [a.strip(" ()") for a in re.split(r"(?i)\s+(?:and|or)\s+|[,;+/|](?=\s*[A-Za-z])", name) if a.strip(" ()")]


def verdict(package, text):
    """(may be used, the licences named or the reason of the refusal)"""
    named = names(text)
    if package in READ_AND_PERMISSIVE:
        return True, READ_AND_PERMISSIVE[package]
    hit = COPYLEFT.search(text)
    if hit:
        line = text[text.rfind("\n", 0, hit.start()) + 1:].split("\n", 1)[0].strip()
        return False, "copyleft: " + line[:100]
    if not named:
        return False, "no licence field"
    odd = [a for n in named for a in atoms(n) if not PERMISSIVE.match(a)]
    if odd:
        return False, "not on the list: " + "; ".join(odd)[:160]
    return True, "; ".join(named)


def copyright_text(root, package):
    """The copyright file of an unpacked package, or '' where the file is missing or a link out of the package."""
    for path in glob.glob(f"{root}/usr/share/doc/{glob.escape(package)}/copyright"):
        if os.path.isfile(path):
            with open(path, errors="replace") as f:
                return f.read()
    return ""
