#include <algorithm>
#include <cstddef>
#include <cstring>

#include "common/base/status_macros.h"
#include "common/tensor/dtype.h"
#include "kernels/kv_append/kv_append.h"

namespace arborist::kernels::cpu {

// Below this a second thread costs more than it copies.
constexpr int64_t kMinBytesPerThread = 64 * 1024;

namespace {

void NarrowRow(const std::byte* from, std::byte* to, int64_t columns) {
  const auto* wide = reinterpret_cast<const float*>(from);
  auto* narrow = reinterpret_cast<BFloat16*>(to);
  for (int64_t c = 0; c < columns; ++c) {
    narrow[c] = ToBFloat16(wide[c]);
  }
}

}  // namespace

absl::Status KvAppend(const KvAppendArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateKvAppend(args));
  const auto* source = static_cast<const std::byte*>(args.rows);
  auto* plane = static_cast<std::byte*>(args.plane);
  const int64_t grain = std::max<int64_t>(1, kMinBytesPerThread / args.row_bytes);
  stream.threads->ParallelFor(args.slot.size, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t token = begin; token < end; ++token) {
      if (args.slot[token] < 0) {
        continue;
      }
      const std::byte* from = source + token * args.source_stride_bytes;
      std::byte* to = plane + args.slot[token] * args.row_bytes;
      if (args.narrow) {
        NarrowRow(from, to, args.row_bytes / 2);
      } else {
        std::memcpy(to, from, static_cast<size_t>(args.row_bytes));
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
