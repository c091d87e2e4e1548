#include "drafter/draft_queue.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "common/device/device.h"
#include "common/threads/testing/cpu_seconds.h"
#include "drafter/model/testing/golden_drafter.h"
#include "kernels/backend.h"

namespace arborist::drafter {
namespace {

using Clock = std::chrono::steady_clock;
using arborist::testing::CpuSeconds;
using std::chrono::milliseconds;

// Takes the core that the test's thread runs on, as much of it as it gets.
class Rival {
 public:
  Rival() {
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    pthread_getaffinity_np(pthread_self(), sizeof(before_), &before_);
    pthread_setaffinity_np(pthread_self(), sizeof(here), &here);
    thread_ = std::thread([this] {  // on the same core: a thread inherits that
      while (!stop_.load(std::memory_order_relaxed)) {
      }
    });
  }
  ~Rival() {
    stop_ = true;
    thread_.join();
    pthread_setaffinity_np(pthread_self(), sizeof(before_), &before_);
  }

 private:
  cpu_set_t before_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class DraftQueueTest : public ::testing::Test {
 protected:
  static constexpr milliseconds kPatience{100};

  DraftQueueTest() {
    auto model = DFlashModel::Create(golden_.settings, golden_.weights, {}, kernels::CpuKernels(), *device_);
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    // On the CPU a round is one sequence's, and only one thread drafts here.
    DraftRoundOptions options;
    options.max_depth = 3;
    options.max_streams = 4;
    auto round = DraftRound::Create(options, *model_, kernels::CpuKernels());
    EXPECT_TRUE(round.ok()) << round.status();
    round_ = *std::move(round);
    queue_ = std::make_unique<DraftQueue>(*round_, GatherRule{.patience = kPatience}, nullptr);
  }

  void Draft(DraftQueue::Seat& seat) {
    DraftRequest request;
    request.args.nodes = 3;
    const absl::StatusOr<TokenTree> tree = queue_->Draft(request, seat);
    ASSERT_TRUE(tree.ok()) << tree.status();
    EXPECT_EQ(tree->nodes(), 4);
  }

  const testing::GoldenDrafter golden_{"full"};
  ThreadPool threads_{1};
  const std::unique_ptr<Device> device_ = OpenCpuDevice(threads_);
  std::unique_ptr<DFlashModel> model_;
  std::unique_ptr<DraftRound> round_;
  std::unique_ptr<DraftQueue> queue_;
};

TEST_F(DraftQueueTest, WhoWaitsForOthersLeavesItsCoreToWhoeverWantsIt) {
  DraftQueue::Seat first(*queue_), second(*queue_), third(*queue_);
  const auto waits = [&](double& cpu_seconds) {  // false: the machine was so busy that the others seem gone
    Draft(first);
    Draft(second);
    const Rival rival;
    const Clock::time_point begin = Clock::now();
    const double before = CpuSeconds();
    Draft(third);
    cpu_seconds = CpuSeconds() - before;
    return Clock::now() - begin >= kPatience;
  };
  double cpu_seconds = 0;
  int tries = 0;
  while (!waits(cpu_seconds)) {
    ASSERT_LT(++tries, 100);
  }
  EXPECT_LT(cpu_seconds, 0.025);  // to look all the time takes half of the patience
}

}  // namespace
}  // namespace arborist::drafter
