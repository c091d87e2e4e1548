#include <vector>

#include "common/base/status_macros.h"
#include "kernels/kv_compact/kv_compact.h"

namespace arborist::kernels::reference {

absl::Status KvCompact(const KvCompactArgs& args, StreamView /*stream*/) {
  RETURN_IF_ERROR(ValidateKvCompact(args));
  for (int64_t p = 0; p < args.plane.size; ++p) {
    auto* plane = static_cast<std::byte*>(args.plane[p]);
    const int64_t row_bytes = args.row_bytes[p];
    const std::vector<std::byte> old(plane, plane + args.slots * row_bytes);
    for (int64_t move = 0; move < args.from.size; ++move) {
      if (args.from[move] < 0 || args.to[move] < 0) {
        continue;
      }
      for (int64_t byte = 0; byte < row_bytes; ++byte) {
        plane[args.to[move] * row_bytes + byte] = old[args.from[move] * row_bytes + byte];
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
