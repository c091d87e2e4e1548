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
void Must(const absl::Status& status) { Check(status.ok(), std::string(status.message())); }

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

std::vector<float> Fetch(Device& device, View2<const float> rows) {
  std::vector<float> out(rows.rows * rows.columns);
  for (int64_t r = 0; r < rows.rows; ++r) {
    Must(device.Copy(out.data() + r * rows.columns, rows.row(r), rows.columns * sizeof(float)));
  }
  Must(device.Synchronize());
  return out;
}

void Append(std::vector<float>& out, const std::vector<float>& rows) {
  out.insert(out.end(), rows.begin(), rows.end());
}

// Rows of floats in a device's memory.
struct Uploaded {
  DeviceMemory memory;
  int64_t columns;

  Uploaded(Device& device, const std::vector<float>& rows, int64_t columns)
      : memory(Must(device.Allocate(rows.size() * sizeof(float), "test data"))), columns(columns) {
    Must(device.Copy(memory.data(), rows.data(), memory.bytes()));
    Must(device.Synchronize());
  }
  View2<const float> Rows(int64_t begin, int64_t end) const {
    return {memory.As<float>() + begin * columns, end - begin, columns, columns};
  }
};

// Keys and values of all layers, the block's rows of an earlier round before those of `view`. On the CPU.
struct ContextWithBlock {
  std::vector<float> memory;
  ContextView view;

  ContextWithBlock(const std::vector<std::vector<float>>& block_planes, const ContextView& context,
                   int64_t row_width) {
    const int64_t block = static_cast<int64_t>(block_planes[0].size()) / row_width;
    const int64_t rows = block + context.rows;
    for (size_t plane = 0; plane < block_planes.size(); ++plane) {
      const float* old = context.planes.data + static_cast<int64_t>(plane) * context.planes.plane_stride +
                         context.first_row * row_width;
      memory.insert(memory.end(), block_planes[plane].begin(), block_planes[plane].end());
      memory.insert(memory.end(), old, old + context.rows * row_width);
    }
    view = {.planes = {.data = memory.data(), .plane_stride = rows * row_width, .rows = rows},
            .first_row = 0,
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
  Must(LoadDrafterTensors(projection.checkpoint, settings, weights));
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
  const std::unique_ptr<Device> cpu = OpenCpuDevice(threads);
  Device& device = options.device != nullptr ? *options.device : *cpu;
  const int64_t layers = static_cast<int64_t>(settings.layers.size()), width = settings.kv_width();
  const int32_t most = golden.start[1];
  const auto model = Must(DFlashModel::Create(settings, weights, {.max_context = most}, kernels, device));
  const DeviceMemory planes =
      Must(device.Allocate(2 * layers * most * width * sizeof(float), "test context"));
  ContextCache cache(layers, width, most, most,
                     {.data = planes.As<float>(), .plane_stride = most * width, .rows = most}, 0, device);
  const Uploaded context(device, options.context != nullptr ? *options.context : golden.context,
                         settings.hidden);
  std::vector<std::vector<float>> block_planes;
  GoldenRun run;
  int32_t rows = 0;
  for (int round = 0; round < 2; ++round) {
    const int32_t wanted = round == 0 || options.context_grows ? golden.start[round] : rows;
    Must(model->AppendContext(rows, context.Rows(rows, wanted), cache));
    rows = wanted;
    ContextView view = cache.View(0, rows);
    std::unique_ptr<ContextWithBlock> longer;
    if (round == 1 && options.block_kept) {
      longer = std::make_unique<ContextWithBlock>(block_planes, view, width);
      view = longer->view;
    }
    const auto observe = [&](const LayerTrace& trace) {
      Append(run.layer_hidden, Fetch(device, trace.residual));
      block_planes.push_back(Fetch(device, trace.block_key));
      block_planes.push_back(Fetch(device, trace.block_value));
    };
    block_planes.clear();
    const View2<const float> logits =
        Must(model->DraftBlock({.bonus = golden.bonus[round],
                                .position = golden.start[round] + options.position_offset,
                                .context = view,
                                .depths = settings.block - 1},
                               observe));
    Append(run.block_hidden, Fetch(device, model->block_hidden()));
    const std::vector<float> fetched = Fetch(device, logits);
    Append(run.log_probs, LogSoftmax({fetched.data(), logits.rows, logits.columns, logits.columns}));
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
