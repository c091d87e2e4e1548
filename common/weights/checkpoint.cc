#include "common/weights/checkpoint.h"

#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/model_file.h"
#include "common/base/status_macros.h"
#include "common/json/json.h"

namespace arborist {
namespace {

constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

// Tensor name -> shard name.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& directory) {
  ASSIGN_OR_RETURN(const JsonObject index, ReadJson(absl::StrCat(directory, "/", kIndex)));
  ASSIGN_OR_RETURN(const JsonObject weight_map, index.Object("weight_map"));
  std::map<std::string, std::string> shard_of;
  for (const auto& [tensor, value] : weight_map.fields().fields()) {
    ASSIGN_OR_RETURN(const std::string shard, weight_map.String(tensor));
    if (shard.empty() || shard == "." || shard == ".." ||
        shard.find_first_of(std::string("/\\\0", 3)) != std::string::npos) {
      return weight_map.Unexpected(tensor, "the name of a file in the same directory");
    }
    shard_of[tensor] = shard;
  }
  if (shard_of.empty()) {
    return index.Unexpected("weight_map", "at least one tensor");
  }
  return shard_of;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> WeightFileNames(const std::string& directory) {
  if (HasModelFile(absl::StrCat(directory, "/", kSingle))) {
    return std::vector<std::string>{kSingle};
  }
  if (!HasModelFile(absl::StrCat(directory, "/", kIndex))) {
    return absl::NotFoundError(absl::StrCat(directory, ": no weights, expected ", kSingle, " or ", kIndex));
  }
  ASSIGN_OR_RETURN(const auto shard_of, ReadIndex(directory));
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : shard_of) {
    shards.insert(shard);
  }
  return std::vector<std::string>(shards.begin(), shards.end());
}

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, WeightFileNames(directory));
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  std::map<std::string, size_t> index_of_file;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(absl::StrCat(directory, "/", name)));
    index_of_file[name] = checkpoint.files_.size();
    checkpoint.files_.push_back(std::move(file));
  }
  if (names.size() == 1 && names[0] == kSingle) {
    for (const std::string& tensor : checkpoint.files_[0].Names()) {
      checkpoint.file_of_[tensor] = 0;
    }
    return checkpoint;
  }
  ASSIGN_OR_RETURN(const auto shard_of, ReadIndex(directory));
  for (const auto& [tensor, shard] : shard_of) {
    const size_t file = index_of_file.at(shard);
    if (!checkpoint.files_[file].Has(tensor)) {
      return absl::InvalidArgumentError(absl::StrCat(directory, "/", kIndex, ": tensor ", tensor,
                                                     ": file=", shard, ", expected a file that holds it"));
    }
    checkpoint.file_of_[tensor] = file;
  }
  return checkpoint;
}

absl::StatusOr<TensorView> Checkpoint::Find(const std::string& name) const {
  const auto found = file_of_.find(name);
  if (found == file_of_.end()) {
    return absl::NotFoundError(absl::StrCat(directory_, ": tensor ", name, ": missing from the checkpoint"));
  }
  return files_[found->second].Find(name);
}

std::vector<std::string> Checkpoint::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) {
    names.push_back(name);
  }
  return names;
}

}  // namespace arborist
