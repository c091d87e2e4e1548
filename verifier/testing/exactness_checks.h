#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "verifier/testing/test_verifier.h"

namespace arborist::verifier {

// What must hold on any model, the fake and the real ones alike. Each check reports through GoogleTest.

// Copies, before every step of the only sequence, the bytes of all planes of its committed positions.
class KvSpy {
 public:
  // For VerifierOptions::before_step.
  auto hook() {
    return [this](std::span<const StepTree> trees, std::span<const StepChunk> chunks, const KvPlanes& planes,
                  Device& device) { Copy(trees, chunks, planes, device); };
  }
  int positions() const { return static_cast<int>(rows_.size()); }
  const std::vector<std::byte>& row(int position) const { return rows_[position]; }

 private:
  void Copy(std::span<const StepTree> trees, std::span<const StepChunk> chunks, const KvPlanes& planes,
            Device& device);

  std::vector<std::vector<std::byte>> rows_;  // [position]: planes one after another
};

struct Subject {
  std::function<std::unique_ptr<Model>(const ModelOptions& options, Device& device)>
      make_model;  // null: fake
  int vocabulary = 0;
  kernels::SamplingParams sampling;
  std::function<std::unique_ptr<Device>(ThreadPool& threads)> open_device = nullptr;  // null: the CPU
  DType kv_type = DType::kF32;
  SamplingControls controls = {};
  std::vector<TokenId> stop_ids = {};  // a text may end early then
  std::shared_ptr<const Constraint> constraint = nullptr;
};

// Its model, device and kind of K/V; all else by default.
TestVerifierOptions OptionsOf(const Subject& subject);

// K/V of every layer and features are equal, byte by byte, from plain decoding, one prefill, chunks of 1, 7,
// 64 and 512, tree rounds with compaction, resuming from prompt + output, and a takeover with another suffix.
void CheckKvBytes(const Subject& subject);

// Plain, chain, trees of many sizes, cut trees, eight sequences mixed, resumed: the same tokens,
// log-probabilities and top lists. At most `tokens` of each.
void CheckTextIsTheSame(const Subject& subject, int tokens);

// Samples of one request, which share the whole pages of their prompt, say what each says alone.
void CheckSamples(const Subject& subject, int tokens);

// The largest steps that a verifier on a GPU takes: 32 sequences with trees of 64 nodes, and their prompts in
// chunks beside them. Text and log-probabilities are those of each sequence alone; the self-test passes.
void CheckLargeSteps(const Subject& subject, int tokens);

}  // namespace arborist::verifier
