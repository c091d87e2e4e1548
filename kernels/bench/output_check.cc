#include "kernels/bench/output_check.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "common/tensor/dtype.h"

namespace arborist::kernels::bench {

void DownloadBytes(const void* from, void* to, size_t bytes) {
  if (cudaDeviceSynchronize() != cudaSuccess ||
      cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost) != cudaSuccess) {
    std::fprintf(stderr, "reading an output failed\n");
    std::exit(1);
  }
}

std::vector<float> DownloadBf16(const void* from, int64_t count) {
  std::vector<float> values;
  for (const uint16_t bits : Download(static_cast<const uint16_t*>(from), count)) {
    values.push_back(ToFloat(BFloat16{bits}));
  }
  return values;
}

void ExpectNear(const std::string& kernel, std::span<const float> got, std::span<const float> want,
                float tolerance) {
  float scale = 0;
  for (const float value : want) {
    scale = std::max(scale, std::fabs(value));
  }
  for (size_t i = 0; i < want.size(); ++i) {
    if (i >= got.size() || !(std::fabs(got[i] - want[i]) <= tolerance * scale)) {
      std::fprintf(stderr, "%s: output %zu is %g, expected %g\n", kernel.c_str(), i,
                   i < got.size() ? got[i] : 0.0f, want[i]);
      std::exit(1);
    }
  }
}

void Differs(const std::string& kernel, size_t element) {
  std::fprintf(stderr, "%s: output %zu differs from the oracle's\n", kernel.c_str(), element);
  std::exit(1);
}

}  // namespace arborist::kernels::bench
