#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/view.h"

// The CUDA side of linear.h and linear_per_head.h: one matrix a head (a plain product has one head).
//
// bf16 weights run on tensor cores: x is rounded to bf16 (to nearest even), sums are fp32. fp32 and fp16
// weights run in fp32 throughout. A weight's shape alone decides how its inputs are cut and in which order
// the parts are joined, so a row has the same bits among any number of rows.
namespace arborist::kernels::cuda {

struct DenseArgs {
  const float* x = nullptr;  // [tokens, heads, inputs], strided
  int64_t x_row_stride = 0;
  int64_t x_head_stride = 0;
  WeightView weight;     // [heads * outputs, inputs]
  float* out = nullptr;  // [tokens, heads, outputs], strided
  int64_t out_row_stride = 0;
  int64_t out_head_stride = 0;
  int64_t tokens = 0;
  int64_t heads = 1;
  int64_t outputs = 0;  // of a head
};

// How a bf16 product is laid out.
struct DensePlan {
  // Blocks of a cluster that share the inputs of their rows and join their sums through shared memory: 1, 2,
  // 4 or 8. Part of the result's bits, so a function of the weight's shape and of whether the device has
  // clusters (sm_90 on).
  int ranks = 1;
  // Weight rows and tokens of a block, no part of the bits: 64 rows x 8, 16, 24 or 40 tokens, 128 x 40 or 64.
  int rows = 64;
  int tokens = 8;
  bool two_an_sm = true;  // of 64 x 40: all blocks run at once where two share an SM
};

DensePlan PlanDense(int64_t heads, int64_t outputs, int64_t inputs, int64_t tokens, bool clusters);

// Shapes were checked by the caller; tokens > 0.
absl::Status Dense(const DenseArgs& args, void* cuda_stream);

// Where a row's bits may depend on the number of rows.
absl::Status DenseFast(const DenseArgs& args, void* cuda_stream);

// Few tokens against bf16 weights at aligned addresses, by fused multiply-adds in fp32; x is not rounded.
// A weight's rows are shared by few threads each, which all read at once: no pipeline to fill.
inline constexpr int kMaxVectorTokens = 8;
bool SuitsVectors(const DenseArgs& args);
absl::Status DenseVectors(const DenseArgs& args, void* cuda_stream);

// The two ways. Mma takes bf16 weights, Fma the others.
absl::Status DenseMma(const DenseArgs& args, const DensePlan& plan, void* cuda_stream);
absl::Status DenseFma(const DenseArgs& args, void* cuda_stream);

}  // namespace arborist::kernels::cuda
