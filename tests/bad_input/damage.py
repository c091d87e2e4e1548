"""Damages to a copy of a model, each a function of the copy's folder. They replace files and never write into one: the copies of
one model share the files that are whole."""
import json
import os
import pathlib
import struct

BF16_NAN, BF16_INFINITY = b"\xc0\x7f", b"\x80\x7f"


def write(file, content):
    """`content` is bytes, text or what JSON can say."""
    path = pathlib.Path(file)
    path.unlink(missing_ok=True)
    if not isinstance(content, (bytes, str)):
        content = json.dumps(content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def all_of(*damages):
    def damage(folder):
        for one in damages:
            one(folder)
    return damage


def without(name):
    return lambda folder: os.unlink(folder / name)


def content(name, what):
    return lambda folder: write(folder / name, what)


def edited(name, edit):
    """edit(object) changes the JSON object of a file in place."""
    def damage(folder):
        value = json.loads((folder / name).read_text())
        edit(value)
        write(folder / name, value)
    return damage


def fields(name, **values):
    """Sets keys of a JSON file; those of an object within as outer__inner; ... deletes."""
    def edit(value):
        for path, new in values.items():
            at = value
            *outer, last = path.split("__")
            for key in outer:
                at = at[int(key) if key.isdigit() else key]
            if new is ...:
                del at[last]
            else:
                at[int(last) if last.isdigit() else last] = new
    return edited(name, edit)


def cut(name, size):
    """Keeps that many bytes; of a negative size, all but so many."""
    return lambda folder: write(folder / name, (folder / name).read_bytes()[:size])


def appended(name, more):
    return lambda folder: write(folder / name, (folder / name).read_bytes() + more)


def link(name, target):
    def damage(folder):
        (folder / name).unlink(missing_ok=True)
        os.symlink(target, folder / name)
    return damage


def pipe(name):
    def damage(folder):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
    return damage


def folder_named(name):
    def damage(folder):
        (folder / name).unlink(missing_ok=True)
        os.mkdir(folder / name)
    return damage


def split(raw):
    """Header and data of a safetensors file."""
    length, = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8:8 + length]), raw[8 + length:]


def joined(header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def header(name, edit):
    """edit(header) changes what a safetensors file says of its tensors, or gives the header's bytes instead."""
    def damage(folder):
        said, data = split((folder / name).read_bytes())
        write(folder / name, joined(edit(said) or said, data))
    return damage


def tensor(name, which, **entry):
    """Changes fields of one tensor's entry; `shape=f` and the like compute the new value from the old one."""
    def edit(said):
        for key, new in entry.items():
            said[which][key] = new(said[which][key]) if callable(new) else new
    return header(name, edit)


def value(name, which, new):
    """Overwrites the first bytes of a tensor."""
    def damage(folder):
        said, data = split((folder / name).read_bytes())
        begin = said[which]["data_offsets"][0]
        write(folder / name, joined(said, data[:begin] + new + data[begin + len(new):]))
    return damage
