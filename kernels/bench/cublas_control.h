#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"

namespace arborist::kernels::bench {

// cuBLAS, where the machine has one: what its products reach stands beside ours. It is looked up when the
// program runs, so that nothing of ours links it.
class CublasControl {
 public:
  // Null where no libcublas is found (the loader's path, or the CUDA toolkit's folder).
  static std::unique_ptr<CublasControl> Open(void* cuda_stream);
  virtual ~CublasControl() = default;

  // out[row, o] = sum_i x[row, i] * weight[o, i], bf16, sums in fp32; enqueued on the stream.
  virtual absl::Status Product(const void* x, const void* weight, void* out, int64_t rows, int64_t outputs,
                               int64_t inputs) = 0;
};

}  // namespace arborist::kernels::bench
