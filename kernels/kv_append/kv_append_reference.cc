#include "common/base/status_macros.h"
#include "common/tensor/dtype.h"
#include "kernels/kv_append/kv_append.h"

namespace arborist::kernels::reference {

absl::Status KvAppend(const KvAppendArgs& args, StreamView /*stream*/) {
  RETURN_IF_ERROR(ValidateKvAppend(args));
  const auto* source = static_cast<const unsigned char*>(args.rows);
  auto* plane = static_cast<unsigned char*>(args.plane);
  for (int64_t token = 0; token < args.slot.size; ++token) {
    if (args.slot[token] < 0) {
      continue;
    }
    const unsigned char* from = source + token * args.source_stride_bytes;
    unsigned char* to = plane + args.slot[token] * args.row_bytes;
    if (args.narrow) {
      for (int64_t i = 0; i < args.row_bytes / 2; ++i) {
        reinterpret_cast<BFloat16*>(to)[i] = ToBFloat16(reinterpret_cast<const float*>(from)[i]);
      }
      continue;
    }
    for (int64_t byte = 0; byte < args.row_bytes; ++byte) {
      to[byte] = from[byte];
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
