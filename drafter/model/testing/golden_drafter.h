#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/device/device.h"
#include "common/projection/projection.h"
#include "common/threads/thread_pool.h"
#include "common/weights/safetensors.h"
#include "drafter/model/dflash_config.h"
#include "drafter/model/dflash_weights.h"
#include "kernels/kernel_set.h"

namespace arborist::drafter::testing {

// One directory of tests/golden/drafter: a random drafter and two consecutive rounds of it, computed by
// another program in float32.
struct GoldenDrafter {
  explicit GoldenDrafter(const std::string& name);

  std::string directory;
  DFlashSettings settings;
  Projection projection;
  DFlashWeights weights;
  SafetensorsFile file;
  std::vector<TokenId> bonus;  // [2]
  std::vector<int32_t> start;  // [2]
  std::vector<float> context;  // [start[1], hidden]: hidden_norm(fc(taps))
  std::vector<float> taps;     // [start[1], taps * hidden]

  std::vector<float> Read(const std::string& name) const;
};

// What to do in another way than right; each field's default is right.
struct RunOptions {
  const std::vector<float>* context = nullptr;  // in place of the golden rows
  bool context_grows = true;                    // between the rounds
  bool block_kept = false;  // round 1 sees the keys of round 0's block (no sliding layers)
  int32_t position_offset = 0;
  Device* device = nullptr;  // null: the CPU, two threads
};

struct GoldenRun {
  std::vector<float> layer_hidden;  // [2, layers, block, hidden]
  std::vector<float> block_hidden;  // [2, block, hidden]
  std::vector<float> log_probs;     // [2, block - 1, vocabulary]
};

GoldenRun RunRounds(const GoldenDrafter& golden, const DFlashSettings& settings, const DFlashWeights& weights,
                    const kernels::KernelSet& kernels, const RunOptions& options = {});

// max |a - b| / max |b|; infinite if sizes differ or anything is not finite.
double RelativeError(const std::vector<float>& actual, const std::vector<float>& expected);

inline const std::vector<std::string> kGoldenDrafters = {"full", "sliding", "sliding_bidirectional", "yarn",
                                                         "yarn_attention_factor"};

}  // namespace arborist::drafter::testing
