#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// plane[slot[t], :] = rows[t, :], byte copy. Slots are distinct.
struct KvAppendArgs {
  const void* rows = nullptr;  // [tokens, row_bytes], stride source_stride_bytes
  int64_t source_stride_bytes = 0;
  View1<const int32_t> slot;  // [tokens], each in [0, slots)
  void* plane = nullptr;      // [slots, row_bytes]
  int64_t slots = 0;
  int64_t row_bytes = 0;
};

absl::Status ValidateKvAppend(const KvAppendArgs& args);

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
