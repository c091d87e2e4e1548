#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/device/device.h"
#include "drafter/proposer.h"
#include "kernels/kernel_set.h"
#include "verifier/model/model.h"
#include "verifier/step_batch.h"
#include "verifier/verifier.h"

namespace arborist::tests {

struct WorldOptions {
  std::string target;  // directories in Hugging Face layout
  std::string drafter;
  // Where verifiers and the DFlash drafter compute, each with a stream of its own. FailedPrecondition without
  // a usable GPU.
  DeviceKind device = DeviceKind::kCpu;
  int threads = 1;
  int max_rows = 160;  // small, so that mixed steps are cut into several
  int max_tree_nodes = 64;
  int max_sequences = 16;
  int prefill_chunk = 48;
  int max_context = 512;
  uint64_t cut_seed = 1;
  bool one_verifier = false;  // none that cuts, none elsewhere, and no DFlash drafter
  // A file with real prompts (prompt<i>.ids and prompt<i>.greedy_64), or empty: prompts are random tokens
  // with a repeated phrase.
  std::string prompts = {};
  // Planted faults: a backend with single entries replaced (null: the device's), a hand in every step's input
  // (on the CPU), or something that stands before the model. With any of them there is no self-test.
  const kernels::KernelSet* kernels = nullptr;
  std::function<void(verifier::StepBatch&)> tamper = nullptr;
  std::function<std::unique_ptr<verifier::Model>(std::unique_ptr<verifier::Model>, Device&)> wrap_model =
      nullptr;
};

// A target with everything the gate needs around it: a verifier, one that cuts trees, one elsewhere with the
// same fingerprint, and the two real drafters. All in this process, without a wire.
class GateWorld {
 public:
  static absl::StatusOr<std::unique_ptr<GateWorld>> Create(const WorldOptions& options);
  virtual ~GateWorld() = default;

  virtual verifier::Verifier& verifier() = 0;
  virtual verifier::Verifier& cutting() = 0;
  virtual verifier::Verifier& elsewhere() = 0;
  // Shared by all sequences of a thread each: calls into it are serialised inside.
  virtual drafter::Proposer& dflash() = 0;
  virtual drafter::Proposer& ngram() = 0;
  virtual int vocabulary() const = 0;
  // Prompts to choose from; empty: the gate makes random ones.
  virtual const std::vector<std::vector<TokenId>>& prompts() const = 0;
};

}  // namespace arborist::tests
