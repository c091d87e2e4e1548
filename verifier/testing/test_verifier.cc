#include "verifier/testing/test_verifier.h"

#include <cstdlib>
#include <random>
#include <utility>

#include "common/base/check.h"
#include "kernels/backend.h"

namespace arborist::verifier {
namespace {

std::unique_ptr<Model> MakeModel(const TestVerifierOptions& options, Device& device) {
  const int taps = options.projection ? 2 : 0;
  if (options.make_model) {
    ModelOptions model;
    model.max_rows = options.verifier.max_rows;
    model.max_logits_rows = options.verifier.max_logits_rows;
    model.max_context = options.verifier.max_context + kMaxTreeDepth;
    model.tap_layers = options.projection ? std::vector<int>{0, 1} : std::vector<int>{};
    return options.make_model(model, device);
  }
  FakeModelOptions fake = options.fake;
  fake.max_rows = options.verifier.max_rows;
  fake.max_logits_rows = options.verifier.max_logits_rows;
  fake.taps = taps;
  return std::make_unique<FakeModel>(fake);
}

std::unique_ptr<Model> LoadFrom(const std::string& directory, ModelOptions options, Device& device) {
  const char* source = std::getenv("ARBORIST_SOURCE_DIR");
  Check(source != nullptr, "ctest sets ARBORIST_SOURCE_DIR");
  options.directory = source + directory;
  auto model = Model::Load(options, kernels::KernelsFor(device.kind()), device);
  Check(model.ok(), model.status().ToString());
  return *std::move(model);
}

}  // namespace

std::unique_ptr<Model> LoadGolden(const std::string& name, ModelOptions options, Device& device) {
  return LoadFrom("/tests/golden/target/" + name, std::move(options), device);
}

std::unique_ptr<Model> LoadShippedTarget(ModelOptions options, Device& device) {
  return LoadFrom("/deploy/models/arborist-tiny/target", std::move(options), device);
}

TestVerifier::TestVerifier(TestVerifierOptions options)
    : device_(options.open_device ? options.open_device(pool_) : OpenCpuDevice(pool_)) {
  std::unique_ptr<Model> model = MakeModel(options, *device_);
  if (options.before || options.after) {
    model =
        std::make_unique<WrappedModel>(std::move(model), std::move(options.before), std::move(options.after));
  }
  std::optional<Projection> projection;
  if (options.projection) {
    const int64_t hidden = model->config().hidden_size;
    std::mt19937 random(7);
    std::uniform_real_distribution<float> value(-1, 1);
    for (int64_t i = 0; i < hidden * 2 * hidden; ++i) {
      projection_weight_.push_back(value(random));
    }
    projection.emplace();
    projection->fc = {projection_weight_.data(), DType::kF32, hidden, 2 * hidden};
    projection->norm.assign(static_cast<size_t>(hidden), 1.0f);
    projection->epsilon = 1e-6f;
    projection->taps = {0, 1};
    projection->hash = kTestProjectionHash;
  }
  auto verifier = CreateVerifier(
      options.verifier, std::move(model), std::move(projection),
      options.kernels == nullptr ? kernels::KernelsFor(device_->kind()) : *options.kernels, *device_);
  Check(verifier.ok(), verifier.status().ToString());
  verifier_ = *std::move(verifier);
}

}  // namespace arborist::verifier
