#include <algorithm>
#include <cstddef>
#include <cstring>

#include "common/base/status_macros.h"
#include "kernels/kv_append/kv_append.h"

namespace arborist::kernels::cpu {

// Below this a second thread costs more than it copies.
constexpr int64_t kMinBytesPerThread = 64 * 1024;

absl::Status KvAppend(const KvAppendArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateKvAppend(args));
  const auto* source = static_cast<const std::byte*>(args.rows);
  auto* plane = static_cast<std::byte*>(args.plane);
  const int64_t grain = std::max<int64_t>(1, kMinBytesPerThread / args.row_bytes);
  stream.threads->ParallelFor(args.slot.size, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t token = begin; token < end; ++token) {
      std::memcpy(plane + args.slot[token] * args.row_bytes, source + token * args.source_stride_bytes,
                  static_cast<size_t>(args.row_bytes));
    }
  });
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
