#include "drafter/model/testing/golden_drafter.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "common/base/check.h"
#include "drafter/context_cache.h"
#include "drafter/model/dflash_model.h"

namespace arborist::drafter::testing {
namespace {

template <typename T>
T Must(absl::StatusOr<T> value) {
  Check(value.ok(), std::string(value.status().message()));
  return *std::move(value);
}

std::string SourceDirectory() {
  const char* directory = std::getenv("ARBORIST_SOURCE_DIR");
  return directory != nullptr ? directory : ".";
}

WeightView MatrixOf(const SafetensorsFile& file, const std::string& name) {
  const TensorView tensor = Must(file.Find(name));
  return {.data = tensor.data, .dtype = tensor.dtype, .rows = tensor.shape[0], .columns = tensor.shape[1]};
}

std::vector<float> LogSoftmax(View2<const float> logits) {
  std::vector<float> out;
  for (int64_t r = 0; r < logits.rows; ++r) {
    const float* row = logits.row(r);
    const double top = *std::max_element(row, row + logits.columns);
    double sum = 0;
    for (int64_t c = 0; c < logits.columns; ++c) {
      sum += std::exp(row[c] - top);
    }
    for (int64_t c = 0; c < logits.columns; ++c) {
      out.push_back(static_cast<float>(row[c] - top - std::log(sum)));
    }
  }
  return out;
}

void Append(std::vector<float>& out, View2<const float> rows) {
  for (int64_t r = 0; r < rows.rows; ++r) {
    out.insert(out.end(), rows.row(r), rows.row(r) + rows.columns);
  }
}

// Keys and values of all layers, the block's rows of an earlier round before those of `view`.
struct ContextWithBlock {
  std::vector<float> memory;
  ContextView view;

  ContextWithBlock(const std::vector<std::vector<float>>& block_planes, const ContextView& context,
                   int64_t row_width) {
    const int64_t block = static_cast<int64_t>(block_planes[0].size()) / row_width;
    const int64_t rows = block + context.rows;
    for (size_t plane = 0; plane < block_planes.size(); ++plane) {
      const float* old = context.data + static_cast<int64_t>(plane) * context.plane_stride;
      memory.insert(memory.end(), block_planes[plane].begin(), block_planes[plane].end());
      memory.insert(memory.end(), old, old + context.rows * row_width);
    }
    view = {.data = memory.data(),
            .plane_stride = rows * row_width,
            .first_position = context.first_position - static_cast<int32_t>(block),
            .rows = rows};
  }
};

}  // namespace

GoldenDrafter::GoldenDrafter(const std::string& name)
    : directory(SourceDirectory() + "/tests/golden/drafter/" + name),
      settings(Must(ReadDFlashConfig(directory))),
      projection(Must(LoadProjection(directory))),
      file(Must(SafetensorsFile::Open(directory + "/golden.safetensors"))) {
  const absl::Status loaded = LoadDrafterTensors(projection.checkpoint, settings, weights);
  Check(loaded.ok(), std::string(loaded.message()));
  weights.embedding = MatrixOf(file, "embed");
  weights.head = MatrixOf(file, "lm_head");
  settings.max_positions = 128;  // enough for every golden; long rotary tables take longer than the rest
  const int32_t* bonus_ids = Must(file.Find("bonus")).As<int32_t>();
  const int32_t* starts = Must(file.Find("start")).As<int32_t>();
  bonus = {TokenId{bonus_ids[0]}, TokenId{bonus_ids[1]}};
  start = {starts[0], starts[1]};
  context = Read("ctx");
  taps = Read("taps");
}

std::vector<float> GoldenDrafter::Read(const std::string& name) const {
  const TensorView tensor = Must(file.Find(name));
  Check(tensor.dtype == DType::kF32, "golden results are F32");
  return std::vector<float>(tensor.As<float>(), tensor.As<float>() + tensor.elements());
}

GoldenRun RunRounds(const GoldenDrafter& golden, const DFlashSettings& settings, const DFlashWeights& weights,
                    const kernels::KernelSet& kernels, const RunOptions& options) {
  ThreadPool threads(2);
  const StreamView stream{.threads = &threads};
  DFlashModel model(settings, weights, kernels);
  ContextCache cache(static_cast<int64_t>(settings.layers.size()), settings.kv_width(), golden.start[1],
                     golden.start[1]);
  const std::vector<float>& context = options.context != nullptr ? *options.context : golden.context;
  std::vector<std::vector<float>> block_planes;
  GoldenRun run;
  int32_t rows = 0;
  for (int round = 0; round < 2; ++round) {
    const int32_t wanted = round == 0 || options.context_grows ? golden.start[round] : rows;
    const absl::Status appended = model.AppendContext(
        rows, {context.data() + rows * settings.hidden, wanted - rows, settings.hidden, settings.hidden},
        cache, stream);
    Check(appended.ok(), std::string(appended.message()));
    rows = wanted;
    ContextView view = cache.View(0, rows);
    std::unique_ptr<ContextWithBlock> longer;
    if (round == 1 && options.block_kept) {
      longer = std::make_unique<ContextWithBlock>(block_planes, view, settings.kv_width());
      view = longer->view;
    }
    const auto observe = [&](const LayerTrace& trace) {
      Append(run.layer_hidden, trace.residual);
      for (const View2<const float>& plane : {trace.block_key, trace.block_value}) {
        Append(block_planes.emplace_back(), plane);
      }
    };
    block_planes.clear();
    const View2<const float> logits =
        Must(model.DraftBlock({.bonus = golden.bonus[round],
                               .position = golden.start[round] + options.position_offset,
                               .context = view,
                               .depths = settings.block - 1},
                              stream, observe));
    Append(run.block_hidden, model.block_hidden());
    const std::vector<float> log_probs = LogSoftmax(logits);
    run.log_probs.insert(run.log_probs.end(), log_probs.begin(), log_probs.end());
  }
  return run;
}

double RelativeError(const std::vector<float>& actual, const std::vector<float>& expected) {
  double largest = 0, difference = 0;
  if (actual.size() != expected.size()) {
    return std::numeric_limits<double>::infinity();
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    const double own = std::abs(static_cast<double>(actual[i]) - expected[i]);
    if (!(own <= std::numeric_limits<double>::max())) {
      return std::numeric_limits<double>::infinity();
    }
    difference = std::max(difference, own);
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
  }
  return difference / largest;
}

}  // namespace arborist::drafter::testing
