// Block attention on the GPU: a block of 8 against contexts of several lengths, one stream and many.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/output_check.h"
#include "kernels/block_attention_gqa/block_attention_gqa.h"

namespace arborist::kernels {
namespace {

constexpr int64_t kBlock = 8;

struct Shape {
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t streams;
  int64_t context;
};

// The first stream against the oracle.
void CheckFirstStream(const BlockAttentionGqaArgs& args, const Shape& shape) {
  const int64_t width = shape.kv_heads * shape.head_dim, outputs = kBlock * shape.heads * shape.head_dim;
  const std::vector<float> query = bench::Download(args.query.data, outputs);
  const std::vector<float> key = bench::Download(args.context_key, shape.context * width);
  const std::vector<float> value = bench::Download(args.context_value, shape.context * width);
  const std::vector<float> block_key = bench::Download(args.block_key.data, kBlock * width);
  const std::vector<float> block_value = bench::Download(args.block_value.data, kBlock * width);
  const int32_t first = 0, context = static_cast<int32_t>(shape.context);
  const std::vector<int32_t> zero(kBlock, 0), all(kBlock, kBlock);
  std::vector<float> want(outputs);
  Check(reference::BlockAttentionGqa(
            {.query = {query.data(), kBlock, shape.heads, shape.head_dim},
             .block = kBlock,
             .context_key = key.data(),
             .context_value = value.data(),
             .plane_rows = shape.context,
             .context_first = {&first, 1},
             .context_rows = {&context, 1},
             .max_context = args.max_context,
             .context_begin = {zero.data(), kBlock},
             .block_begin = {zero.data(), kBlock},
             .block_end = {all.data(), kBlock},
             .block_key = {block_key.data(), kBlock, shape.kv_heads, shape.head_dim},
             .block_value = {block_value.data(), kBlock, shape.kv_heads, shape.head_dim},
             .scale = args.scale,
             .out = {want.data(), kBlock, shape.heads, shape.head_dim}},
            {})
            .ok(),
        "the oracle runs");
  bench::ExpectNear("block_attention_gqa", bench::Download(args.out.data, outputs), want, 2e-5f);
}

void Measure(bench::CudaBench& bench, const Shape& shape) {
  const int64_t width = shape.kv_heads * shape.head_dim, rows = shape.streams * kBlock;
  const int64_t plane_rows = shape.streams * shape.context;
  const double plane_bytes = static_cast<double>(plane_rows * width) * sizeof(float);
  const double query_bytes = static_cast<double>(rows * shape.heads * shape.head_dim) * sizeof(float);
  const int sets = std::min(bench::CudaBench::SetsFor(2 * plane_bytes + 2 * query_bytes), 64);
  std::vector<int32_t> first, context, zero(rows, 0), all(rows, kBlock);
  for (int64_t s = 0; s < shape.streams; ++s) {
    first.push_back(static_cast<int32_t>(s * shape.context));
    context.push_back(static_cast<int32_t>(shape.context));
  }
  const auto floats = [&](int64_t count) {
    return static_cast<float*>(bench.Memory(static_cast<size_t>(count) * sizeof(float)));
  };
  std::vector<BlockAttentionGqaArgs> args;
  for (int i = 0; i < sets; ++i) {
    args.push_back({.query = {floats(rows * shape.heads * shape.head_dim), rows, shape.heads, shape.head_dim},
                    .block = kBlock,
                    .context_key = floats(plane_rows * width),
                    .context_value = floats(plane_rows * width),
                    .plane_rows = plane_rows,
                    .context_first = {bench.Upload(first), shape.streams},
                    .context_rows = {bench.Upload(context), shape.streams},
                    .max_context = 4096,
                    .context_begin = {bench.Upload(zero), rows},
                    .block_begin = {bench.Upload(zero), rows},
                    .block_end = {bench.Upload(all), rows},
                    .block_key = {floats(rows * width), rows, shape.kv_heads, shape.head_dim},
                    .block_value = {floats(rows * width), rows, shape.kv_heads, shape.head_dim},
                    .scale = 0.18f,
                    .out = {floats(rows * shape.heads * shape.head_dim), rows, shape.heads, shape.head_dim}});
    args.back().scratch_bytes = BlockAttentionGqaScratchBytes(args.back());
    args.back().scratch = bench.Memory(args.back().scratch_bytes, 0);
  }
  const double microseconds =
      bench.MedianMicroseconds(sets, [&](int i) { return cuda::BlockAttentionGqa(args[i], bench.stream()); });
  bench.Report({.kernel = "block_attention_gqa",
                .shape = absl::StrCat(shape.streams, " x ", shape.heads, "/", shape.kv_heads, " heads of ",
                                      shape.head_dim, ", context ", shape.context),
                .microseconds = microseconds,
                .floor_microseconds = (2 * plane_bytes + 2 * query_bytes) / bench::kFloorBandwidth * 1e6});
  CheckFirstStream(args.front(), shape);
}

}  // namespace
}  // namespace arborist::kernels

int main(int argc, char** argv) {
  arborist::kernels::bench::CudaBench bench(argc, argv);
  if (!bench.has_device() || !bench.Wanted("block_attention_gqa")) {
    return 0;
  }
  for (const int64_t streams : {1, 8, 32}) {
    for (const int64_t context : {200, 1000, 4096}) {
      arborist::kernels::Measure(bench, {8, 4, 32, streams, context});
    }
  }
  arborist::kernels::Measure(bench, {64, 8, 128, 1, 1000});
  arborist::kernels::Measure(bench, {64, 8, 128, 1, 4096});
  return 0;
}
