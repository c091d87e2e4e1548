#include "drafter/testing/small_pair.h"

#include <fstream>
#include <iterator>
#include <random>
#include <utility>

#include "common/base/check.h"

namespace arborist::drafter::testing {
namespace {

std::vector<float> Floats(const BFloat16* values, int64_t count) {
  std::vector<float> floats;
  for (int64_t i = 0; i < count; ++i) {
    floats.push_back(ToFloat(values[i]));
  }
  return floats;
}

void SetMatrix(arborist::testing::CheckpointWriter& writer, const std::string& name, const WeightView& matrix,
               Weights weights) {
  const auto* values = static_cast<const BFloat16*>(matrix.data);
  const std::vector<float> floats = Floats(values, matrix.rows * matrix.columns);
  if (weights == Weights::kWidened) {
    writer.SetF32(name, {matrix.rows, matrix.columns}, floats);
  } else {
    writer.SetBf16(name, {matrix.rows, matrix.columns}, floats);
  }
}

void WriteWidened(const Checkpoint& stored, const std::string& directory,
                  const arborist::testing::ScratchDirectory& into) {
  arborist::testing::CheckpointWriter writer;
  for (const std::string& name : stored.Names()) {
    const TensorView tensor = *stored.Find(name);
    writer.SetF32(name, {tensor.shape.begin(), tensor.shape.end()},
                  tensor.dtype == DType::kBF16
                      ? Floats(tensor.As<BFloat16>(), tensor.elements())
                      : std::vector<float>(tensor.As<float>(), tensor.As<float>() + tensor.elements()));
  }
  into.Write("model.safetensors", writer.Bytes());
  std::ifstream config(directory + "/config.json");
  into.Write("config.json", std::string(std::istreambuf_iterator<char>(config), {}));
}

}  // namespace

SmallPair::SmallPair(const std::string& golden, Weights weights)
    : golden_(golden), drafter_path_(golden_.directory), threads_(std::make_unique<ThreadPool>(2)) {
  if (weights == Weights::kWidened) {
    WriteWidened(golden_.projection.checkpoint, golden_.directory, widened_);
    drafter_path_ = widened_.path();
  }
  const DFlashSettings& s = golden_.settings;
  arborist::testing::CheckpointWriter writer;
  SetMatrix(writer, "model.embed_tokens.weight", golden_.weights.embedding, weights);
  SetMatrix(writer, "lm_head.weight", golden_.weights.head, weights);
  target_.Write("model.safetensors", writer.Bytes());
  target_.Write("config.json", R"({"model_type": "deepseek_v3", "tie_word_embeddings": false})");
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  for (int i = 0; i < kLength; ++i) {
    tokens_.push_back(TokenId{static_cast<int32_t>(random() % 90)});
  }
  for (int64_t i = 0; i < kLength * s.hidden; ++i) {
    features_.push_back(ToBFloat16(normal(random)));
  }
  proposer_ = NewProposer({});
  device_ = OpenCpuDevice(*threads_);
  auto model = DFlashModel::Create(s, golden_.weights, {}, kernels::CpuKernels(), *device_);
  Check(model.ok(), std::string(model.status().message()));
  model_ = *std::move(model);
}

std::unique_ptr<DFlashProposer> SmallPair::NewProposer(DFlashOptions options) const {
  options.drafter_directory = drafter_path_;
  options.target_directory = target_.path();
  more_threads_.push_back(std::make_unique<ThreadPool>(2));
  auto proposer = DFlashProposer::Create(options, kernels::CpuKernels(), *more_threads_.back());
  Check(proposer.ok(), std::string(proposer.status().message()));
  return *std::move(proposer);
}

std::unique_ptr<DFlashProposer> SmallPair::NewProposer(DFlashOptions options,
                                                       const kernels::KernelSet& kernels,
                                                       Device& device) const {
  options.drafter_directory = drafter_path_;
  options.target_directory = target_.path();
  auto proposer = DFlashProposer::Create(options, kernels, device);
  Check(proposer.ok(), std::string(proposer.status().message()));
  return *std::move(proposer);
}

std::vector<BFloat16> SmallPair::Features(int first, int rows) const {
  const int64_t hidden = golden_.settings.hidden;
  return {features_.begin() + first * hidden, features_.begin() + (first + rows) * hidden};
}

std::unique_ptr<DraftContext> SmallPair::Context(int length, DFlashProposer& proposer) const {
  std::unique_ptr<DraftContext> context = *proposer.NewContext();
  Check(context->AppendTokens(0, Tokens(0, length)).ok(), "tokens fit");
  Check(context->AppendFeatures(0, length - 1, Features(0, length - 1)).ok(), "features fit");
  return context;
}

View2<const float> SmallPair::Logits(int length) const {
  const DFlashSettings& s = golden_.settings;
  std::vector<float> rows;
  for (const BFloat16 value : Features(0, length - 1)) {
    rows.push_back(ToFloat(value));
  }
  ContextCache cache(static_cast<int64_t>(s.layers.size()), s.kv_width(), kLength, kLength);
  Check(model_->AppendContext(0, {rows.data(), length - 1, s.hidden, s.hidden}, cache).ok(), "rows fit");
  auto logits = model_->DraftBlock({.bonus = tokens_[length - 1],
                                    .position = length - 1,
                                    .context = cache.View(0, length - 1),
                                    .depths = s.block - 1});
  Check(logits.ok(), std::string(logits.status().message()));
  return *logits;
}

}  // namespace arborist::drafter::testing
