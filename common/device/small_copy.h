#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace arborist {

// Whether CopyByKernel may do this copy: few bytes at 16-byte boundaries, from page-locked memory of the host
// to the device or back.
bool SuitsKernel(const void* to, const void* from, size_t bytes);

// The copy as a kernel. In recorded work that is faster than a copy of the driver's, which goes to another
// engine of the GPU and back.
cudaError_t CopyByKernel(void* to, const void* from, size_t bytes, cudaStream_t stream);

// Brings the kernel to the device; while work is recorded it is too late.
cudaError_t LoadCopyKernel();

}  // namespace arborist
