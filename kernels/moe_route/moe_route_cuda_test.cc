#include <algorithm>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/moe_route/moe_route.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/testing/random_tensor.h"
#include "kernels/testing/small_shapes.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

struct Case {
  int experts, groups, kept, top_k;
  RouteScoring scoring;
  RouteGroupScore group_score;
  bool bias, normalize;
};
constexpr RouteScoring kSigmoid = RouteScoring::kSigmoid;
constexpr RouteScoring kSoftmax = RouteScoring::kSoftmax;
constexpr RouteGroupScore kTopTwoSum = RouteGroupScore::kTopTwoSum;
constexpr RouteGroupScore kMax = RouteGroupScore::kMax;
constexpr Case kCases[] = {
    {1, 1, 1, 1, kSigmoid, kTopTwoSum, false, true},    {16, 1, 1, 4, kSigmoid, kTopTwoSum, true, true},
    {64, 8, 4, 8, kSigmoid, kTopTwoSum, true, true},    {65, 5, 2, 7, kSigmoid, kTopTwoSum, true, true},
    {256, 8, 4, 8, kSigmoid, kTopTwoSum, true, true},   {384, 1, 1, 8, kSigmoid, kTopTwoSum, true, true},
    {64, 1, 1, 6, kSoftmax, kMax, false, false},        {160, 8, 3, 6, kSoftmax, kMax, false, false},
    {40, 8, 3, 6, kSoftmax, kMax, false, true},         {6, 6, 2, 2, kSigmoid, kTopTwoSum, true, false},
    {37, 1, 1, 37, kSoftmax, kMax, false, true},        {385, 77, 9, 40, kSigmoid, kMax, true, true},
    {1024, 64, 7, 8, kSigmoid, kTopTwoSum, true, true}, {1000, 1, 1, 50, kSoftmax, kMax, true, true},
};

struct Routes {
  std::vector<int32_t> expert;
  std::vector<float> weight;
};

class MoeRouteCudaTest : public CudaTest {
 protected:
  Routes OnCuda(const Case& c, const std::vector<float>& logits, const std::vector<float>& bias,
                int64_t rows) {
    DeviceArray<float> device_logits(logits), device_bias(bias), weight(rows * c.top_k);
    DeviceArray<int32_t> expert(rows * c.top_k);
    MoeRouteArgs args = Args(c);
    args.logits = device_logits.const_view(rows, c.experts);
    args.bias = device_bias.const_view();
    args.expert = expert.view(rows, c.top_k);
    args.weight = weight.view(rows, c.top_k);
    EXPECT_TRUE(cuda::MoeRoute(args, stream()).ok());
    Finish();
    return {expert.Read(), weight.Read()};
  }

  template <typename Kernel>
  static Routes OnHost(Kernel kernel, const Case& c, const std::vector<float>& logits,
                       const std::vector<float>& bias, int64_t rows) {
    Routes routes{std::vector<int32_t>(rows * c.top_k, -1), Poisoned(rows * c.top_k)};
    ThreadPool pool(1);
    MoeRouteArgs args = Args(c);
    args.logits = AsConstView(logits, rows, c.experts);
    args.bias = {bias.data(), static_cast<int64_t>(bias.size())};
    args.expert = {routes.expert.data(), rows, c.top_k, c.top_k};
    args.weight = AsView(routes.weight, rows, c.top_k);
    EXPECT_TRUE(kernel(args, {.threads = &pool}).ok());
    return routes;
  }

 private:
  static MoeRouteArgs Args(const Case& c) {
    MoeRouteArgs args;
    args.scoring = c.scoring;
    args.group_score = c.group_score;
    args.groups = c.groups;
    args.kept_groups = c.kept;
    args.top_k = c.top_k;
    args.normalize = c.normalize;
    args.scaling = 2.5f;
    return args;
  }
};

// Exact, because the steps and their order are the CPU version's, and exp is the same text on both. The
// oracle computes in double: it may only choose otherwise where two fp32 choices are equal, which random
// logits of so few rows do not give.
TEST_F(MoeRouteCudaTest, EveryMethodGivesTheOraclesExpertsAndTheCpusBits) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const Case& c : Thinned(kCases, 6)) {
    SCOPED_TRACE(c.experts);
    for (const int64_t rows : Thinned({0, 1, 3, Small(65, 9), Small(300, 33)}, 3)) {
      const std::vector<float> logits = random.Normals(rows * c.experts, 2.0f);
      const std::vector<float> bias = random.Normals(c.bias ? c.experts : 0, 1.0f);
      const Routes got = OnCuda(c, logits, bias, rows);
      const Routes cpu = OnHost(cpu::MoeRoute, c, logits, bias, rows);
      EXPECT_EQ(got.expert, cpu.expert);
      EXPECT_TRUE(SameBits(got.weight, cpu.weight));
      if (rows <= 65 && c.experts < 1000) {
        EXPECT_EQ(got.expert, OnHost(reference::MoeRoute, c, logits, bias, rows).expert);
      }
    }
  }
}

TEST_F(MoeRouteCudaTest, EqualChoicesGoToTheLowerIdAsOnTheCpu) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const Case& c : Thinned(kCases, 6)) {
    std::vector<float> logits(33 * c.experts);
    for (float& logit : logits) {  // five values, zeros of both signs among them
      logit = 0.5f * static_cast<float>(random.Uniform(-2, 2)) * (random.Uniform(0, 1) == 0 ? 1.0f : -1.0f);
    }
    const std::vector<float> bias(c.bias ? c.experts : 0, -0.0f);
    const Routes got = OnCuda(c, logits, bias, 33);
    const Routes cpu = OnHost(cpu::MoeRoute, c, logits, bias, 33);
    EXPECT_EQ(got.expert, cpu.expert);
    EXPECT_TRUE(SameBits(got.weight, cpu.weight));
  }
}

TEST_F(MoeRouteCudaTest, RowsWithoutAnyUsableChoiceNameExpertsThatExist) {
  for (const Case& c : Thinned(kCases, 6)) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      const std::vector<float> logits(2 * c.experts, bad);
      const std::vector<float> bias(c.bias ? c.experts : 0, bad);
      for (const int32_t id : OnCuda(c, logits, bias, 2).expert) {
        EXPECT_TRUE(id >= 0 && id < c.experts) << id;
      }
    }
  }
}

TEST_F(MoeRouteCudaTest, ARowHasTheSameBitsAloneAndAmongOthers) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const Case& c : Thinned(kCases, 6)) {
    const std::vector<float> logits = random.Normals(70 * c.experts, 2.0f);
    const std::vector<float> bias = random.Normals(c.bias ? c.experts : 0, 1.0f);
    const Routes all = OnCuda(c, logits, bias, 70);
    for (const int64_t row : {0, 31, 69}) {
      const Routes one =
          OnCuda(c, {logits.begin() + row * c.experts, logits.begin() + (row + 1) * c.experts}, bias, 1);
      EXPECT_TRUE(std::equal(one.expert.begin(), one.expert.end(), all.expert.begin() + row * c.top_k));
      EXPECT_TRUE(SameBits(one.weight, {all.weight.data() + row * c.top_k, static_cast<size_t>(c.top_k)}));
    }
  }
}

}  // namespace
}  // namespace arborist::kernels
