#include "kernels/moe_route/moe_route.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/random_tensor.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

struct Case {
  int experts, groups, kept, top_k;
  RouteScoring scoring;
  RouteGroupScore group_score;
  bool bias, normalize;
};
constexpr Case kCases[] = {
    {16, 1, 1, 4, RouteScoring::kSigmoid, RouteGroupScore::kTopTwoSum, true, true},
    {64, 8, 4, 8, RouteScoring::kSigmoid, RouteGroupScore::kTopTwoSum, true, true},
    {384, 1, 1, 8, RouteScoring::kSigmoid, RouteGroupScore::kTopTwoSum, true, true},
    {64, 1, 1, 6, RouteScoring::kSoftmax, RouteGroupScore::kMax, false, false},
    {40, 8, 3, 6, RouteScoring::kSoftmax, RouteGroupScore::kMax, false, false},
    {6, 6, 2, 2, RouteScoring::kSigmoid, RouteGroupScore::kTopTwoSum, true, false},
    {5, 1, 1, 5, RouteScoring::kSoftmax, RouteGroupScore::kMax, false, true},
};

TEST(MoeRouteTest, EveryMethodChoosesTheOraclesExpertsAndWeighsThemAlike) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const Case& c : kCases) {
    for (const int64_t rows : {1, 3, 65}) {
      const std::vector<float> logits = random.Normals(rows * c.experts, 2.0f);
      // Biases on both sides of zero: a masked group must lose to a negative choice too.
      const std::vector<float> bias = random.Normals(c.bias ? c.experts : 0, 1.0f);
      const auto run = [&](auto kernel, StreamView stream, std::vector<int32_t>& expert,
                           std::vector<float>& weight) {
        expert.assign(rows * c.top_k, -1);
        weight = Poisoned(rows * c.top_k);
        ASSERT_TRUE(kernel({AsConstView(logits, rows, c.experts),
                            {bias.data(), static_cast<int64_t>(bias.size())},
                            c.scoring,
                            c.group_score,
                            c.groups,
                            c.kept,
                            c.top_k,
                            c.normalize,
                            2.5f,
                            {expert.data(), rows, c.top_k, c.top_k},
                            AsView(weight, rows, c.top_k)},
                           stream)
                        .ok());
      };
      std::vector<int32_t> want_expert, expert;
      std::vector<float> want_weight, weight, first;
      run(reference::MoeRoute, {}, want_expert, want_weight);
      ForEveryIsaAndThreadCount([&](StreamView stream) {
        run(cpu::MoeRoute, stream, expert, weight);
        EXPECT_EQ(expert, want_expert);
        EXPECT_TRUE(Close(weight, want_weight, 2e-6));
        first = first.empty() ? weight : first;
        EXPECT_TRUE(SameBits(weight, first));
      });
    }
  }
}

TEST(MoeRouteTest, EqualChoicesGoToTheLowerIdAndTheOutputIsAscending) {
  const std::vector<float> logits = {0.5f, 2.0f, 2.0f, 2.0f, 0.5f};
  std::vector<int32_t> expert(3, -1);
  std::vector<float> weight = Poisoned(3);
  ThreadPool pool(1);
  MoeRouteArgs args{.logits = AsConstView(logits, 1, 5),
                    .top_k = 2,
                    .scaling = 1,
                    .expert = {expert.data(), 1, 2, 2},
                    .weight = {weight.data(), 1, 2, 2}};
  ASSERT_TRUE(cpu::MoeRoute(args, {.threads = &pool}).ok());
  EXPECT_EQ(expert, (std::vector<int32_t>{1, 2, -1}));
}

TEST(MoeRouteTest, TheBiasChoosesButDoesNotWeigh) {
  const std::vector<float> logits = {3.0f, 0.0f};
  const std::vector<float> bias = {-10.0f, 0.0f};
  std::vector<int32_t> expert(1, -1);
  std::vector<float> weight = Poisoned(1);
  ThreadPool pool(1);
  MoeRouteArgs args{.logits = AsConstView(logits, 1, 2),
                    .bias = {bias.data(), 2},
                    .top_k = 1,
                    .scaling = 2,
                    .expert = {expert.data(), 1, 1, 1},
                    .weight = {weight.data(), 1, 1, 1}};
  ASSERT_TRUE(cpu::MoeRoute(args, {.threads = &pool}).ok());
  EXPECT_EQ(expert[0], 1);
  EXPECT_FLOAT_EQ(weight[0], 1.0f);  // sigmoid(0) * 2
}

TEST(MoeRouteTest, WrongArgumentsAreNamed) {
  std::vector<float> data(100);
  std::vector<int32_t> expert(10);
  MoeRouteArgs args{.logits = AsConstView(data, 1, 10),
                    .groups = 3,
                    .top_k = 2,
                    .expert = {expert.data(), 1, 2, 2},
                    .weight = AsView(data, 1, 2)};
  EXPECT_EQ(ValidateMoeRoute(args).message(), "groups=3, expected a divisor of 10");
  args.groups = 5;
  args.kept_groups = 6;
  EXPECT_EQ(ValidateMoeRoute(args).message(), "kept_groups=6, expected 1 to 5");
  args.kept_groups = 1;
  args.top_k = 3;
  EXPECT_EQ(ValidateMoeRoute(args).message(), "top_k=3, expected 1 to 2");
  args.top_k = 2;
  args.bias = {data.data(), 9};
  EXPECT_EQ(ValidateMoeRoute(args).message(), "bias.size=9, expected 0 or 10");
}

}  // namespace
}  // namespace arborist::kernels
