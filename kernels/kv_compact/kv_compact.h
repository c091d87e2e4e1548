#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

inline constexpr int64_t kMaxCompactMoves = 512;
inline constexpr int64_t kMaxCompactPlanes = 256;

// Moves rows of every plane: plane[to[i], :] = old plane[from[i], :], as if all reads came before all writes
// (accepted path 0,2,3 has to = {start+1, start+2}, from = {start+2, start+3}: 'to' of one is 'from' of
// another). from[i] < 0 or to[i] < 0: no move. Slots of `to` are distinct among the moves; so are those of
// `from`. All planes in one call; on CUDA in one launch, `plane` and `row_bytes` lie in device memory like
// the moves, and a move from or to a slot past the planes is skipped.
struct KvCompactArgs {
  View1<void* const> plane;        // [planes], at most kMaxCompactPlanes, each [slots, row_bytes[i]]
  View1<const int64_t> row_bytes;  // [planes]
  int64_t max_row_bytes = 0;       // the largest of row_bytes
  int64_t slots = 0;
  View1<const int32_t> from;  // [moves], at most kMaxCompactMoves
  View1<const int32_t> to;    // [moves]
  View1<std::byte> scratch;   // CPU: >= KvCompactScratchBytes(...); with less, fewer threads are used
};

size_t KvCompactScratchBytes(int64_t moves, int64_t max_row_bytes, int threads);

absl::Status ValidateKvCompact(const KvCompactArgs& args);
// What the host can check of arrays on a device.
absl::Status ValidateKvCompactShapes(const KvCompactArgs& args);

namespace reference {
absl::Status KvCompact(const KvCompactArgs& args, StreamView stream);
}
namespace cpu {
absl::Status KvCompact(const KvCompactArgs& args, StreamView stream);
}
namespace cuda {
absl::Status KvCompact(const KvCompactArgs& args, StreamView stream);
}

}  // namespace arborist::kernels
