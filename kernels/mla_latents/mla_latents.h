#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/dtype.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"
#include "kernels/kv_append/kv_append.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"

namespace arborist::kernels {

// From MLA's compressed rows to what the next steps read, one call in place of four: the query latent is
// normed in place (rms_norm.h); of the key row [latent | rope] the latent is normed and the rope part rotated
// (rope.h), and the row goes to its slot of the plane (kv_append.h), narrowed where the plane is bf16. A
// negative slot is a padding row and goes nowhere.
struct MlaLatentsArgs {
  View2<float> query;             // [rows, q rank]; columns 0: none
  View1<const float> query_norm;  // [q rank]
  View2<float> key;               // [rows, latent + rope]; afterwards of no account
  View1<const float> key_norm;    // [latent]
  float epsilon = 0;              // > 0
  View1<const int32_t> position;  // [rows], each in [0, cosine.rows)
  View2<const float> cosine;      // [positions, rope / 2]
  View2<const float> sine;        // [positions, rope / 2]
  RopePairing pairing = RopePairing::kInterleaved;
  View1<const int32_t> slot;        // [rows]
  void* plane = nullptr;            // [slots, latent + rope]
  DType plane_dtype = DType::kF32;  // F32 or BF16
  int64_t slots = 0;
};

// The four calls that it stands for.
RmsNormArgs QueryNormOf(const MlaLatentsArgs& args);
RmsNormArgs KeyNormOf(const MlaLatentsArgs& args);
RopeArgs KeyRotationOf(const MlaLatentsArgs& args);
KvAppendArgs AppendOf(const MlaLatentsArgs& args);

// Sizes and addresses: what is known of arrays on a device. The CPU checks contents where it uses them.
absl::Status ValidateMlaLatents(const MlaLatentsArgs& args);

namespace reference {
absl::Status MlaLatents(const MlaLatentsArgs& args, StreamView stream);
}
// In both, bits are those of the four kernels there.
namespace cpu {
absl::Status MlaLatents(const MlaLatentsArgs& args, StreamView stream);
}
namespace cuda {
// A position outside the tables: the rope part is not rotated. A slot past the plane is skipped. Latents of
// more than 7168 columns are InvalidArgument.
absl::Status MlaLatents(const MlaLatentsArgs& args, StreamView stream);
}  // namespace cuda

}  // namespace arborist::kernels
