"""NVIDIA's multi-process service, by which processes share a GPU at the same time instead of by turns."""

import os
import shutil
import subprocess
import tempfile


def control_program():
    """None where the machine has none."""
    names = ("/usr/local/nvidia/bin/nvidia-cuda-mps-control", "nvidia-cuda-mps-control")
    return next((found for name in names if (found := shutil.which(name))), None)


class Mps:
    """A private MPS daemon; everything started meanwhile shares the GPU through it."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="arborist-mps-")
        os.environ["CUDA_MPS_PIPE_DIRECTORY"] = self.folder.name
        os.environ["CUDA_MPS_LOG_DIRECTORY"] = self.folder.name
        self.program = control_program() or "nvidia-cuda-mps-control"
        subprocess.run([self.program, "-d"], check=True)
        return self

    def __exit__(self, *_):
        subprocess.run([self.program], input="quit\n", text=True, check=False, timeout=30)
        del os.environ["CUDA_MPS_PIPE_DIRECTORY"], os.environ["CUDA_MPS_LOG_DIRECTORY"]
        self.folder.cleanup()
