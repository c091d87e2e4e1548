#include "verifier/model/testing/golden_model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

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

// The first rows of a contiguous view in the device's memory.
absl::StatusOr<std::vector<float>> Read(View2<const float> view, int64_t rows, Device& device) {
  Check(view.row_stride == view.columns, "results are contiguous");
  std::vector<float> values(static_cast<size_t>(rows * view.columns));
  RETURN_IF_ERROR(device.Copy(values.data(), view.data, values.size() * sizeof(float)));
  RETURN_IF_ERROR(device.Synchronize());
  return values;
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
  harness->own_device_ = OpenCpuDevice(*harness->threads_);
  harness->device_ = options.device == nullptr ? harness->own_device_.get() : options.device;
  ASSIGN_OR_RETURN(KvPlanes planes, KvPlanes::Create({.layers = config.layers,
                                                      .pages = kPages,
                                                      .latent_type = options.kv_type,
                                                      .latent_row = config.latent_row()},
                                                     *harness->device_));
  harness->planes_ = std::make_unique<KvPlanes>(std::move(planes));
  harness->batch_.Reserve(options.max_rows, 1, kPages);
  Communicator& communicator =
      options.communicator == nullptr ? *harness->own_communicator_ : *options.communicator;
  ASSIGN_OR_RETURN(harness->model_, DecoderModel::Create(model_options, config, meaning, *options.kernels,
                                                         *harness->device_, communicator));
  ASSIGN_OR_RETURN(harness->forward_, BatchForward::Create({.max_rows = options.max_rows,
                                                            .max_logits_rows = options.max_rows,
                                                            .max_sequences = 1,
                                                            .max_pages_per_sequence = kPages},
                                                           *harness->model_, *harness->device_));
  // What nobody wrote must not be read: every value is a NaN.
  const std::vector<std::byte> poison(harness->planes_->total_bytes(), std::byte{0xff});
  RETURN_IF_ERROR(harness->device_->Copy(harness->planes_->latent(0), poison.data(), poison.size()));
  RETURN_IF_ERROR(harness->device_->Synchronize());
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
  ASSIGN_OR_RETURN(const ForwardResult result, forward_->Run(batch_, *planes_));
  Output output;
  ASSIGN_OR_RETURN(output.logits, Read(result.logits, batch_.rows, *device_));
  ASSIGN_OR_RETURN(output.taps, Read(result.taps, batch_.rows, *device_));
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

std::vector<std::byte> Harness::CommittedKv() const {
  std::vector<std::byte> all(planes_->total_bytes());
  Check(device_->Copy(all.data(), planes_->latent(0), all.size()).ok() && device_->Synchronize().ok(),
        "the cache can be read");
  std::vector<std::byte> rows;
  const int64_t row_bytes = planes_->plane_row_bytes()[0];
  for (int layer = 0; layer < planes_->layers(); ++layer) {
    for (int position = 0; position < committed_; ++position) {
      const auto row = all.begin() + (layer * planes_->slots() + Slot(position)) * row_bytes;
      rows.insert(rows.end(), row, row + row_bytes);
    }
  }
  return rows;
}

}  // namespace arborist::verifier::testing
