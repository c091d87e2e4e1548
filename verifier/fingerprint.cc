#include "verifier/fingerprint.h"

#include "absl/strings/str_cat.h"
#include "common/weights/fingerprint.h"

namespace arborist::verifier {

std::string VerifierFingerprint(const VerifierIdentity& identity) {
  return Sha256(absl::StrCat(
      "checkpoint=", identity.checkpoint, "\nbackend=", identity.backend,
      "\narchitecture=", identity.architecture, "\nweight_dtype=", identity.weight_dtype,
      "\nactivation_dtype=", identity.activation_dtype, "\nkv_dtype=", identity.kv_dtype, "\nnumerics=",
      identity.numerics, "\nranks=", identity.ranks, "\nnumerics_version=", identity.numerics_version, "\n"));
}

}  // namespace arborist::verifier
