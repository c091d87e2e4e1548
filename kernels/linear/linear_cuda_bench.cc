#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/output_check.h"
#include "kernels/linear/linear.h"

// bf16 products of Kimi K2.6 (one rank of eight, and the whole) and of the shipped pair. The floor is one
// read of weight and x and one write of out. Beside each stands cuBLAS on bf16 rows, where the machine has
// it.
namespace arborist::kernels {
namespace {

struct Product {
  const char* name;
  int64_t outputs, inputs;
};

constexpr Product kProducts[] = {
    {"K2.6 q_a", 1536, 7168},
    {"K2.6 kv_a", 576, 7168},
    {"K2.6 router", 384, 7168},
    {"K2.6 TP8 q_b", 1536, 1536},
    {"K2.6 TP8 o", 7168, 1024},
    {"K2.6 TP8 dense gate", 2304, 7168},
    {"K2.6 TP8 dense down", 7168, 2304},
    {"K2.6 TP8 head", 20480, 7168},
    {"K2.6 q_b", 12288, 1536},
    {"K2.6 o", 7168, 8192},
    {"K2.6 dense gate", 18432, 7168},
    {"K2.6 dense down", 7168, 18432},
    {"K2.6 head", 163840, 7168},
    {"DFlash fc", 7168, 43008},
    {"pair q_a", 128, 256},
    {"pair dense gate", 576, 256},
    {"pair dense down", 256, 576},
    {"pair head", 4096, 256},
};
constexpr int64_t kTokens[] = {1, 9, 17, 33, 65, 256};

// Some outputs of the last row that the last launch left, against the oracle.
void CheckLastRow(const LinearArgs& args) {
  const int64_t inputs = args.x.columns, outputs = std::min<int64_t>(args.weight.rows, 96),
                row = args.x.rows - 1;
  const std::vector<float> x = bench::Download(args.x.row(row), inputs);
  const auto weight = bench::Download(static_cast<const uint16_t*>(args.weight.data), outputs * inputs);
  std::vector<float> want(outputs);
  Check(reference::Linear({{x.data(), 1, inputs, inputs},
                           {weight.data(), DType::kBF16, outputs, inputs},
                           {want.data(), 1, outputs, outputs}},
                          {})
            .ok(),
        "the oracle runs");
  bench::ExpectNear("linear", bench::Download(args.out.row(row), outputs), want, 5e-3f);
}

void Run(bench::CudaBench& bench) {
  for (const Product& product : kProducts) {
    if (!bench.Wanted(absl::StrCat("linear ", product.name))) {
      continue;
    }
    const double weight_bytes = 2.0 * static_cast<double>(product.outputs * product.inputs);
    const int sets = bench::CudaBench::SetsFor(weight_bytes);
    auto* weights = static_cast<char*>(bench.Memory(static_cast<size_t>(weight_bytes) * sets));
    // bf16 noise read as fp32 is noise of about the same size.
    auto* x = static_cast<float*>(bench.Memory(256 * product.inputs * sizeof(float)));
    auto* out = static_cast<float*>(bench.Memory(256 * product.outputs * sizeof(float)));
    for (const int64_t tokens : kTokens) {
      const auto weight = [&](int i) { return weights + i * static_cast<size_t>(weight_bytes); };
      const auto args = [&](int i) {
        return LinearArgs{{x, tokens, product.inputs, product.inputs},
                          {weight(i), DType::kBF16, product.outputs, product.inputs},
                          {out, tokens, product.outputs, product.outputs}};
      };
      const double microseconds =
          bench.MedianMicroseconds(sets, [&](int i) { return cuda::Linear(args(i), bench.stream()); });
      const double bytes =
          weight_bytes + 4.0 * static_cast<double>(tokens * (product.inputs + product.outputs));
      const double floor = bytes / bench::kFloorBandwidth * 1e6;
      // Large weights under a tree's rows are the goal; others are launches.
      const bool large = weight_bytes >= 30e6 && tokens <= 33;
      bench.Report({.kernel = absl::StrCat("linear ", product.name),
                    .shape = absl::StrCat(tokens, " x [", product.outputs, ", ", product.inputs, "] bf16"),
                    .microseconds = microseconds,
                    .floor_microseconds = floor,
                    .goal_microseconds = large ? 1.3 * floor : 0});
      CheckLastRow(args(sets - 1));
      if (bench.cublas() != nullptr) {
        bench.Report({.kernel = absl::StrCat("cuBLAS ", product.name),
                      .shape = absl::StrCat(tokens, " x [", product.outputs, ", ", product.inputs, "] bf16"),
                      .microseconds = bench.MedianMicroseconds(sets,
                                                               [&](int i) {
                                                                 return bench.cublas()->Product(
                                                                     x, weight(i), out, tokens,
                                                                     product.outputs, product.inputs);
                                                               }),
                      .floor_microseconds = floor});
      }
    }
  }
}

}  // namespace
}  // namespace arborist::kernels

int main(int argc, char** argv) {
  arborist::kernels::bench::CudaBench bench(argc, argv);
  arborist::kernels::Run(bench);
  return 0;
}
