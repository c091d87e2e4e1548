#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// A dot product has 16 virtual lanes on every ISA: lane l sums the products of k = l, l+16, l+32, ... in
// ascending k, each by one fused multiply-add from 0 (k past the end contributes fma(0, 0, lane)); then lanes
// are joined (l, l+8), (l, l+4), (l, l+2), (l, l+1). So a result depends on the two vectors alone, never on
// rows, tiles or threads.
//
// That is the CPU's definition. On CUDA the order is another one, fixed by the weight's shape alone, and x is
// rounded to bf16 (to nearest even) before it meets bf16 weights; sums are fp32. A result still depends on
// the two vectors alone (dense_cuda.h).

// Column parallel: out[t, n] = dot(x[t, :], weight[n, :]).
struct LinearArgs {
  View2<const float> x;  // [tokens, inputs]
  WeightView weight;     // [outputs, inputs]
  View2<float> out;      // [tokens, outputs], no overlap with x
};

absl::Status ValidateLinear(const LinearArgs& args);

// A row-parallel product is defined as 8 segments of the full inputs, segment s = [floor(s*K/8),
// floor((s+1)*K/8)), each a dot product as above, joined by the balanced binary tree
// ((0+1)+(2+3))+((4+5)+(6+7)). A rank of R owns 8/R neighbouring segments, which form a subtree; so 1, 2, 4
// and 8 ranks agree bit for bit. On CUDA the promise is per rank count: a rank's product is one plain dot.
inline constexpr int kRowParallelSegments = 8;

constexpr int64_t SegmentBegin(int64_t full_inputs, int segment) {
  return full_inputs * segment / kRowParallelSegments;
}

// out[t, n] = the subtree sum of segments [first_segment, first_segment + segment_count). x and weight hold
// only the inputs of these segments.
struct LinearRowParallelArgs {
  View2<const float> x;                      // [tokens, SegmentBegin(first + count) - SegmentBegin(first)]
  WeightView weight;                         // [outputs, the same]
  View2<float> out;                          // [tokens, outputs]
  int64_t full_inputs = 0;                   // over all ranks
  int first_segment = 0;                     // multiple of segment_count
  int segment_count = kRowParallelSegments;  // 1, 2, 4 or 8
};

absl::Status ValidateLinearRowParallel(const LinearRowParallelArgs& args);

namespace reference {
absl::Status Linear(const LinearArgs& args, StreamView stream);
absl::Status LinearRowParallel(const LinearRowParallelArgs& args, StreamView stream);
}  // namespace reference
namespace cpu {
absl::Status Linear(const LinearArgs& args, StreamView stream);
absl::Status LinearRowParallel(const LinearRowParallelArgs& args, StreamView stream);
}  // namespace cpu
namespace cuda {
absl::Status Linear(const LinearArgs& args, StreamView stream);
absl::Status LinearRowParallel(const LinearRowParallelArgs& args, StreamView stream);
// The same products where a row's bits may depend on the number of rows.
absl::Status LinearFast(const LinearArgs& args, StreamView stream);
absl::Status LinearRowParallelFast(const LinearRowParallelArgs& args, StreamView stream);
}  // namespace cuda

}  // namespace arborist::kernels
