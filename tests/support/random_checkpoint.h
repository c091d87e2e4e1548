#pragma once

#include <cstdint>
#include <string>

namespace arborist::tests {

// Random checkpoints of a few tens of thousands of parameters in Hugging Face layout, for tests that need a
// real model whose text nobody can foresee. Weights are bf16 and large enough that logits are far from flat.

// A DeepSeek-V3 decoder: 3 layers (first dense), hidden 32, 2 heads, latent 16 + rope 8, 6 experts of which 2
// are active, 1 shared, vocabulary 96, context 512, no end-of-sequence id. Writes `directory` (created); the
// same seed, the same bytes.
void WriteRandomTarget(const std::string& directory, uint64_t seed);

// A DFlash drafter for it: 2 layers, block 8, taps [0, 1], mask id 95.
void WriteRandomDrafter(const std::string& directory, uint64_t seed);

inline constexpr int kRandomTargetVocabulary = 96;

// A fresh directory under the system's temporary folder, removed with everything in it by the destructor.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace arborist::tests
