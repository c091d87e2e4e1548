#include <algorithm>
#include <cstring>

#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "kernels/kv_compact/kv_compact.h"

namespace arborist::kernels::cpu {
namespace {

void CompactPlane(const KvCompactArgs& args, int64_t plane, std::byte* buffer) {
  auto* rows = static_cast<std::byte*>(args.plane[plane]);
  const auto row_bytes = static_cast<size_t>(args.row_bytes[plane]);
  for (int64_t move = 0; move < args.from.size; ++move) {
    std::memcpy(buffer + move * row_bytes, rows + args.from[move] * row_bytes, row_bytes);
  }
  for (int64_t move = 0; move < args.to.size; ++move) {
    std::memcpy(rows + args.to[move] * row_bytes, buffer + move * row_bytes, row_bytes);
  }
}

}  // namespace

absl::Status KvCompact(const KvCompactArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateKvCompact(args));
  if (args.from.size == 0 || args.plane.size == 0) {
    return absl::OkStatus();
  }
  const int64_t max_row_bytes =
      *std::max_element(args.row_bytes.data, args.row_bytes.data + args.row_bytes.size);
  const int64_t buffer_bytes = args.from.size * max_row_bytes;
  // A buffer for each part of the loop, so no more parts than buffers.
  const int64_t parts = std::min<int64_t>(stream.threads->threads(), args.scratch.size / buffer_bytes);
  const int64_t grain = CeilDiv(args.plane.size, parts);
  stream.threads->ParallelFor(args.plane.size, grain, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t plane = begin; plane < end; ++plane) {
      CompactPlane(args, plane, args.scratch.data + worker * buffer_bytes);
    }
  });
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
