#include "kernels/moe_experts/moe_experts.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/exact_math/exact_math.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/lane_dot.h"
#include "kernels/testing/random_tensor.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

// Random experts and routes, and the memory behind them.
class Experts {
 public:
  Experts(Random& random, DType dtype, int experts, int top_k, int64_t hidden, int64_t width,
          int64_t shared_width, int64_t rows)
      : dtype_(dtype),
        top_k_(top_k),
        hidden_(hidden),
        width_(width),
        shared_width_(shared_width),
        rows_(rows),
        x_(random.Normals(rows * hidden)) {
    for (int e = 0; e <= experts; ++e) {
      const int64_t w = e < experts ? width : shared_width;
      const float scale = 1.0f / std::sqrt(static_cast<float>(hidden));
      matrices_.push_back(std::make_unique<StoredMatrix>(random, dtype, w, hidden, scale));
      matrices_.push_back(std::make_unique<StoredMatrix>(random, dtype, w, hidden, scale));
      matrices_.push_back(std::make_unique<StoredMatrix>(random, dtype, hidden, w, scale));
      const ExpertWeights weights{matrices_[3 * e]->view(), matrices_[3 * e + 1]->view(),
                                  matrices_[3 * e + 2]->view()};
      e < experts ? experts_.push_back(weights) : void(shared_ = weights);
    }
    for (int64_t t = 0; t < rows; ++t) {
      std::vector<int32_t> ids(experts);
      std::iota(ids.begin(), ids.end(), 0);
      std::shuffle(ids.begin(), ids.end(), random.engine());
      ids.resize(top_k);
      std::sort(ids.begin(), ids.end());
      expert_.insert(expert_.end(), ids.begin(), ids.end());
    }
    weight_ = random.Normals(rows * top_k);
  }

  // Rows [first, first + count) of this rank's segments.
  MoeExpertsArgs Args(int64_t first, int64_t count, std::vector<float>& out, bool with_shared) {
    scratch_.assign(MoeExpertsScratchBytes(count, hidden_, static_cast<int64_t>(experts_.size()), top_k_,
                                           width_, shared_width_),
                    std::byte{0xff});  // NaN everywhere: nothing may be read before it is written
    out = Poisoned(count * hidden_);
    return {.x = {x_.data() + first * hidden_, count, hidden_, hidden_},
            .expert = {expert_.data() + first * top_k_, count, top_k_, top_k_},
            .weight = {weight_.data() + first * top_k_, count, top_k_, top_k_},
            .experts = {experts_.data(), static_cast<int64_t>(experts_.size())},
            .weight_dtype = dtype_,
            .width = width_,
            .shared = with_shared ? &shared_ : nullptr,
            .full_width = width_,
            .full_shared_width = shared_width_,
            .first_segment = 0,
            .segment_count = 8,
            .out = {out.data(), count, hidden_, hidden_},
            .scratch = {scratch_.data(), static_cast<int64_t>(scratch_.size())}};
  }
  int64_t hidden() const { return hidden_; }

 private:
  DType dtype_;
  int top_k_;
  int64_t hidden_, width_, shared_width_, rows_;
  std::vector<float> x_;
  std::vector<std::unique_ptr<StoredMatrix>> matrices_;
  std::vector<ExpertWeights> experts_;
  ExpertWeights shared_;
  std::vector<int32_t> expert_;
  std::vector<float> weight_;
  std::vector<std::byte> scratch_;
};

TEST(MoeExpertsTest, EveryShapeAgreesWithTheOracleAndHasTheSameBitsEverywhere) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t width : {8, 12, 33}) {
      for (const int64_t rows : {1, 2, 17, 65}) {
        for (const bool shared : {false, true}) {
          Experts experts(random, dtype, 7, 3, 40, width, 2 * width, rows);
          std::vector<float> want, got, first;
          ASSERT_TRUE(reference::MoeExperts(experts.Args(0, rows, want, shared), {}).ok());
          ForEveryIsaAndThreadCount([&](StreamView stream) {
            ASSERT_TRUE(cpu::MoeExperts(experts.Args(0, rows, got, shared), stream).ok());
            EXPECT_TRUE(Close(got, want, 5e-6));  // three chained sums of up to 66 products in fp32
            first = first.empty() ? got : first;
            EXPECT_TRUE(SameBits(got, first));
          });
        }
      }
    }
  }
}

// The definition of the header in scalar steps: per segment, experts by ascending id, then the shared one.
std::vector<float> Definition(const MoeExpertsArgs& args) {
  std::vector<float> out;
  const auto inner = [&](const ExpertWeights& weights, const float* x) {
    std::vector<float> gated;
    for (int64_t i = 0; i < weights.gate.rows; ++i) {
      const float gate = LaneDot(x, weights.gate, i, 0, args.x.columns);
      const float up = LaneDot(x, weights.up, i, 0, args.x.columns);
      gated.push_back(gate / (1.0f + ExactExp(-gate)) * up);
    }
    return gated;
  };
  for (int64_t t = 0; t < args.x.rows; ++t) {
    std::vector<std::vector<float>> gated;
    for (int64_t i = 0; i < args.expert.columns; ++i) {
      gated.push_back(inner(args.experts[args.expert.row(t)[i]], args.x.row(t)));
    }
    const std::vector<float> shared =
        args.shared != nullptr ? inner(*args.shared, args.x.row(t)) : std::vector<float>{};
    for (int64_t n = 0; n < args.x.columns; ++n) {
      float sums[8] = {};
      for (int s = 0; s < 8; ++s) {
        for (int64_t i = 0; i < args.expert.columns; ++i) {
          sums[s] = std::fma(args.weight.row(t)[i],
                             LaneDot(gated[i].data(), args.experts[args.expert.row(t)[i]].down, n,
                                     SegmentBegin(args.full_width, s), SegmentBegin(args.full_width, s + 1)),
                             sums[s]);
        }
        if (args.shared != nullptr) {
          sums[s] += LaneDot(shared.data(), args.shared->down, n, SegmentBegin(args.full_shared_width, s),
                             SegmentBegin(args.full_shared_width, s + 1));
        }
      }
      out.push_back(JoinNeighbours(sums, 8));
    }
  }
  return out;
}

TEST(MoeExpertsTest, EveryBitIsTheDefinitions) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t width : {12, 24, 33}) {
    for (const bool shared : {false, true}) {
      Experts experts(random, DType::kBF16, 9, 3, 36, width, width + 8, 20);
      std::vector<float> got;
      const std::vector<float> want = Definition(experts.Args(0, 20, got, shared));
      ForEveryIsaAndThreadCount([&](StreamView stream) {
        ASSERT_TRUE(cpu::MoeExperts(experts.Args(0, 20, got, shared), stream).ok());
        EXPECT_TRUE(SameBits(got, want)) << "width " << width;
      });
    }
  }
}

// Weights of rank `rank`: rows of gate and up, columns of down.
struct RankWeights {
  RankWeights(const ExpertWeights& full, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t c = 0; c < full.gate.columns; ++c) {
        gate.push_back(WeightElement(full.gate, i, c));
        up.push_back(WeightElement(full.up, i, c));
      }
    }
    for (int64_t n = 0; n < full.down.rows; ++n) {
      for (int64_t i = begin; i < end; ++i) {
        down.push_back(WeightElement(full.down, n, i));
      }
    }
    view = {{gate.data(), DType::kF32, end - begin, full.gate.columns},
            {up.data(), DType::kF32, end - begin, full.up.columns},
            {down.data(), DType::kF32, full.down.rows, end - begin}};
  }
  std::vector<float> gate, up, down;
  ExpertWeights view;
};

TEST(MoeExpertsTest, RanksJoinToTheSameBits) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t width : {24, 33}) {
    Experts experts(random, DType::kBF16, 5, 2, 20, width, 16, 7);
    std::vector<float> whole, part;
    MoeExpertsArgs full = experts.Args(0, 7, whole, true);
    ThreadPool pool(2);
    ASSERT_TRUE(cpu::MoeExperts(full, {.threads = &pool}).ok());
    for (const int ranks : {2, 4, 8}) {
      const int count = 8 / ranks;
      std::vector<std::vector<float>> parts;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto cut = [&](const ExpertWeights& weights, int64_t inputs) {
          return std::make_unique<RankWeights>(weights, SegmentBegin(inputs, rank * count),
                                               SegmentBegin(inputs, (rank + 1) * count));
        };
        std::vector<std::unique_ptr<RankWeights>> slices;
        std::vector<ExpertWeights> views;
        for (int64_t e = 0; e < full.experts.size; ++e) {
          slices.push_back(cut(full.experts[e], full.full_width));
          views.push_back(slices.back()->view);
        }
        slices.push_back(cut(*full.shared, full.full_shared_width));
        MoeExpertsArgs args = experts.Args(0, 7, part, true);
        args.experts = {views.data(), full.experts.size};
        args.weight_dtype = DType::kF32;
        args.width = views[0].gate.rows;
        args.shared = &slices.back()->view;
        args.first_segment = rank * count;
        args.segment_count = count;
        ASSERT_TRUE(cpu::MoeExperts(args, {.threads = &pool}).ok());
        parts.push_back(part);
      }
      for (size_t i = 0; i < whole.size(); ++i) {
        std::vector<float> sums;
        for (const std::vector<float>& rank : parts) {
          sums.push_back(rank[i]);
        }
        part[i] = JoinNeighbours(sums.data(), ranks);
      }
      EXPECT_TRUE(SameBits(part, whole)) << ranks << " ranks, width " << width;
    }
  }
}

TEST(MoeExpertsTest, ARowHasTheSameBitsAloneAndAmongOthers) {
  Random random;
  SCOPED_TRACE(random.seed());
  Experts experts(random, DType::kBF16, 16, 4, 64, 24, 24, 65);
  ForEveryIsaAndThreadCount([&](StreamView stream) {
    std::vector<float> all, some;
    ASSERT_TRUE(cpu::MoeExperts(experts.Args(0, 65, all, true), stream).ok());
    for (const int64_t count : {1, 2, 7, 17}) {
      ASSERT_TRUE(cpu::MoeExperts(experts.Args(9, count, some, true), stream).ok());
      EXPECT_TRUE(
          SameBits(some, {all.data() + 9 * experts.hidden(), static_cast<size_t>(count * experts.hidden())}));
    }
  });
}

TEST(MoeExpertsTest, PaddingRowsAreZeroAndTheOthersAsWithoutThem) {
  Random random;
  SCOPED_TRACE(random.seed());
  Experts experts(random, DType::kBF16, 6, 2, 24, 16, 16, 9);
  ForEveryIsaAndThreadCount([&](StreamView stream) {
    for (const int32_t live : {0, 1, 5, 9, 12}) {
      const int64_t rows = std::min(live, 9);
      std::vector<float> alone, padded, oracle;
      if (rows > 0) {
        ASSERT_TRUE(cpu::MoeExperts(experts.Args(0, rows, alone, true), stream).ok());
      }
      alone.resize(9 * experts.hidden(), 0.0f);
      MoeExpertsArgs args = experts.Args(0, 9, padded, true);
      std::vector<int32_t> ids(args.expert.data, args.expert.data + 9 * 2);
      std::fill(ids.begin() + rows * 2, ids.end(), 77);  // no expert of that id
      args.expert.data = ids.data();
      args.live_rows = &live;
      ASSERT_TRUE(cpu::MoeExperts(args, stream).ok());
      EXPECT_TRUE(SameBits(padded, alone)) << live;
      oracle = Poisoned(9 * experts.hidden());
      args.out.data = oracle.data();
      ASSERT_TRUE(reference::MoeExperts(args, {}).ok());
      EXPECT_TRUE(Close(oracle, alone, 5e-6)) << live;
    }
  });
}

TEST(MoeExpertsTest, WrongArgumentsAreNamed) {
  Random random;
  Experts experts(random, DType::kF32, 4, 2, 8, 8, 8, 2);
  std::vector<float> out;
  MoeExpertsArgs args = experts.Args(0, 2, out, true);
  args.segment_count = 5;
  EXPECT_EQ(ValidateMoeExperts(args).message(), "segment_count=5, expected 1, 2, 4 or 8");
  args = experts.Args(0, 2, out, true);
  args.full_width = 16;
  EXPECT_EQ(ValidateMoeExperts(args).message(), "width=8, expected 16, this rank's part of 16");
  args.width = 16;
  EXPECT_EQ(
      ValidateMoeExperts(args).message(),
      "experts[0].gate=[8, 8] of type 0, up=[8, 8] of type 0, down=[8, 8] of type 0, expected [16, 8] twice "
      "and [8, 16] of type 0");
  args = experts.Args(0, 2, out, true);
  const std::vector<int32_t> twice = {1, 1, 0, 2};
  args.expert.data = twice.data();
  EXPECT_EQ(ValidateMoeExperts(args).message(), "expert[0, 1]=1, expected ascending ids in [0, 4)");
  args = experts.Args(0, 2, out, true);
  std::vector<ExpertWeights> absent(args.experts.data, args.experts.data + args.experts.size);
  absent[args.expert.data[0]].gate.data = nullptr;
  args.experts = {absent.data(), args.experts.size};
  EXPECT_NE(ValidateMoeExperts(args).message().find("expected an expert with weights"),
            absl::string_view::npos);
  args = experts.Args(0, 2, out, true);
  args.scratch.size = 1;
  EXPECT_NE(ValidateMoeExperts(args).message().find("scratch.size=1, expected at least"),
            absl::string_view::npos);
}

}  // namespace
}  // namespace arborist::kernels
