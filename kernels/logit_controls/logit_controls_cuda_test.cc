#include <vector>

#include "gtest/gtest.h"
#include "kernels/logit_controls/control_cases.h"
#include "kernels/logit_controls/logit_controls.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/testing/random_tensor.h"
#include "kernels/testing/small_shapes.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

class LogitControlsCudaTest : public CudaTest {
 protected:
  std::vector<float> OnDevice(const ControlCase& c) {
    const DeviceArray<float> raw(c.raw), choice(c.rows() * c.stride);
    const DeviceArray<RowControls> row(c.row);
    const DeviceArray<SequenceControls> sequence(c.sequence);
    const DeviceArray<LogitEntry> entry(c.entry);
    const DeviceArray<uint32_t> mask(c.mask);
    LogitControlsArgs args = c.Args(choice.data());
    args.raw.data = raw.data();
    args.row.data = row.data();
    args.sequence.data = sequence.data();
    args.entry.data = entry.data();
    args.mask.data = mask.data();
    const absl::Status status = cuda::LogitControls(args, stream());
    EXPECT_TRUE(status.ok()) << status;
    Finish();
    return choice.Read();
  }
};

// DeviceArray poisons with 0xff bytes: the gaps of both sides hold the same NaN.
std::vector<float> OnHost(const ControlCase& c) {
  std::vector<float> choice(c.rows() * c.stride, std::bit_cast<float>(0xffffffffu));
  ThreadPool pool(2);
  const absl::Status status = cpu::LogitControls(c.Args(choice.data()), {.threads = &pool});
  EXPECT_TRUE(status.ok()) << status;
  return choice;
}

// The steps are the same scalar ones, each rounded by itself: equal bit for bit.
TEST_F(LogitControlsCudaTest, HasTheHostsBitsForEveryShapeAndLeavesGapsAlone) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t rows : {0, 1, 3, 33}) {
    for (const int64_t vocabulary :
         Thinned({1, 2, 31, 32, 33, 1000, 4095, 4096, 4097, 8192, 20011, 163840}, 4)) {
      for (const int64_t gap : {0, 3, 4}) {
        const ControlCase c = ControlCases(random).Draw(rows, vocabulary, gap);
        ASSERT_TRUE(SameBits(OnDevice(c), OnHost(c)))
            << rows << " rows, vocabulary " << vocabulary << ", gap " << gap;
      }
    }
  }
}

TEST_F(LogitControlsCudaTest, ARowIsTheSameBitsAloneAndAmongOthers) {
  Random random;
  SCOPED_TRACE(random.seed());
  const ControlCase c = ControlCases(random).Draw(Small(60, 5), Small(30000, 5000), 0);
  const std::vector<float> together = OnDevice(c);
  for (const int64_t r : {int64_t{0}, c.rows() / 2, c.rows() - 1}) {
    EXPECT_TRUE(
        SameBits(OnDevice(c.Alone(r)), std::span<const float>(together).subspan(r * c.stride, c.stride)));
  }
}

TEST_F(LogitControlsCudaTest, WrongContentsStayInBoundsAndSpareOtherRows) {
  Random random;
  SCOPED_TRACE(random.seed());
  const ControlCase good = ControlCases(random).Draw(4, 9000, 0);
  const std::vector<float> want = OnHost(good);
  const auto last = static_cast<int32_t>(good.entry.size());
  const RowControls wrong[] = {
      {.sequence = -2, .mask = -2, .entries = {-1, 5}},
      {.sequence = 1 << 30, .mask = 1 << 30, .entries = {0, 1 << 30}},
      {.sequence = -1, .mask = -1, .entries = {last, 1}},
      {.sequence = -1, .mask = -1, .entries = {0x7fffffff, 0x7fffffff}},
      {.sequence = -1, .mask = -1, .entries = {0, -1}},
  };
  for (const RowControls& row : wrong) {
    ControlCase c = good;
    c.row[1] = row;
    std::vector<float> expected = want;
    std::copy_n(good.raw.begin() + 9000, 9000, expected.begin() + 9000);
    EXPECT_TRUE(SameBits(OnDevice(c), expected));
  }
  // Tokens outside the vocabulary, out of order.
  ControlCase c = good;
  c.row[1] = {.sequence = -1, .mask = -1, .entries = {last, 6}};
  for (const int32_t token : {9000, -1, 1 << 30, -(1 << 30), 8999, 3}) {
    c.entry.push_back({.token = TokenId{token}});
  }
  const std::vector<float> got = OnDevice(c);
  for (const int64_t r : {0, 2, 3}) {
    EXPECT_TRUE(SameBits(std::span<const float>(got).subspan(r * 9000, 9000),
                         std::span<const float>(want).subspan(r * 9000, 9000)));
  }
}

}  // namespace
}  // namespace arborist::kernels
