#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/block_attention_gqa/block_attention_gqa.h"
#include "kernels/block_attention_gqa/gqa_case.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/testing/small_shapes.h"

namespace arborist::kernels {
namespace {

using gqa::Case;
using gqa::Layer;
using gqa::RandomCase;
using testing::DeviceArray;

// Scores are dots of up to 256 products with a standard deviation of 4, so a rounding of the score moves a
// weight by about 1e-6 of itself; weights sum to 1 and values are below 5.
constexpr double kTolerance = 1e-5;

class BlockAttentionGqaCudaTest : public testing::CudaTest {
 protected:
  // A case on the device; scratch is used again by every call, as a graph does.
  struct OnDevice {
    explicit OnDevice(const Case& c)
        : query(c.query),
          context_key(c.context_key),
          context_value(c.context_value),
          block_key(c.block_key),
          block_value(c.block_value),
          context_first(c.context_first),
          context_rows(c.context_rows),
          context_begin(c.context_begin),
          block_begin(c.block_begin),
          block_end(c.block_end),
          out(c.rows() * c.heads * c.head_dim) {}

    BlockAttentionGqaArgs Args(const Case& c) const {
      std::vector<float> unused;
      BlockAttentionGqaArgs args = c.Args(unused);
      args.query.data = query.data();
      args.context_key = context_key.data();
      args.context_value = context_value.data();
      args.block_key.data = block_key.data();
      args.block_value.data = block_value.data();
      args.context_first.data = context_first.data();
      args.context_rows.data = context_rows.data();
      args.context_begin.data = context_begin.data();
      args.block_begin.data = block_begin.data();
      args.block_end.data = block_end.data();
      args.out.data = out.data();
      return args;
    }

    DeviceArray<float> query, context_key, context_value, block_key, block_value;
    DeviceArray<int32_t> context_first, context_rows, context_begin, block_begin, block_end;
    DeviceArray<float> out;
  };

  std::vector<float> Run(const Case& c) {
    const OnDevice device(c);
    BlockAttentionGqaArgs args = device.Args(c);
    args.scratch_bytes = BlockAttentionGqaScratchBytes(args);
    const DeviceArray<uint8_t> scratch(std::vector<uint8_t>(args.scratch_bytes, 0));
    args.scratch = scratch.data();
    std::vector<float> first;
    for (int call = 0; call < 2; ++call) {  // the second finds the scratch as the first left it
      const absl::Status status = cuda::BlockAttentionGqa(args, stream());
      EXPECT_TRUE(status.ok()) << status;
      Finish();
      const std::vector<float> out = device.out.Read();
      if (call == 0) {
        first = out;
      } else {
        EXPECT_TRUE(testing::SameBits(out, first)) << "a second call differs";
      }
    }
    return first;
  }
};

std::vector<float> Oracle(const Case& c) {
  ThreadPool pool(1);
  std::vector<float> out;
  EXPECT_TRUE(reference::BlockAttentionGqa(c.Args(out), {.threads = &pool}).ok());
  return out;
}

std::vector<Case> ManyCases() {
  std::vector<Case> cases;
  for (const Layer layer : {Layer::kFull, Layer::kCausalWindow, Layer::kRandomRanges}) {
    for (const int64_t context : {0, 1, 63, 64, 65, 200, 1000}) {
      cases.push_back(RandomCase(8, 8, 4, 32, context, layer));
      cases.push_back(RandomCase(8, 8, 4, 32, context, layer, 5));
      cases.push_back(RandomCase(1, 4, 4, 7, context, layer));
      cases.push_back(RandomCase(16, 6, 1, 100, context, layer));
      cases.push_back(RandomCase(3, 80, 2, 16, context, layer, 2));
      cases.push_back(RandomCase(33, 3, 3, 256, context, layer));
      cases.push_back(RandomCase(64, 2, 1, 128, context, layer, 2));
    }
  }
  cases.push_back(RandomCase(8, 8, 4, 32, 4096, Layer::kFull, 3));
  return testing::Thinned(cases, 12);
}

TEST_F(BlockAttentionGqaCudaTest, EqualsPlainSoftmaxOverEachQuerysRanges) {
  for (const Case& c : ManyCases()) {
    const std::vector<float> got = Run(c), want = Oracle(c);
    ASSERT_TRUE(testing::Close(got, want, kTolerance))
        << "block " << c.block << " head_dim " << c.head_dim << " context " << c.context;
  }
}

TEST_F(BlockAttentionGqaCudaTest, AStreamIsTheSameAloneAndAmongOthers) {
  for (const int64_t context : testing::Thinned({0, 70, 500}, 2)) {
    const Case c = RandomCase(8, 8, 4, 32, context, Layer::kRandomRanges, testing::Small(40, 8));
    const std::vector<float> together = Run(c);
    for (const int64_t s : {int64_t{0}, int64_t{7}, c.streams() - 1}) {
      Case one = c.Alone(s);
      one.context = 4096;  // another launch: more chunks may come
      const std::vector<float> alone = Run(one);
      const auto size = static_cast<int64_t>(alone.size());
      EXPECT_TRUE(testing::SameBits(alone, {together.data() + s * size, alone.size()})) << "stream " << s;
    }
  }
}

TEST_F(BlockAttentionGqaCudaTest, OtherQueriesOfTheBlockChangeNoBit) {
  const Case c = RandomCase(8, 8, 2, 32, 300, Layer::kRandomRanges);
  Case narrowed = c;
  for (int64_t i = 1; i < c.block; ++i) {
    narrowed.NarrowToItself(i);
  }
  const std::vector<float> expected = Run(c), got = Run(narrowed);
  const size_t row = c.heads * c.head_dim;
  EXPECT_TRUE(testing::SameBits({got.data(), row}, {expected.data(), row}));
}

TEST_F(BlockAttentionGqaCudaTest, WhatNoQuerySeesMayBeNaN) {
  Case c = RandomCase(8, 4, 2, 16, 100, Layer::kCausalWindow);
  const std::vector<float> want = Oracle(c);
  c.ForbidUnseenRows();
  EXPECT_TRUE(testing::Close(Run(c), want, kTolerance));
}

TEST_F(BlockAttentionGqaCudaTest, FewerStreamsUseTheSameScratch) {
  const Case many = RandomCase(8, 8, 4, 32, 200, Layer::kFull, 6);
  Case few = RandomCase(8, 8, 4, 32, 200, Layer::kFull, 2);
  const OnDevice a(many), b(few);
  BlockAttentionGqaArgs first = a.Args(many), second = b.Args(few);
  first.scratch_bytes = second.scratch_bytes = BlockAttentionGqaScratchBytes(first);
  const DeviceArray<uint8_t> scratch(std::vector<uint8_t>(first.scratch_bytes, 0));
  first.scratch = second.scratch = scratch.data();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(cuda::BlockAttentionGqa(first, stream()).ok());
    ASSERT_TRUE(cuda::BlockAttentionGqa(second, stream()).ok());
    Finish();
    EXPECT_TRUE(testing::Close(a.out.Read(), Oracle(many), kTolerance));
    EXPECT_TRUE(testing::Close(b.out.Read(), Oracle(few), kTolerance));
  }
}

TEST_F(BlockAttentionGqaCudaTest, RangesOutOfBoundsStayInMemory) {
  Case c = RandomCase(8, 8, 4, 32, 100, Layer::kFull, 3);
  c.context_first = {-5, 1 << 30, 2};
  c.context_rows = {1 << 30, 50, -7};
  c.context_begin[3] = -9;
  c.block_begin[4] = -1;
  c.block_end[5] = 1000;
  Run(c);  // guards and the sanitizer watch
}

TEST_F(BlockAttentionGqaCudaTest, NoStreamsAreFine) {
  EXPECT_TRUE(Run(RandomCase(8, 8, 4, 32, 100, Layer::kFull, 0)).empty());
}

TEST_F(BlockAttentionGqaCudaTest, TooLittleScratchIsRefused) {
  const Case c = RandomCase(8, 8, 4, 32, 100, Layer::kFull);
  const OnDevice device(c);
  const absl::Status status = cuda::BlockAttentionGqa(device.Args(c), stream());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace arborist::kernels
