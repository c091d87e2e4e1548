#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace arborist::verifier::testing {

// A safetensors file in memory, to be altered and written again.
struct Stored {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
using Tensors = std::map<std::string, Stored>;

Tensors ReadTensors(const std::string& path);
void WriteTensors(const std::string& path, const Tensors& tensors);

// BF16 to F32, the same values.
void Widen(Tensors& tensors);

// A copy of a golden checkpoint whose weights are widened, into an empty directory.
void WriteWidenedGolden(const std::string& name, const std::string& directory);

}  // namespace arborist::verifier::testing
