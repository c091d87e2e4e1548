#pragma once

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// One matrix a head (MLA's absorbed W_UK^T and W_UV): out[t, h, n] = dot(x[t, h, :], weight[h, n, :]), the
// dot of linear.h. Head h of row t of x starts at x.data + t * x_row_stride + h * x_head_stride, so x may be
// a part of a wider row ([q_nope | q_pe]); likewise out.
struct LinearPerHeadArgs {
  const float* x = nullptr;  // [tokens, heads, inputs], strided
  int64_t x_row_stride = 0;
  int64_t x_head_stride = 0;  // 0: every head reads the same input, as the target's q_pe does
  WeightView weight;          // [heads * outputs, inputs]
  float* out = nullptr;       // [tokens, heads, outputs], strided
  int64_t out_row_stride = 0;
  int64_t out_head_stride = 0;
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t outputs = 0;
};

absl::Status ValidateLinearPerHead(const LinearPerHeadArgs& args);

namespace reference {
absl::Status LinearPerHead(const LinearPerHeadArgs& args, StreamView stream);
}
namespace cpu {
absl::Status LinearPerHead(const LinearPerHeadArgs& args, StreamView stream);
}
namespace cuda {
absl::Status LinearPerHead(const LinearPerHeadArgs& args, StreamView stream);
// Where a row's bits may depend on the number of rows.
absl::Status LinearPerHeadFast(const LinearPerHeadArgs& args, StreamView stream);
}  // namespace cuda

}  // namespace arborist::kernels
