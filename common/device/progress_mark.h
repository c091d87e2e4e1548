#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace arborist {

// Enqueues a kernel of one thread that writes `part` to the host's word once everything before it is done.
// What a GPU has reached can then be read even after a fault, when nothing else can be had from it.
cudaError_t EnqueueMark(volatile uint32_t* word, uint32_t part, cudaStream_t stream);

// Brings the kernel to the device; while work is recorded it is too late.
cudaError_t LoadMarkKernel();

}  // namespace arborist
