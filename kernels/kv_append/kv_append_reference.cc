#include "common/base/status_macros.h"
#include "kernels/kv_append/kv_append.h"

namespace arborist::kernels::reference {

absl::Status KvAppend(const KvAppendArgs& args, StreamView /*stream*/) {
  RETURN_IF_ERROR(ValidateKvAppend(args));
  const auto* source = static_cast<const unsigned char*>(args.rows);
  auto* plane = static_cast<unsigned char*>(args.plane);
  for (int64_t token = 0; token < args.slot.size; ++token) {
    for (int64_t byte = 0; byte < args.row_bytes; ++byte) {
      plane[args.slot[token] * args.row_bytes + byte] = source[token * args.source_stride_bytes + byte];
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
