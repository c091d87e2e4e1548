// The kernels that only move or touch bytes: figure, byte floor, ratio. Sizes that fill the chip have the
// goal of 1.3 times their floor; small ones stand beside the empty launch. A row of each output is compared
// with the oracle's, of kernels that work in place after one launch more.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/tensor/dtype.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/output_check.h"
#include "kernels/embedding_lookup/embedding_lookup.h"
#include "kernels/kv_append/kv_append.h"
#include "kernels/kv_compact/kv_compact.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "kernels/row_ops/row_ops.h"
#include "kernels/silu_mul/silu_mul.h"

namespace arborist::kernels::bench {
namespace {

constexpr int64_t kHidden = 7168, kIntermediate = 18432, kLatentRow = 576, kHeads = 64, kLayers = 61;
constexpr int64_t kVocabulary = 163840, kPageRows = 64;
constexpr double kGoal = 1.3;
constexpr double kFills = 25e6;  // bytes from which a goal holds

std::string Shape(int64_t rows, const std::string& rest) { return std::to_string(rows) + " x " + rest; }

class RowsBench {
 public:
  RowsBench(int argc, char** argv) : bench_(argc, argv), pool_bytes_(size_t{3} << 30) {
    if (bench_.has_device()) {
      inputs_ = static_cast<char*>(bench_.Memory(pool_bytes_));
      outputs_ = static_cast<char*>(bench_.Memory(pool_bytes_));
    }
  }

  void Run() {
    for (const int64_t rows : {1, 33, 2048, 8192}) {
      Norm(rows, kHidden);
      Rotate(rows, kHeads, 64, 192, RopePairing::kInterleaved, "64 heads of 64 in 192");
      Rotate(rows, 1, 64, kLatentRow, RopePairing::kInterleaved, "1 head of 64 in 576");
      Rotate(rows, 64, 128, 128, RopePairing::kHalfSplit, "64 heads of 128, half-split");
      Silu(rows);
      Embed(rows);
      Add(rows);
      Append(rows, true);
      Append(rows, false);
    }
    Append(16384, true);
    Append(16384, false);
    Norm(8192, 1536);
    Norm(8192, 512);
    Norm(8192 * 64, 128);
    for (const int64_t moves : {2, 15, 33, 128, 256, 512}) {
      Compact(moves);
    }
    // Rows side by side that are as many bytes: what kv_append of 8,192 rows and kv_compact of 256 and 512
    // moves would take if theirs lay so.
    for (const int64_t rows : {494, 756, 1511}) {
      Copy(rows);
    }
  }

 private:
  // Memory for set i of `bytes` each: sets follow one another around a pool. Inputs are only read, so that
  // they stay about normal: a division of zeros or subnormals would take longer.
  template <typename T>
  T* Place(char* pool, int i, double bytes, int64_t at) const {
    const auto stride = (static_cast<size_t>(bytes) + 1023) / 1024 * 1024;
    return reinterpret_cast<T*>(pool + static_cast<size_t>(i) % (pool_bytes_ / stride) * stride + at);
  }
  template <typename T>
  const T* Input(int i, double bytes, int64_t at = 0) const {
    return Place<const T>(inputs_, i, bytes, at);
  }
  template <typename T>
  T* Output(int i, double bytes) const {
    return Place<T>(outputs_, i, bytes, 0);
  }

  void Time(const std::string& kernel, const std::string& shape, double bytes, double set_bytes,
            const std::function<absl::Status(int)>& launch, bool has_goal = true) {
    const int sets = CudaBench::SetsFor(set_bytes);
    const double floor = bytes / kFloorBandwidth * 1e6;
    bench_.Report({.kernel = kernel,
                   .shape = shape,
                   .microseconds = bench_.MedianMicroseconds(sets, launch),
                   .floor_microseconds = floor,
                   .goal_microseconds = has_goal && bytes >= kFills ? kGoal * floor : 0});
  }

  void Norm(int64_t rows, int64_t columns) {
    if (!bench_.Wanted("rms_norm")) {
      return;
    }
    const double bytes = 8.0 * rows * columns;
    const std::vector<float> weights(columns, 1.5f);
    const float* weight = bench_.Upload(weights);
    Time("rms_norm", Shape(rows, std::to_string(columns)), bytes, bytes, [&](int i) {
      return cuda::RmsNorm({.x = {Input<float>(i, bytes / 2), rows, columns, columns},
                            .weight = {weight, columns},
                            .out = {Output<float>(i, bytes / 2), rows, columns, columns},
                            .epsilon = 1e-6f},
                           bench_.stream());
    });
    const std::vector<float> x = Download(Input<float>(0, bytes / 2), columns);
    std::vector<float> want(columns);
    Check(reference::RmsNorm({.x = {x.data(), 1, columns, columns},
                              .weight = {weights.data(), columns},
                              .out = {want.data(), 1, columns, columns},
                              .epsilon = 1e-6f},
                             {})
              .ok(),
          "the oracle runs");
    ExpectNear("rms_norm", Download(Output<float>(0, bytes / 2), columns), want, 1e-6f);
  }

  void Rotate(int64_t rows, int64_t heads, int64_t dim, int64_t head_stride, RopePairing pairing,
              const std::string& what) {
    if (!bench_.Wanted("rope")) {
      return;
    }
    constexpr int64_t kPositions = 16384;
    if (cosine_ == nullptr) {  // one angle for all, so that vectors keep their length
      cosine_ = bench_.Upload(std::vector<float>(kPositions * 64, 0.6f));
      sine_ = bench_.Upload(std::vector<float>(kPositions * 64, 0.8f));
    }
    std::vector<int32_t> positions(rows);
    for (int64_t t = 0; t < rows; ++t) {
      positions[t] = static_cast<int32_t>(t + 1000);
    }
    const int32_t* position = bench_.Upload(positions);
    const double bytes = 8.0 * rows * heads * dim, spread = 4.0 * rows * heads * head_stride;
    const auto launch = [&](int i) {
      return cuda::Rope({.x = Output<float>(i, spread),
                         .row_stride = heads * head_stride,
                         .head_stride = head_stride,
                         .heads = heads,
                         .position = {position, rows},
                         .cosine = {cosine_, kPositions, dim / 2, dim / 2},
                         .sine = {sine_, kPositions, dim / 2, dim / 2},
                         .pairing = pairing},
                        bench_.stream());
    };
    Time("rope", Shape(rows, what), bytes, bytes / 2, launch);
    const int64_t row = heads * head_stride;
    std::vector<float> want = Download(Output<float>(0, spread), row);
    Check(launch(0).ok(), "it ran before");
    const std::vector<float> cosine(dim / 2, 0.6f), sine(dim / 2, 0.8f);
    const int32_t first = 0;
    Check(reference::Rope({.x = want.data(),
                           .row_stride = row,
                           .head_stride = head_stride,
                           .heads = heads,
                           .position = {&first, 1},
                           .cosine = {cosine.data(), 1, dim / 2, dim / 2},
                           .sine = {sine.data(), 1, dim / 2, dim / 2},
                           .pairing = pairing},
                          {})
              .ok(),
          "the oracle runs");
    ExpectNear("rope", Download(Output<float>(0, spread), row), want, 1e-6f);
  }

  void Silu(int64_t rows) {
    if (!bench_.Wanted("silu_mul")) {
      return;
    }
    const double bytes = 12.0 * rows * kIntermediate;
    const int64_t part = rows * kIntermediate * 4;
    Time("silu_mul", Shape(rows, std::to_string(kIntermediate)), bytes, bytes, [&](int i) {
      return cuda::SiluMul({.gate = {Input<float>(i, 2 * part), rows, kIntermediate, kIntermediate},
                            .up = {Input<float>(i, 2 * part, part), rows, kIntermediate, kIntermediate},
                            .out = {Output<float>(i, part), rows, kIntermediate, kIntermediate}},
                           bench_.stream());
    });
    const std::vector<float> gate = Download(Input<float>(0, 2 * part), kIntermediate);
    const std::vector<float> up = Download(Input<float>(0, 2 * part, part), kIntermediate);
    std::vector<float> want(kIntermediate);
    Check(reference::SiluMul({.gate = {gate.data(), 1, kIntermediate, kIntermediate},
                              .up = {up.data(), 1, kIntermediate, kIntermediate},
                              .out = {want.data(), 1, kIntermediate, kIntermediate}},
                             {})
              .ok(),
          "the oracle runs");
    ExpectNear("silu_mul", Download(Output<float>(0, part), kIntermediate), want, 1e-6f);
  }

  void Embed(int64_t rows) {
    if (!bench_.Wanted("embedding_lookup")) {
      return;
    }
    if (table_ == nullptr) {
      table_ = bench_.Memory(size_t{kVocabulary} * kHidden * 2);
    }
    const double bytes = 6.0 * rows * kHidden;
    const int sets = CudaBench::SetsFor(bytes);
    std::mt19937 random(1);
    std::vector<int32_t> ids(sets * rows);
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(random() % kVocabulary);
    }
    const auto* tokens = reinterpret_cast<const TokenId*>(bench_.Upload(ids));
    Time("embedding_lookup", Shape(rows, "7168 of bf16"), bytes, bytes, [&](int i) {
      return cuda::EmbeddingLookup({.token = {tokens + i * rows, rows},
                                    .table = {table_, DType::kBF16, kVocabulary, kHidden},
                                    .out = {Output<float>(i, bytes * 2 / 3), rows, kHidden, kHidden}},
                                   bench_.stream());
    });
    const auto* row = static_cast<const uint16_t*>(table_) + int64_t{ids[0]} * kHidden;
    ExpectNear("embedding_lookup", Download(Output<float>(0, bytes * 2 / 3), kHidden),
               DownloadBf16(row, kHidden), 0);
  }

  void Add(int64_t rows) {
    if (!bench_.Wanted("add_rows")) {
      return;
    }
    const double bytes = 12.0 * rows * kHidden;
    const auto launch = [&](int i) {
      return cuda::AddRows({.from = {Input<float>(i, bytes / 3), rows, kHidden, kHidden},
                            .into = {Output<float>(i, bytes / 3), rows, kHidden, kHidden}},
                           bench_.stream());
    };
    Time("add_rows", Shape(rows, std::to_string(kHidden)), bytes, bytes, launch);
    std::vector<float> want = Download(Output<float>(0, bytes / 3), kHidden);
    const std::vector<float> from = Download(Input<float>(0, bytes / 3), kHidden);
    Check(launch(0).ok(), "it ran before");
    std::transform(want.begin(), want.end(), from.begin(), want.begin(), std::plus<>());
    ExpectNear("add_rows", Download(Output<float>(0, bytes / 3), kHidden), want, 0);
  }

  void Copy(int64_t rows) {
    if (!bench_.Wanted("copy_rows")) {
      return;
    }
    const double bytes = 8.0 * rows * kHidden;
    const auto launch = [&](int i) {
      return cuda::CopyRows({.from = {Input<float>(i, bytes / 2), rows, kHidden, kHidden},
                             .into = {Output<float>(i, bytes / 2), rows, kHidden, kHidden}},
                            bench_.stream());
    };
    Time("copy_rows", Shape(rows, std::to_string(kHidden)), bytes, bytes, launch, false);
    ExpectNear("copy_rows", Download(Output<float>(0, bytes / 2), kHidden),
               Download(Input<float>(0, bytes / 2), kHidden), 0);
  }

  // One launch a layer, a graph of 61: sets are layers. The figure is for all of them.
  void Append(int64_t rows, bool narrow) {
    if (!bench_.Wanted("kv_append")) {
      return;
    }
    constexpr int64_t kSlots = 16384, kRowBytes = kLatentRow * 2;
    const int64_t source = narrow ? 2 * kRowBytes : kRowBytes;
    if (planes_ == nullptr) {
      planes_ = static_cast<char*>(bench_.Memory(size_t{kLayers} * kSlots * kRowBytes));
    }
    const std::vector<int32_t> slots = PagesOfSlots(kSlots, rows);
    const int32_t* slot = bench_.Upload(slots);
    const double bytes = static_cast<double>(kLayers) * rows * (source + kRowBytes);
    const double floor = bytes / kFloorBandwidth * 1e6;
    const double microseconds = kLayers * bench_.MedianMicroseconds(kLayers, [&](int i) {
      return cuda::KvAppend({.rows = Input<char>(i, rows * source),
                             .source_stride_bytes = source,
                             .slot = {slot, rows},
                             .plane = planes_ + i * kSlots * kRowBytes,
                             .slots = kSlots,
                             .row_bytes = kRowBytes,
                             .narrow = narrow},
                            bench_.stream());
    });
    bench_.Report({.kernel = "kv_append",
                   .shape = Shape(rows, narrow ? "576 fp32 to bf16, 61 layers" : "576 of bf16, 61 layers"),
                   .microseconds = microseconds,
                   .floor_microseconds = floor,
                   .goal_microseconds = bytes / kLayers >= kFills ? kGoal * floor : 0});
    std::vector<float> want = narrow ? Download(Input<float>(0, rows * source), kLatentRow)
                                     : DownloadBf16(Input<uint16_t>(0, rows * source), kLatentRow);
    for (float& value : want) {
      value = ToFloat(ToBFloat16(value));
    }
    ExpectNear("kv_append", DownloadBf16(planes_ + slots[0] * kRowBytes, kLatentRow), want, 0);
  }

  // All latent planes and the feature plane of K2 in one launch.
  void Compact(int64_t moves) {
    if (!bench_.Wanted("kv_compact")) {
      return;
    }
    constexpr int64_t kSlots = 16384, kRowBytes = kLatentRow * 2, kFeatureBytes = kHidden * 2;
    std::vector<void*> plane;
    std::vector<int64_t> width;
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      plane.push_back(outputs_ + layer * kSlots * kRowBytes);
      width.push_back(kRowBytes);
    }
    plane.push_back(outputs_ + kLayers * kSlots * kRowBytes);
    width.push_back(kFeatureBytes);
    void* const* planes = bench_.Upload(plane);
    const int64_t* widths = bench_.Upload(width);
    const double bytes = 2.0 * moves * (kLayers * kRowBytes + kFeatureBytes);
    const int sets = CudaBench::SetsFor(bytes);
    std::vector<int32_t> from, to;
    for (int i = 0; i < sets; ++i) {
      AddMoves(kSlots, moves, from, to);
    }
    const int32_t *froms = bench_.Upload(from), *tos = bench_.Upload(to);
    const auto launch = [&](int i) {
      return cuda::KvCompact({.plane = {planes, kLayers + 1},
                              .row_bytes = {widths, kLayers + 1},
                              .max_row_bytes = kFeatureBytes,
                              .slots = kSlots,
                              .from = {froms + i * moves, moves},
                              .to = {tos + i * moves, moves},
                              .scratch = {}},
                             bench_.stream());
    };
    Time("kv_compact", std::to_string(moves) + " moves in 61 x 1152 B + 14336 B", bytes, bytes, launch);
    for (const int64_t layer : {int64_t{0}, kLayers}) {
      const int64_t width_of = width[layer];
      const auto row = [&](int32_t slot) {
        return Download(static_cast<const char*>(plane[layer]) + slot * width_of, width_of);
      };
      std::vector<std::vector<char>> want;
      for (int64_t move = 0; move < moves; ++move) {
        want.push_back(row(from[move]));
      }
      Check(launch(0).ok(), "it ran before");
      for (int64_t move = 0; move < moves; ++move) {
        ExpectEqual("kv_compact", row(to[move]), want[move]);
      }
    }
  }

  // As a step writes them: whole pages of 64 rows, in any order.
  std::vector<int32_t> PagesOfSlots(int64_t slots, int64_t count) {
    std::vector<int32_t> all;
    for (const int32_t page : Shuffled(slots / kPageRows)) {
      for (int32_t row = 0; row < kPageRows && static_cast<int64_t>(all.size()) < count; ++row) {
        all.push_back(page * kPageRows + row);
      }
    }
    return all;
  }

  // Paths of at most 8 moves in trees of 33 rows, each tree in a page of its own.
  void AddMoves(int64_t slots, int64_t moves, std::vector<int32_t>& from, std::vector<int32_t>& to) {
    for (const int32_t page : Shuffled(slots / kPageRows)) {
      int32_t node = 1;
      for (int32_t j = 1; j <= 8 && moves > 0; ++j, --moves) {
        node = std::max(node + 1, static_cast<int32_t>(random_() % 3) + j + 1);
        from.push_back(page * kPageRows + node);
        to.push_back(page * kPageRows + j);
      }
    }
  }

  std::vector<int32_t> Shuffled(int64_t count) {
    std::vector<int32_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random_);
    return all;
  }

  CudaBench bench_;
  size_t pool_bytes_;
  char* inputs_ = nullptr;
  char* outputs_ = nullptr;
  char* planes_ = nullptr;
  void* table_ = nullptr;
  const float* cosine_ = nullptr;
  const float* sine_ = nullptr;
  std::mt19937 random_{7};
};

}  // namespace
}  // namespace arborist::kernels::bench

int main(int argc, char** argv) {
  arborist::kernels::bench::RowsBench bench(argc, argv);
  bench.Run();
}
