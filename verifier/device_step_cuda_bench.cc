// How long a verify step takes on a GPU, and how much of it is the forward pass.
//   device_step_cuda_bench [--model=DIR] [--drafter=DIR] [--json=FILE] [--sequences=N --nodes=N]
//                          [--shadow | --controlled]
// --json as every kernel bench writes it; the goal of a step with EXACT numerics is 1.15 times the same
// step's with FAST. "step": median time of Run, from packing on the host to the outcomes there, with EXACT
// and with FAST numerics by turns. "forward": the recorded forward pass of the same size, started many times
// in a row, a start. One shape alone suits a profiler. With --shadow instead: "step" without shadow
// verification, with it but not drawn, and drawn (the oracles' own thread aside). With --controlled: "step"
// plain, with penalties over a history, and with a mask, stop ids held back and lists of 20 as well. Without
// a GPU it says so and ends with 0.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/projection/projection.h"
#include "kernels/backend.h"
#include "kernels/bench/cuda_bench.h"
#include "verifier/allowed_ids.h"
#include "verifier/device_step_runner.h"
#include "verifier/shadow_verifier.h"

namespace arborist::verifier {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kContext = 448;
constexpr double kExactOverFast = 1.15;
// Of the pair's service: its whole context and the largest tree.
constexpr int kMaxContext = 2048;
constexpr StepCapacity kCapacity{
    .max_rows = 512, .max_logits_rows = 512, .max_sequences = 64, .max_pages_per_sequence = 36};
constexpr int kMostSequences = 32;  // of a shape
constexpr int kPagesEach = 10;

template <typename T>
T Must(absl::StatusOr<T> value) {
  Check(value.ok(), value.status().ToString());
  return *std::move(value);
}
void Must(const absl::Status& status) { Check(status.ok(), status.ToString()); }

double Microseconds(const std::function<void()>& run) {
  const Clock::time_point begin = Clock::now();
  run();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// One shape: so many trees of so many nodes.
struct Shape {
  int sequences;
  int nodes;
};

class StepBench {
 public:
  StepBench(const std::string& target, const std::string& drafter, int sequences, kernels::Numerics numerics,
            Device& device)
      : device_(device), kernels_(kernels::KernelsFor(device.kind(), numerics)) {
    Projection projection = Must(LoadProjection(drafter));
    ModelOptions options;
    options.directory = target;
    options.max_rows = kCapacity.max_rows;
    options.max_logits_rows = kCapacity.max_logits_rows;
    options.max_context = kMaxContext;
    options.tap_layers.assign(projection.taps.begin(), projection.taps.end());
    model_ = Must(Model::Load(options, kernels_, device));
    projection_ = std::make_unique<FeatureProjection>(
        Must(FeatureProjection::Create(std::move(projection), kCapacity.max_rows, device)));
    cache_ = std::make_unique<KvCache>(Must(KvPlanes::Create({.layers = model_->config().layers,
                                                              .pages = int64_t{kMostSequences} * kPagesEach,
                                                              .latent_type = DType::kBF16,
                                                              .latent_row = model_->config().latent_row(),
                                                              .feature_row = projection_->hidden()},
                                                             device)),
                                       1, 0);
    runner_ = Must(
        DeviceStepRunner::Create(kCapacity, model_.get(), cache_.get(), projection_.get(), kernels_, device));
    for (int i = 0; i < sequences; ++i) {
      pages_.push_back(cache_->pool().NewSequence());
      Check(pages_.back().Resize(kPagesEach), "pages for every sequence");
      const std::vector<TokenId> tokens = Tokens(kContext);
      const StepChunk chunk{pages_.back().table(), 0, tokens};
      Must(runner_->Run({}, {&chunk, 1}));
    }
  }

  // From here on steps are of this shape.
  void Prepare(const Shape& shape) {
    tokens_ = Tokens(shape.nodes + 1);
    parents_ = {-1};
    for (int i = 1; i <= shape.nodes; ++i) {
      parents_.push_back(static_cast<int32_t>(random_() % static_cast<uint64_t>(i)) / 2);
    }
    trees_.clear();
    for (int i = 0; i < shape.sequences; ++i) {
      trees_.push_back({pages_[i].table(), kContext, tokens_, parents_, {}});
    }
    for (int i = 0; i < 5; ++i) {
      Step();
    }
    StepBatch batch;
    batch.Reserve(kCapacity.max_rows, kCapacity.max_sequences, kCapacity.max_pages_per_sequence);
    FillStep(trees_, {}, batch);
    const StepSize size = StepSizes(kCapacity).For(ContentsOf(batch));
    input_ = std::make_unique<StepInput>(Must(StepInput::Create(kCapacity, device_)));
    input_->Pack(size, batch, {});
    Must(input_->EnqueueCopy(size));
    forward_ = Must(device_.Record(
        [&] { return model_->Forward(input_->View(size), cache_->planes()).status(); }, "forward"));
  }

  double Step() {
    return Microseconds([&] { Must(runner_->Run(trees_, {})); });
  }

  // From here on trees have these; null: none.
  void Control(const StepControls* controls) {
    for (StepTree& tree : trees_) {
      tree.controls = controls;
    }
  }
  int64_t vocabulary() const { return model_->config().vocab_size; }

  // From here on so many steps are shadowed; 0: none.
  void Shadow(double fraction) {
    runner_->Shadow(nullptr);
    shadow_.reset();
    if (fraction > 0) {
      shadow_ = std::make_unique<ShadowVerifier>(
          ShadowOptions{.fraction = fraction,
                        .kernels = {},
                        .relative_limit = DefaultShadowLimit(DType::kBF16),
                        .on_report =
                            [this](const ShadowReport& report) {
                              faults_ += report.fault ? 1 : 0;
                              worst_ = std::max(worst_, report.difference.relative);
                            }},
          model_->config().layers, cache_->planes(), device_);
      runner_->Shadow(shadow_.get());
    }
  }
  // While no step is shadowed.
  int64_t faults() const { return faults_; }
  double worst_difference() const { return worst_; }

  double Forward() {
    constexpr int kStarts = 50;
    return Microseconds([&] {
             for (int i = 0; i < kStarts; ++i) {
               Must(forward_->Start());
             }
             Must(device_.Synchronize());
           }) /
           kStarts;
  }

 private:
  std::vector<TokenId> Tokens(int count) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < count; ++i) {
      tokens.push_back(
          TokenId{static_cast<int32_t>(random_() % static_cast<uint64_t>(model_->config().vocab_size))});
    }
    return tokens;
  }

  Device& device_;
  const kernels::KernelSet& kernels_;
  std::mt19937_64 random_{7};
  std::unique_ptr<Model> model_;
  std::unique_ptr<FeatureProjection> projection_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<DeviceStepRunner> runner_;
  std::vector<SequencePages> pages_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> parents_;
  std::vector<StepTree> trees_;
  std::unique_ptr<StepInput> input_;
  std::unique_ptr<RecordedWork> forward_;
  int64_t faults_ = 0;
  double worst_ = 0;
  std::unique_ptr<ShadowVerifier> shadow_;
};

struct Figures {
  double step, forward;
};

// The medians of EXACT and FAST, measured by turns: what disturbs one disturbs the other.
std::pair<Figures, Figures> Measure(const Shape& shape, StepBench& exact, StepBench& fast) {
  std::vector<double> steps[2], forwards[2];
  StepBench* const benches[2] = {&exact, &fast};
  for (StepBench* bench : benches) {
    bench->Prepare(shape);
  }
  for (int i = 0; i < 100; ++i) {
    for (int n = 0; n < 2; ++n) {
      steps[n].push_back(benches[n]->Step());
    }
  }
  for (int i = 0; i < 7; ++i) {
    for (int n = 0; n < 2; ++n) {
      forwards[n].push_back(benches[n]->Forward());
    }
  }
  return {{Median(steps[0]), Median(forwards[0])}, {Median(steps[1]), Median(forwards[1])}};
}

void PrintShadowed(const Shape& shape, StepBench& bench) {
  constexpr double kHardlyEver = 1e-12;
  bench.Prepare(shape);
  std::vector<double> times[3];
  for (const auto& [i, fraction] : {std::pair{0, 0.0}, {1, kHardlyEver}, {2, 1.0}}) {
    bench.Shadow(fraction);
    for (int step = 0; step < 30; ++step) {
      // So that the comparison before is over, and all three wait alike.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      times[i].push_back(bench.Step());
    }
  }
  bench.Shadow(0);
  std::printf("%9d %6d %10.1f %12.1f %12.1f %7lld %10.2g\n", shape.sequences, shape.nodes, Median(times[0]),
              Median(times[1]), Median(times[2]), static_cast<long long>(bench.faults()),
              bench.worst_difference());
}

// Three kinds of steps by turns.
void PrintControlled(const Shape& shape, StepBench& bench) {
  bench.Prepare(shape);
  std::vector<kernels::LogitEntry> history;  // as many ids as a text of the context's length has at most
  for (int i = 0; i < kContext; ++i) {
    const auto id = static_cast<int32_t>(i * bench.vocabulary() / kContext);
    history.push_back({.token = TokenId{id}, .output_count = i % 3, .occurred = 1});
  }
  const StepControls penalties{.penalties = {.repetition = 1.2f, .presence = 0.5f, .entries = {}},
                               .history = history,
                               .counts_nodes = true};
  std::vector<TokenId> half, stop_ids;
  for (int32_t id = 0; id < bench.vocabulary(); id += 2) {
    half.push_back(TokenId{id});
  }
  for (int32_t id = 0; id < kMaxStopIds; ++id) {
    stop_ids.push_back(TokenId{id});
  }
  AllowedIds allowed(half, bench.vocabulary());
  NodeMasks* const masks[] = {&allowed};
  StepControls everything = penalties;
  everything.stop_ids = stop_ids;
  everything.stops_from = 2 * kContext;
  everything.masks = masks;
  everything.top_log_probs = kMaxTopLogProbs;
  const StepControls* const kinds[] = {nullptr, &penalties, &everything};
  std::vector<double> times[3];
  for (int step = 0; step < 110; ++step) {
    for (int kind = 0; kind < 3; ++kind) {
      bench.Control(kinds[kind]);
      const double time = bench.Step();
      if (step >= 10) {
        times[kind].push_back(time);
      }
    }
  }
  bench.Control(nullptr);
  const double plain = Median(times[0]), penalized = Median(times[1]), all = Median(times[2]);
  std::printf("%9d %6d %10.1f %12.1f (%4.2f) %12.1f (%4.2f)\n", shape.sequences, shape.nodes, plain,
              penalized, penalized / plain, all, all / plain);
}

int Main(int argc, char** argv) {
  const char* source = std::getenv("ARBORIST_SOURCE_DIR");
  const std::string pair = absl::StrCat(source == nullptr ? "." : source, "/deploy/models/arborist-tiny");
  std::string target = pair + "/target", drafter = pair + "/drafter", json, only_sequences, only_nodes;
  bool shadow = false, controlled = false;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    shadow |= flag == "--shadow";
    controlled |= flag == "--controlled";
    for (const auto& [name, value] : {std::pair{"--model=", &target},
                                      {"--drafter=", &drafter},
                                      {"--json=", &json},
                                      {"--sequences=", &only_sequences},
                                      {"--nodes=", &only_nodes}}) {
      if (absl::StartsWith(flag, name)) {
        *value = flag.substr(std::string(name).size());
      }
    }
  }
  const auto device = OpenCudaDevice({});
  if (!device.ok()) {
    std::printf("skipped: no CUDA device\n");
    return 0;
  }
  const std::vector<int> all_sequences =
      only_sequences.empty() ? std::vector<int>{1, 8, 32} : std::vector<int>{std::stoi(only_sequences)};
  const std::vector<int> all_nodes =
      only_nodes.empty() ? std::vector<int>{0, 8, 16, 32, 64} : std::vector<int>{std::stoi(only_nodes)};
  StepBench exact(target, drafter, all_sequences.back(), kernels::Numerics::kExact, **device);
  if (shadow) {
    std::printf("%9s %6s %10s %12s %12s %7s %10s\n", "sequences", "nodes", "step us", "not drawn us",
                "drawn us", "faults", "difference");
    for (const int sequences : all_sequences) {
      PrintShadowed({sequences, std::min(all_nodes.back(), kCapacity.max_logits_rows / sequences - 1)},
                    exact);
    }
    return 0;
  }
  if (controlled) {
    std::printf("%9s %6s %10s %19s %19s\n", "sequences", "nodes", "plain us", "penalties us",
                "everything us");
    for (const int sequences : all_sequences) {
      for (const int nodes : all_nodes) {
        if (sequences * (nodes + 1) <= kCapacity.max_logits_rows) {
          PrintControlled({sequences, nodes}, exact);
        }
      }
    }
    return 0;
  }
  StepBench fast(target, drafter, all_sequences.back(), kernels::Numerics::kFast, **device);
  std::string json_flag = absl::StrCat("--json=", json);
  char* bench_flags[] = {argv[0], json_flag.data()};
  kernels::bench::CudaBench bench(json.empty() ? 1 : 2, bench_flags);
  for (const int sequences : all_sequences) {
    for (const int nodes : all_nodes) {
      if (sequences * (nodes + 1) > kCapacity.max_logits_rows) {
        continue;
      }
      const auto [e, f] = Measure({sequences, nodes}, exact, fast);
      const std::string shape =
          absl::StrFormat("sequences %d nodes %d context %d", sequences, nodes, kContext);
      bench.Report({.kernel = "verify step",
                    .shape = shape,
                    .microseconds = e.step,
                    .goal_microseconds = kExactOverFast * f.step});
      bench.Report({.kernel = "verify step, FAST", .shape = shape, .microseconds = f.step});
      bench.Report({.kernel = "forward pass", .shape = shape, .microseconds = e.forward});
      bench.Report({.kernel = "forward pass, FAST", .shape = shape, .microseconds = f.forward});
    }
  }
  return 0;
}

}  // namespace
}  // namespace arborist::verifier

int main(int argc, char** argv) { return arborist::verifier::Main(argc, argv); }
