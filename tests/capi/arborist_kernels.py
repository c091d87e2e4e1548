"""The C library from Python: ctypes structs read from arborist_kernels.h itself, tensors checked against its types.

    kernels = Library("lib/libarborist_kernels.so", "include/arborist_kernels.h")
    kernels.call("tree_accept", stream, trees=2, rows=18, tree_begin=begin, nodes=None, ...)

Needs PyTorch only for the tensors that it is given. A call checks dtype and density of each tensor, enqueues on `stream` (a
torch.cuda.Stream or a raw handle) and raises KernelError with the library's message when that is refused."""

import ctypes
import pathlib
import re

SCALARS = {"int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
           "size_t": ctypes.c_size_t, "float": ctypes.c_float}
# What torch calls the element types of pointers; others (void*, structs) take any tensor.
ELEMENTS = {"int32_t": "torch.int32", "float": "torch.float32", "int64_t": "torch.int64"}


class KernelError(RuntimeError):
    pass


def _structs(header):
    """Name -> ctypes.Structure, whose `pointees` are the C types that its pointers point to."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    found = {}
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, flags=re.S):
        fields, pointees = [], {}
        for declaration in filter(None, (part.strip() for part in body.split(";"))):
            kind, star, field = re.fullmatch(r"(?:const )?(\w+)( ?\*.*?|\s)\s*(\w+)", declaration).groups()
            if "*" in star:
                pointees[field] = kind if star.count("*") == 1 else "address"
                fields.append((field, ctypes.c_void_p))
            else:
                fields.append((field, SCALARS[kind]))
        found[name] = type(name, (ctypes.Structure,), {"_fields_": fields, "pointees": pointees})
    return found


class Library:
    def __init__(self, library, header):
        text = pathlib.Path(header).read_text()
        self._library = ctypes.CDLL(str(library))
        self._library.arborist_last_error.restype = ctypes.c_size_t
        self._library.arborist_last_error.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        expected = int(re.search(r"#define ARBORIST_KERNELS_ABI_VERSION (\d+)", text).group(1))
        actual = self._library.arborist_kernels_abi_version()
        if actual != expected:
            raise KernelError(f"abi version {actual} of {library}, expected {expected} of {header}")
        self.structs = _structs(text)

    def call(self, name, stream, **fields):
        """arborist_<name>; every field of its args by name, pointers as tensors or None."""
        function = getattr(self._library, f"arborist_{name}")
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        args = self._args(name, fields)
        self._check(function(ctypes.byref(args), getattr(stream, "cuda_stream", stream)))

    def call_host(self, name, **fields):
        function = getattr(self._library, f"arborist_{name}_host")
        function.argtypes = [ctypes.c_void_p]
        args = self._args(name, fields)
        self._check(function(ctypes.byref(args)))

    def scratch_bytes(self, name, **sizes):
        """What a call with these sizes needs; fields left out are zero."""
        function = getattr(self._library, f"arborist_{name}_scratch_bytes")
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        args = self.structs[f"arborist_{name}_args"](**sizes)
        needed = ctypes.c_size_t()
        self._check(function(ctypes.byref(args), ctypes.byref(needed)))
        return needed.value

    def params(self, name, rows):
        """The bytes of an array of arborist_<name> structs, from dictionaries: for a uint8 tensor."""
        kind = self.structs[f"arborist_{name}"]
        return bytes((kind * len(rows))(*(kind(**row) for row in rows)))

    def check_sampling_params(self, **fields):
        function = self._library.arborist_check_sampling_params
        self._check(function(ctypes.byref(self.structs["arborist_sampling_params"](**fields))))

    def _args(self, name, fields):
        kind = self.structs[f"arborist_{name}_args"]
        names = {field for field, _ in kind._fields_}
        if set(fields) != names:
            raise TypeError(f"arborist_{name}: missing {sorted(names - set(fields))}, unknown {sorted(set(fields) - names)}")
        values = {}
        for field, value in fields.items():
            if field in kind.pointees and value is not None:
                wanted = ELEMENTS.get(kind.pointees[field])
                if wanted is not None and str(value.dtype) != wanted:
                    raise TypeError(f"arborist_{name}: {field} is {value.dtype}, expected {wanted}")
                if not value.is_contiguous():
                    raise TypeError(f"arborist_{name}: {field} has strides {value.stride()}, expected a dense tensor")
                value = value.data_ptr()
            values[field] = value
        return kind(**values)

    def _check(self, code):
        if code != 0:
            length = self._library.arborist_last_error(None, 0)
            text = ctypes.create_string_buffer(length + 1)
            self._library.arborist_last_error(text, len(text))
            raise KernelError(f"{text.value.decode()} (code {code})")
