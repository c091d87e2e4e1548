#include <algorithm>
#include <cstring>

#include "common/base/status_macros.h"
#include "kernels/kv_compact/kv_compact.h"

namespace arborist::kernels::cpu {
namespace {

// Below this a second thread costs more than it copies.
constexpr int64_t kMinBytesPerThread = 128 * 1024;

void CompactPlane(const KvCompactArgs& args, int64_t plane, std::byte* buffer) {
  auto* rows = static_cast<std::byte*>(args.plane[plane]);
  const auto row_bytes = static_cast<size_t>(args.row_bytes[plane]);
  for (int64_t move = 0; move < args.from.size; ++move) {
    if (args.from[move] >= 0 && args.to[move] >= 0) {
      std::memcpy(buffer + move * row_bytes, rows + args.from[move] * row_bytes, row_bytes);
    }
  }
  for (int64_t move = 0; move < args.to.size; ++move) {
    if (args.from[move] >= 0 && args.to[move] >= 0) {
      std::memcpy(rows + args.to[move] * row_bytes, buffer + move * row_bytes, row_bytes);
    }
  }
}

}  // namespace

absl::Status KvCompact(const KvCompactArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateKvCompact(args));
  if (args.from.size == 0 || args.plane.size == 0) {
    return absl::OkStatus();
  }
  const int64_t buffer_bytes = args.from.size * args.max_row_bytes;
  // One part of the planes for each buffer.
  const int64_t planes = args.plane.size;
  const int64_t wanted = std::max<int64_t>(1, planes * buffer_bytes / kMinBytesPerThread);
  const int64_t parts =
      std::min({int64_t{stream.threads->threads()}, args.scratch.size / buffer_bytes, planes, wanted});
  stream.threads->ParallelFor(parts, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t part = first; part < last; ++part) {
      for (int64_t plane = planes * part / parts; plane < planes * (part + 1) / parts; ++plane) {
        CompactPlane(args, plane, args.scratch.data + part * buffer_bytes);
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
