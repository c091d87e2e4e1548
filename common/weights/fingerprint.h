#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace arborist {

// Lower-case hex.
std::string Sha256(std::span<const std::byte> bytes);
std::string Sha256(const std::string& text);

// SHA-256 of a file. The result is kept in `.arborist-sha256` beside the file, keyed by size and modification
// time, when that directory can be written; otherwise it is computed again.
absl::StatusOr<std::string> FileSha256(const std::string& directory, const std::string& file_name);

// Names the weights and the meaning of a checkpoint: SHA-256 over the names and hashes of config.json and of
// every weight file. Two directories with equal fingerprints compute the same function.
absl::StatusOr<std::string> CheckpointFingerprint(const std::string& directory);

}  // namespace arborist
