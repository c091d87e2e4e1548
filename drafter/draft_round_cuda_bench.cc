// What a recorded round of drafting costs on the GPU: wall time of Run, the host's part included.
//   draft_round_cuda_bench [--drafter=DIR] [--target=DIR] [--context=N] [--json=FILE]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/device/device.h"
#include "common/weights/checkpoint.h"
#include "drafter/context_pool.h"
#include "drafter/draft_round.h"
#include "kernels/backend.h"
#include "kernels/bench/cuda_bench.h"

namespace arborist::drafter {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMost = 32;

double MedianMicroseconds(std::vector<double> seconds) {
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2] * 1e6;
}

struct Bench {
  DFlashSettings settings;
  Checkpoint own, lender;
  std::unique_ptr<Device> device;
  std::unique_ptr<ContextPool> pool;
  std::unique_ptr<DFlashModel> model;
  std::unique_ptr<DraftRound> round;
  std::vector<ContextCache> caches;
  std::vector<BFloat16> features;
};

absl::Status Load(const std::string& drafter, const std::string& target, Bench& bench) {
  ASSIGN_OR_RETURN(bench.device, OpenCudaDevice({}));
  ASSIGN_OR_RETURN(bench.settings, ReadDFlashConfig(drafter));
  ASSIGN_OR_RETURN(bench.own, Checkpoint::Open(drafter));
  ASSIGN_OR_RETURN(bench.lender, Checkpoint::Open(target));
  DFlashWeights weights;
  const DFlashSettings& s = bench.settings;
  RETURN_IF_ERROR(LoadDrafterTensors(bench.own, s, weights));
  RETURN_IF_ERROR(LoadTargetTensors(bench.lender, s, weights));
  const kernels::KernelSet& kernels = kernels::KernelsFor(DeviceKind::kCuda);
  const int64_t layers = static_cast<int64_t>(s.layers.size());
  ASSIGN_OR_RETURN(bench.pool, ContextPool::Create({layers, s.kv_width(), s.max_positions, s.max_positions},
                                                   kMost, *bench.device));
  DraftRoundOptions options;
  options.max_depth = s.block - 1;
  options.append_rows = s.block;
  options.max_streams = kMost;
  options.planes = bench.pool->planes();
  options.max_context = s.max_positions;
  ASSIGN_OR_RETURN(bench.model, DFlashModel::Create(s, weights,
                                                    {.streams = kMost,
                                                     .append_rows = kMost * options.append_rows,
                                                     .max_context = s.max_positions},
                                                    kernels, *bench.device));
  ASSIGN_OR_RETURN(bench.round, DraftRound::Create(options, *bench.model, kernels));
  bench.features.resize(kContextChunk * s.hidden, ToBFloat16(0.5f));
  return absl::OkStatus();
}

// Contexts of `rows` committed positions, the last 3 of which a round brings along.
absl::Status Measure(Bench& bench, int64_t streams, int32_t rows, int nodes,
                     kernels::bench::CudaBench& report) {
  std::vector<DraftRequest> requests;
  std::vector<const DraftRequest*> pointers;
  std::vector<TokenTree> trees(streams);
  std::vector<TokenTree*> outputs;
  for (int64_t i = 0; i < streams; ++i) {
    requests.push_back({.root = TokenId{5},
                        .position = rows,
                        .context = bench.caches[i].View(0, rows),
                        .args = {.nodes = nodes},
                        .cache = &bench.caches[i],
                        .append_position = rows - 3,
                        .append_rows = 3,
                        .append = bench.features.data()});
  }
  for (int64_t i = 0; i < streams; ++i) {
    pointers.push_back(&requests[i]);
    outputs.push_back(&trees[i]);
  }
  std::vector<double> seconds;
  for (int i = 0; i < 220; ++i) {
    const Clock::time_point begin = Clock::now();
    RETURN_IF_ERROR(bench.round->Run(pointers, outputs));
    if (i >= 20) {
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  }
  report.Report({.kernel = "draft round",
                 .shape = absl::StrFormat("sequences %d nodes %d context %d", streams, nodes, rows),
                 .microseconds = MedianMicroseconds(seconds)});
  return absl::OkStatus();
}

absl::Status Run(const std::string& drafter, const std::string& target, int32_t context,
                 kernels::bench::CudaBench& report) {
  Bench bench;
  RETURN_IF_ERROR(Load(drafter, target, bench));
  const DFlashSettings& s = bench.settings;
  std::printf("%s\n%s", bench.device->name().c_str(), MemoryTable(*bench.device).c_str());
  const int64_t layers = static_cast<int64_t>(s.layers.size());
  for (int64_t i = 0; i < kMost; ++i) {
    ASSIGN_OR_RETURN(const int64_t first_row, bench.pool->Take());
    ContextCache& cache = bench.caches.emplace_back(layers, s.kv_width(), s.max_positions, s.max_positions,
                                                    bench.pool->planes(), first_row, *bench.device);
    const Clock::time_point begin = Clock::now();
    for (int32_t done = 0; done < context; done += kContextChunk) {
      const int32_t rows = std::min(kContextChunk, context - done);
      RETURN_IF_ERROR(bench.model->AppendFeatures(
          done, rows, std::span<const BFloat16>(bench.features).first(rows * s.hidden), cache));
    }
    if (i == 1) {
      std::printf("features of %d positions: %.1f us each chunk of %d\n", context,
                  std::chrono::duration<double>(Clock::now() - begin).count() * 1e6 / ((context + 63) / 64),
                  kContextChunk);
    }
  }
  for (const int64_t streams : {1, 2, 8, 32}) {
    for (const int32_t rows : {std::min(context, 200), context}) {
      for (const int nodes : {8, 64}) {
        RETURN_IF_ERROR(Measure(bench, streams, rows, nodes, report));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace arborist::drafter

int main(int count, char** arguments) {
  const char* source = std::getenv("ARBORIST_SOURCE_DIR");
  const std::string pair = absl::StrCat(source == nullptr ? "." : source, "/deploy/models/arborist-tiny");
  std::string drafter = pair + "/drafter", target = pair + "/target", context = "1000";
  std::vector<char*> left = {arguments[0]};
  for (int i = 1; i < count; ++i) {
    bool ours = false;
    for (const auto& [name, value] :
         {std::pair{"--drafter=", &drafter}, {"--target=", &target}, {"--context=", &context}}) {
      if (absl::StartsWith(arguments[i], name)) {
        *value = arguments[i] + std::string(name).size();
        ours = true;
      }
    }
    if (!ours) {
      left.push_back(arguments[i]);
    }
  }
  int32_t positions = 0;
  if (!absl::SimpleAtoi(context, &positions) || positions < 4) {
    std::fprintf(stderr, "--context is %s, expected at least 4\n", context.c_str());
    return 2;
  }
  arborist::kernels::bench::CudaBench report(static_cast<int>(left.size()), left.data());
  if (!report.has_device()) {
    return 0;
  }
  const absl::Status status = arborist::drafter::Run(drafter, target, positions, report);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}
