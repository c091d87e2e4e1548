#include "common/base/status_macros.h"
#include "kernels/mla_latents/mla_latents.h"

namespace arborist::kernels::cpu {

absl::Status MlaLatents(const MlaLatentsArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateMlaLatents(args));
  if (args.query.columns > 0) {
    RETURN_IF_ERROR(RmsNorm(QueryNormOf(args), stream));
  }
  RETURN_IF_ERROR(RmsNorm(KeyNormOf(args), stream));
  RETURN_IF_ERROR(Rope(KeyRotationOf(args), stream));
  return KvAppend(AppendOf(args), stream);
}

}  // namespace arborist::kernels::cpu
