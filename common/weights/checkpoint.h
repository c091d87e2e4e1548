#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/weights/safetensors.h"

namespace arborist {

// The tensors of a Hugging Face directory: model.safetensors, or the shards that model.safetensors.index.json
// names. Knows formats, not models. Views live as long as the Checkpoint.
class Checkpoint {
 public:
  // Opens and checks every file; a shard name that leaves the directory, a missing shard and a tensor that is
  // not where the index says are errors.
  static absl::StatusOr<Checkpoint> Open(const std::string& directory);

  bool Has(const std::string& name) const { return file_of_.contains(name); }
  absl::StatusOr<TensorView> Find(const std::string& name) const;
  std::vector<std::string> Names() const;  // ascending
  const std::string& directory() const { return directory_; }

 private:
  std::string directory_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> file_of_;
};

// The file names of the weights, ascending, without the directory and without opening them.
absl::StatusOr<std::vector<std::string>> WeightFileNames(const std::string& directory);

}  // namespace arborist
