#include <algorithm>
#include <cmath>

#include "common/base/status_macros.h"
#include "kernels/rms_norm/rms_norm.h"

namespace arborist::kernels::reference {

absl::Status RmsNorm(const RmsNormArgs& args, StreamView) {
  RETURN_IF_ERROR(ValidateRmsNorm(args));
  for (int64_t t = 0; t < args.x.rows; ++t) {
    double squares = 0;
    for (int64_t c = 0; c < args.x.columns; ++c) {
      squares += static_cast<double>(args.x.row(t)[c]) * args.x.row(t)[c];
    }
    const double scale = 1 / std::sqrt(squares / static_cast<double>(args.x.columns) + args.epsilon);
    for (int64_t c = 0; c < args.x.columns; ++c) {
      args.out.row(t)[c] = static_cast<float>(args.x.row(t)[c] * scale * args.weight[c]);
    }
  }
  return absl::OkStatus();
}

absl::Status AddRmsNorm(const AddRmsNormArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateAddRmsNorm(args));
  for (int64_t t = 0; t < args.into.rows; ++t) {
    for (int64_t c = 0; c < args.into.columns; ++c) {
      args.into.row(t)[c] += args.from.row(t)[c];
    }
    if (args.copy.columns > 0) {
      std::copy_n(args.into.row(t), args.copy.columns, args.copy.row(t));
    }
  }
  return RmsNorm(NormOf(args), stream);
}

}  // namespace arborist::kernels::reference
