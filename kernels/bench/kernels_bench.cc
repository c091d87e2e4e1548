// The dense kernels on the shapes of the shipped pair and of DeepSeek-V2-Lite: figure, floor, ratio.
//   kernels_bench [threads]
// Weights rotate through a ring beyond the second cache, as in a model. The floor is the larger of bytes over
// the measured read rate and fused multiply-adds over the measured peak.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "kernels/bench/machine.h"
#include "kernels/feature_projection/feature_projection.h"
#include "kernels/linear/linear.h"
#include "kernels/linear_per_head/linear_per_head.h"
#include "kernels/moe_experts/moe_experts.h"
#include "kernels/moe_route/moe_route.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/simd/isa.h"

namespace arborist::kernels::bench {
namespace {

constexpr int64_t kRows[] = {1, 4, 17, 65};

// bf16 weights of one shape, as many copies as fill the ring.
class WeightRing {
 public:
  WeightRing(int64_t rows, int64_t columns)
      : rows_(rows),
        columns_(columns),
        copies_(std::max<int64_t>(1, kRingBytes / (rows * columns * 2))),
        data_(static_cast<size_t>(copies_ * rows * columns), ToBFloat16(0.01f)) {}
  WeightView At(int64_t i) const {
    return {data_.data() + i % copies_ * rows_ * columns_, DType::kBF16, rows_, columns_};
  }
  int64_t copies() const { return copies_; }
  double bytes() const { return static_cast<double>(rows_ * columns_ * 2); }

 private:
  int64_t rows_, columns_, copies_;
  std::vector<BFloat16> data_;
};

class Bench {
 public:
  explicit Bench(int threads) : pool_(threads), machine_(Measure(pool_)) {
    std::printf("%s, threads: %d, read %.1f GB/s, peak %.1f G fused multiply-adds/s\n\n", Name(ActiveIsa()),
                threads, machine_.read_bytes_per_second * 1e-9, machine_.fused_adds_per_second * 1e-9);
    std::printf("| kernel | rows | us | us a row | floor us | ratio |\n|---|---|---|---|---|---|\n");
  }

  void RunAll() {
    for (const int64_t rows : kRows) {
      Model("pair", rows, 256, 128, 128, 8, 32, 32, 4096, 16, 4, 96, 96);
    }
    for (const int64_t rows : kRows) {
      Model("V2-Lite", rows, 2048, 0, 512, 16, 128, 64, 8192, 64, 6, 1408, 2816);
    }
  }

 private:
  StreamView stream() { return {.threads = &pool_}; }

  void Line(const std::string& name, int64_t rows, double bytes, double fused_adds,
            const std::function<absl::Status(int64_t)>& call) {
    const double seconds =
        MedianSeconds([&](int64_t i) { Check(call(i).ok(), "the bench's arguments are valid"); });
    const double floor = machine_.FloorSeconds(bytes, fused_adds);
    std::printf("| %s | %ld | %.1f | %.2f | %.1f | %.2f |\n", name.c_str(), static_cast<long>(rows),
                seconds * 1e6, seconds * 1e6 / static_cast<double>(rows), floor * 1e6, seconds / floor);
    std::fflush(stdout);
  }

  void Dense(const std::string& name, int64_t rows, int64_t outputs, int64_t inputs, bool row_parallel) {
    const WeightRing weight(outputs, inputs);
    const std::vector<float> x(static_cast<size_t>(rows * inputs), 0.5f);
    std::vector<float> out(static_cast<size_t>(rows * outputs));
    const View2<const float> in{x.data(), rows, inputs, inputs};
    const View2<float> to{out.data(), rows, outputs, outputs};
    Line(absl::StrCat(name, row_parallel ? " linear_row_parallel " : " linear ", outputs, "x", inputs), rows,
         weight.bytes(), static_cast<double>(rows * outputs * inputs), [&](int64_t i) {
           return row_parallel ? cpu::LinearRowParallel({in, weight.At(i), to, inputs, 0, 8}, stream())
                               : cpu::Linear({in, weight.At(i), to}, stream());
         });
  }

  void PerHead(const std::string& name, int64_t rows, int64_t heads, int64_t outputs, int64_t inputs) {
    const WeightRing weight(heads * outputs, inputs);
    const std::vector<float> x(static_cast<size_t>(rows * heads * inputs), 0.5f);
    std::vector<float> out(static_cast<size_t>(rows * heads * outputs));
    Line(absl::StrCat(name, " linear_per_head ", heads, "x", outputs, "x", inputs), rows, weight.bytes(),
         static_cast<double>(rows * heads * outputs * inputs), [&](int64_t i) {
           return cpu::LinearPerHead({.x = x.data(),
                                      .x_row_stride = heads * inputs,
                                      .x_head_stride = inputs,
                                      .weight = weight.At(i),
                                      .out = out.data(),
                                      .out_row_stride = heads * outputs,
                                      .out_head_stride = outputs,
                                      .tokens = rows,
                                      .heads = heads,
                                      .outputs = outputs},
                                     stream());
         });
  }

  void Norm(const std::string& name, int64_t rows, int64_t columns) {
    const std::vector<float> x(static_cast<size_t>(rows * columns), 0.5f);
    std::vector<float> out(static_cast<size_t>(rows * columns));
    Line(absl::StrCat(name, " rms_norm ", columns), rows, static_cast<double>(rows * columns * 8), 0,
         [&](int64_t) {
           return cpu::RmsNorm({{x.data(), rows, columns, columns},
                                {x.data(), columns},
                                {out.data(), rows, columns, columns},
                                1e-6f},
                               stream());
         });
  }

  void Experts(const std::string& name, int64_t rows, int64_t hidden, int64_t experts, int top_k,
               int64_t width, int64_t shared_width) {
    const WeightRing gate(width, hidden), up(width, hidden), down(hidden, width);
    const WeightRing shared_gate(shared_width, hidden), shared_up(shared_width, hidden),
        shared_down(hidden, shared_width);
    const std::vector<float> x(static_cast<size_t>(rows * hidden), 0.5f);
    std::vector<float> out(static_cast<size_t>(rows * hidden));
    std::vector<int32_t> expert;
    std::vector<char> touched(static_cast<size_t>(experts));
    for (int64_t t = 0; t < rows; ++t) {
      for (int i = 0; i < top_k; ++i) {  // distinct and ascending: one expert of each of top_k neighbourhoods
        const int64_t span = experts / top_k;
        expert.push_back(static_cast<int32_t>(i * span + (t * 7 + i * 3) % span));
        touched[static_cast<size_t>(expert.back())] = 1;
      }
    }
    const std::vector<float> weight(static_cast<size_t>(rows * top_k), 0.25f);
    std::vector<std::byte> memory(MoeExpertsScratchBytes(rows, hidden, experts, top_k, width, shared_width) +
                                  64);
    auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    std::vector<ExpertWeights> weights(static_cast<size_t>(experts));
    const auto distinct = static_cast<double>(std::count(touched.begin(), touched.end(), 1));
    const double bytes = distinct * 3 * gate.bytes() + 3 * shared_gate.bytes();
    const auto products = static_cast<double>(rows * hidden * 3 * (top_k * width + shared_width));
    Line(absl::StrCat(name, " moe_experts ", experts, "x", width, " top ", top_k, " + ", shared_width), rows,
         bytes, products, [&](int64_t i) {
           for (int64_t e = 0; e < experts; ++e) {
             weights[static_cast<size_t>(e)] = {gate.At(i * experts + e), up.At(i * experts + e),
                                                down.At(i * experts + e)};
           }
           const ExpertWeights shared{shared_gate.At(i), shared_up.At(i), shared_down.At(i)};
           return cpu::MoeExperts({.x = {x.data(), rows, hidden, hidden},
                                   .expert = {expert.data(), rows, top_k, top_k},
                                   .weight = {weight.data(), rows, top_k, top_k},
                                   .experts = {weights.data(), experts},
                                   .weight_dtype = DType::kBF16,
                                   .width = width,
                                   .shared = &shared,
                                   .full_width = width,
                                   .full_shared_width = shared_width,
                                   .out = {out.data(), rows, hidden, hidden},
                                   .scratch = {aligned, static_cast<int64_t>(memory.size() - 64)}},
                                  stream());
         });
  }

  // The products of one layer and the head, as the model calls them.
  void Model(const std::string& name, int64_t rows, int64_t hidden, int64_t q_lora, int64_t latent,
             int64_t heads, int64_t nope, int64_t rope, int64_t vocabulary, int64_t experts, int top_k,
             int64_t width, int64_t shared_width) {
    Norm(name, rows, hidden);
    if (q_lora > 0) {
      Dense(name, rows, q_lora, hidden, false);
    }
    Dense(name, rows, heads * (nope + rope), q_lora > 0 ? q_lora : hidden, false);
    Dense(name, rows, latent + rope, hidden, false);
    PerHead(name, rows, heads, latent, nope);
    PerHead(name, rows, heads, nope, latent);
    Dense(name, rows, hidden, heads * nope, true);
    Dense(name, rows, experts, hidden, false);
    Experts(name, rows, hidden, experts, top_k, width, shared_width);
    Dense(name, rows, vocabulary, hidden, false);
  }

  ThreadPool pool_;
  Machine machine_;
};

}  // namespace
}  // namespace arborist::kernels::bench

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  arborist::Check(threads >= 1, "usage: kernels_bench [threads], threads >= 1");
  arborist::kernels::bench::Bench(threads).RunAll();
  return 0;
}
