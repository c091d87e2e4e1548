#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace arborist {

// Files of a model's directory come from outside, and so do its symbolic links. One may lead to a regular
// file inside the directory (as in a volume of Kubernetes), or from a snapshot into the blobs of the same
// Hugging Face cache. Any other is refused: a model that is handed over must not read what else lies on the
// machine.

// The largest JSON file; that of a tokenizer of 160,000 tokens has about 20 MiB.
inline constexpr int64_t kMaxModelJsonBytes = int64_t{256} << 20;

// Whether something has that name, if only a link that leads nowhere.
bool HasModelFile(const std::string& path);

// NotFound where nothing is or can be reached, InvalidArgument for all but a regular file of the directory
// that `path` names (a pipe or a device would hold us up). Both name the path.
absl::Status CheckModelFile(const std::string& path);

// The bytes of what CheckModelFile lets pass; more than `most_bytes` are refused.
absl::StatusOr<std::string> ReadModelFile(const std::string& path, int64_t most_bytes);

}  // namespace arborist
