#include "verifier/model/testing/golden_model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/weights/safetensors.h"

namespace arborist::verifier::testing {
namespace {

constexpr int kPages = 8;  // 512 positions

std::vector<float> Floats(const SafetensorsFile& file, const std::string& name) {
  const absl::StatusOr<TensorView> tensor = file.Find(name);
  Check(tensor.ok() && tensor->dtype == DType::kF32, "a golden tensor of floats");
  return std::vector<float>(tensor->As<float>(), tensor->As<float>() + tensor->elements());
}

void Append(std::vector<float>& all, View2<const float> view) {
  for (int64_t row = 0; row < view.rows; ++row) {
    all.insert(all.end(), view.row(row), view.row(row) + view.columns);
  }
}

}  // namespace

std::string GoldenDirectory(const std::string& name) {
  const char* source = std::getenv("ARBORIST_SOURCE_DIR");
  return absl::StrCat(source == nullptr ? "." : source, "/tests/golden/target/", name);
}

Golden ReadGolden(const std::string& name) {
  const absl::StatusOr<SafetensorsFile> file =
      SafetensorsFile::Open(GoldenDirectory(name) + "/golden.safetensors");
  Check(file.ok(), "golden data (ARBORIST_SOURCE_DIR is the repository)");
  const absl::StatusOr<TensorView> tokens = file->Find("token_ids");
  Check(tokens.ok() && tokens->dtype == DType::kI32, "golden tokens");
  Golden golden;
  for (int64_t i = 0; i < tokens->elements(); ++i) {
    golden.tokens.push_back(TokenId{tokens->As<int32_t>()[i]});
  }
  golden.logits = Floats(*file, "logits");
  golden.hidden = Floats(*file, "hidden");
  golden.vocabulary = static_cast<int64_t>(golden.logits.size() / golden.tokens.size());
  return golden;
}

double RelativeError(const std::vector<float>& got, const std::vector<float>& want) {
  const double infinite = std::numeric_limits<double>::infinity();
  if (got.size() != want.size() || want.empty()) {
    return infinite;
  }
  double difference = 0, magnitude = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double d = std::abs(static_cast<double>(got[i]) - want[i]);
    if (!(d <= std::numeric_limits<float>::max())) {
      return infinite;
    }
    difference = std::max(difference, d);
    magnitude = std::max(magnitude, std::abs(static_cast<double>(want[i])));
  }
  return difference / magnitude;
}

absl::StatusOr<std::unique_ptr<Harness>> Harness::Make(const HarnessOptions& options) {
  std::unique_ptr<Harness> harness(new Harness());
  ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(options.directory));
  if (options.alter_config) {
    options.alter_config(config);
  }
  Interpretation meaning = Interpret(config);
  if (options.alter_meaning) {
    options.alter_meaning(meaning, config);
  }
  ModelOptions model_options{.directory = options.directory,
                             .max_rows = options.max_rows,
                             .max_logits_rows = options.max_rows,
                             .max_context = kPages * kernels::kPageRows,
                             .tap_layers = {}};
  for (int layer = 0; layer < config.layers; ++layer) {
    model_options.tap_layers.push_back(layer);
  }
  harness->threads_ = std::make_unique<ThreadPool>(options.threads);
  harness->own_communicator_ = std::make_unique<LocalCommunicator>(harness->alone_, 0);
  harness->device_ = OpenCpuDevice(*harness->threads_);
  ASSIGN_OR_RETURN(
      KvPlanes planes,
      KvPlanes::Create({.layers = config.layers, .pages = kPages, .latent_row = config.latent_row()},
                       *harness->device_));
  harness->planes_ = std::make_unique<KvPlanes>(std::move(planes));
  harness->batch_.Reserve(options.max_rows, 1, kPages);
  Communicator& communicator =
      options.communicator == nullptr ? *harness->own_communicator_ : *options.communicator;
  ASSIGN_OR_RETURN(harness->model_, DecoderModel::Create(model_options, config, meaning, *options.kernels,
                                                         *harness->device_, communicator));
  for (int layer = 0; layer < config.layers; ++layer) {  // what nobody wrote must not be read
    std::fill_n(static_cast<float*>(harness->planes_->latent(layer)),
                harness->planes_->slots() * config.latent_row(), std::numeric_limits<float>::quiet_NaN());
  }
  return harness;
}

int32_t Harness::Slot(int64_t position) const {
  return static_cast<int32_t>(batch_.page_table[position / kernels::kPageRows] * kernels::kPageRows +
                              position % kernels::kPageRows);
}

const StepBatch& Harness::Fill(const std::vector<Node>& nodes) {
  batch_.Clear();
  batch_.rows = static_cast<int>(nodes.size());
  batch_.sequences = 1;
  batch_.first_row[0] = 0;
  batch_.first_row[1] = batch_.rows;
  for (int page = 0; page < kPages; ++page) {
    batch_.page_table[page] = (page * 5 + 3) % kPages;
  }
  for (int row = 0; row < batch_.rows; ++row) {
    std::vector<int> path;  // from the node up
    for (int node = row; node >= 0; node = nodes[node].parent) {
      path.push_back(node);
    }
    const int32_t position = committed_ + static_cast<int32_t>(path.size()) - 1;
    const int32_t blocks = kernels::PrefixBlocks(position);
    batch_.token[row] = nodes[row].token;
    batch_.position[row] = position;
    batch_.sequence[row] = 0;
    batch_.parent[row] = nodes[row].parent;
    batch_.write_slot[row] = Slot(committed_ + row);
    batch_.prefix_blocks[row] = blocks;
    int32_t* tail = batch_.tail_slot.data() + row * kernels::kMaxTailKeys;
    int count = 0;
    for (int32_t key = blocks * kernels::kPageRows; key < committed_; ++key) {
      tail[count++] = Slot(key);
    }
    const auto own = static_cast<int32_t>(position - blocks * kernels::kPageRows + 1 - count);
    for (int32_t i = std::min(own, static_cast<int32_t>(path.size())) - 1; i >= 0; --i) {
      tail[count++] = Slot(committed_ + path[i]);
    }
    batch_.tail_count[row] = count;
    batch_.logits_row.push_back(row);
  }
  return batch_;
}

absl::StatusOr<Harness::Output> Harness::Step(const std::vector<Node>& nodes) {
  Fill(nodes);
  ASSIGN_OR_RETURN(const ForwardResult result, model_->Forward(ViewOf(batch_), *planes_));
  Output output;
  Append(output.logits, result.logits);
  Append(output.taps, result.taps);
  return output;
}

absl::StatusOr<Harness::Output> Harness::Chunk(const std::vector<TokenId>& tokens) {
  std::vector<Node> nodes;
  for (const TokenId token : tokens) {
    nodes.push_back({token, static_cast<int>(nodes.size()) - 1});
  }
  ASSIGN_OR_RETURN(Output output, Step(nodes));
  committed_ += static_cast<int>(tokens.size());
  return output;
}

absl::StatusOr<Harness::Output> Harness::Run(const std::vector<TokenId>& tokens, int chunk) {
  Output all;
  for (size_t begin = 0; begin < tokens.size(); begin += static_cast<size_t>(chunk)) {
    const size_t end = std::min(tokens.size(), begin + static_cast<size_t>(chunk));
    ASSIGN_OR_RETURN(const Output output, Chunk({tokens.begin() + begin, tokens.begin() + end}));
    all.logits.insert(all.logits.end(), output.logits.begin(), output.logits.end());
    all.taps.insert(all.taps.end(), output.taps.begin(), output.taps.end());
  }
  return all;
}

std::vector<float> Harness::CommittedKv() const {
  std::vector<float> rows;
  const int64_t width = planes_->latent_row();
  for (int layer = 0; layer < planes_->layers(); ++layer) {
    for (int position = 0; position < committed_; ++position) {
      const float* row = static_cast<const float*>(planes_->latent(layer)) + Slot(position) * width;
      rows.insert(rows.end(), row, row + width);
    }
  }
  return rows;
}

}  // namespace arborist::verifier::testing
