#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// Moves rows of every plane: plane[to[i], :] = old plane[from[i], :], as if all reads came before all writes
// (accepted path 0,2,3 has to = {start+1, start+2}, from = {start+2, start+3}: 'to' of one is 'from' of
// another). All planes in one call. At most some hundred moves: distinctness is checked pair by pair. Slots
// of `to` are distinct; so are those of `from`.
struct KvCompactArgs {
  View1<void* const> plane;        // [planes], each [slots, row_bytes[i]]
  View1<const int64_t> row_bytes;  // [planes]
  int64_t slots = 0;
  View1<const int32_t> from;  // [moves]
  View1<const int32_t> to;    // [moves]
  View1<std::byte> scratch;   // >= KvCompactScratchBytes(...); with less, fewer threads are used
};

size_t KvCompactScratchBytes(int64_t moves, int64_t max_row_bytes, int threads);

// Less scratch than one thread needs is InvalidArgument.

absl::Status ValidateKvCompact(const KvCompactArgs& args);

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
