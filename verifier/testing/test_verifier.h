#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/device/device.h"
#include "common/threads/thread_pool.h"
#include "verifier/create_verifier.h"
#include "verifier/testing/fake_model.h"
#include "verifier/testing/wrapped_model.h"
#include "verifier/verifier.h"

namespace arborist::verifier {

inline constexpr char kTestProjectionHash[] = "test-projection";

struct TestVerifierOptions {
  FakeModelOptions fake;  // max_rows and max_logits_rows come from `verifier`
  // Null: a FakeModel. Else makes the model for these rows, taps and this device.
  std::function<std::unique_ptr<Model>(const ModelOptions& options, Device& device)> make_model;
  VerifierOptions verifier{.pages = 64,
                           .max_context = 1000,
                           .max_tree_nodes = 64,
                           .max_sequences = 8,
                           .max_queue = 16,
                           .max_rows = 160,
                           .max_logits_rows = 130,
                           .prefill_chunk = 48,
                           .run_self_test = false,
                           .cut_trees_seed = std::nullopt};
  bool projection = false;  // of layers 0 and 1
  // Null: the CPU.
  std::function<std::unique_ptr<Device>(ThreadPool& threads)> open_device;
  const kernels::KernelSet* kernels = nullptr;  // null: the device's
  WrappedModel::Before before;                  // on the CPU
  WrappedModel::After after;                    // on the CPU
};

// A random checkpoint of tests/golden/target, found by ctest's ARBORIST_SOURCE_DIR.
std::unique_ptr<Model> LoadGolden(const std::string& name, ModelOptions options, Device& device);
// The target of the pair in deploy/models, whose shapes the tensor cores take.
std::unique_ptr<Model> LoadShippedTarget(ModelOptions options, Device& device);

// A verifier with all that it stands on.
class TestVerifier {
 public:
  explicit TestVerifier(TestVerifierOptions options);

  Verifier& operator*() { return *verifier_; }
  Verifier* operator->() { return verifier_.get(); }
  void Destroy() { verifier_.reset(); }

 private:
  ThreadPool pool_{1};
  std::unique_ptr<Device> device_;
  std::vector<float> projection_weight_;
  std::unique_ptr<Verifier> verifier_;
};

}  // namespace arborist::verifier
