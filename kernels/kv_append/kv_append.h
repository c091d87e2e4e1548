#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// plane[slot[t], :] = rows[t, :], byte copy, or rounded to bf16 where `narrow`. A negative slot is a padding
// row and is skipped; the others are distinct. On CUDA a slot past the plane is skipped too.
struct KvAppendArgs {
  const void* rows =
      nullptr;  // [tokens, row_bytes] (narrow: fp32, twice as many), stride source_stride_bytes
  int64_t source_stride_bytes = 0;
  View1<const int32_t> slot;  // [tokens], each below slots
  void* plane = nullptr;      // [slots, row_bytes]
  int64_t slots = 0;
  int64_t row_bytes = 0;
  bool narrow =
      false;  // rows are fp32, the plane is bf16 (round to nearest even); row_bytes counts the plane's
};

absl::Status ValidateKvAppend(const KvAppendArgs& args);
// What the host can check of arrays on a device.
absl::Status ValidateKvAppendShapes(const KvAppendArgs& args);

namespace reference {
absl::Status KvAppend(const KvAppendArgs& args, StreamView stream);
}
namespace cpu {
absl::Status KvAppend(const KvAppendArgs& args, StreamView stream);
}
namespace cuda {
absl::Status KvAppend(const KvAppendArgs& args, StreamView stream);
}

}  // namespace arborist::kernels
