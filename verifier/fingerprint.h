#pragma once

#include <string>

namespace arborist::verifier {

// Rises with any change of a result bit. A committed golden hash of K/V and logits guards it.
inline constexpr int kNumericsVersion = 1;

// What a result bit depends on. Verifiers of equal fingerprint continue each other's sequences.
struct VerifierIdentity {
  std::string checkpoint;  // CheckpointFingerprint: config and every weight file
  std::string backend = "cpu";
  std::string architecture = "any";  // the CPU backend computes the same bits on every ISA
  std::string weight_dtype = "stored";
  std::string activation_dtype = "F32";
  std::string kv_dtype = "F32";
  std::string numerics = "EXACT";  // or "FAST"
  int ranks = 1;
  int numerics_version = kNumericsVersion;
};

// Lower-case hex SHA-256 over all fields by name.
std::string VerifierFingerprint(const VerifierIdentity& identity);

}  // namespace arborist::verifier
