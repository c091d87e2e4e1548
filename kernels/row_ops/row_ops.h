#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// The element-wise remains between kernels. Rows of `into` may be strided (row_stride > columns).

// into[t, :] += from[t, :].
struct AddRowsArgs {
  View2<const float> from;
  View2<float> into;
};
// into[t, :] = from[row[t], :]. On CUDA a row outside `from` leaves into[t, :] zero.
struct GatherRowsArgs {
  View2<const float> from;
  View1<const int32_t> row;  // [into.rows], each in [0, from.rows)
  View2<float> into;
};
// into[t, :] = from[t, :].
struct CopyRowsArgs {
  View2<const float> from;
  View2<float> into;
};

absl::Status ValidateAddRows(const AddRowsArgs& args);
absl::Status ValidateGatherRows(const GatherRowsArgs& args);  // shapes only: rows are data of the backend
absl::Status ValidateCopyRows(const CopyRowsArgs& args);

namespace reference {
absl::Status AddRows(const AddRowsArgs& args, StreamView stream);
absl::Status GatherRows(const GatherRowsArgs& args, StreamView stream);
absl::Status CopyRows(const CopyRowsArgs& args, StreamView stream);
}  // namespace reference
namespace cpu {
absl::Status AddRows(const AddRowsArgs& args, StreamView stream);
absl::Status GatherRows(const GatherRowsArgs& args, StreamView stream);
absl::Status CopyRows(const CopyRowsArgs& args, StreamView stream);
}  // namespace cpu
namespace cuda {
absl::Status AddRows(const AddRowsArgs& args, StreamView stream);
absl::Status GatherRows(const GatherRowsArgs& args, StreamView stream);
absl::Status CopyRows(const CopyRowsArgs& args, StreamView stream);
}  // namespace cuda

}  // namespace arborist::kernels
