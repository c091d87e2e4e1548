#include "common/threads/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace arborist {
namespace {

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int times = 0;
};

// What every worker was given.
std::vector<Range> RangesOf(ThreadPool& pool, int64_t count, int64_t grain) {
  std::vector<Range> ranges(static_cast<size_t>(pool.threads()));
  pool.ParallelFor(count, grain, [&](int64_t begin, int64_t end, int worker) {
    Range& mine = ranges.at(static_cast<size_t>(worker));
    mine = {begin, end, mine.times + 1};
  });
  return ranges;
}

TEST(ThreadPoolTest, RangesCoverEveryIndexOnceInWorkerOrder) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (const int64_t count : {1, 2, 3, 7, 64, 1000}) {
      for (const int64_t grain : {1, 2, 5, 100}) {
        int64_t next = 0;
        for (const Range& range : RangesOf(pool, count, grain)) {
          ASSERT_LE(range.times, 1);
          if (range.times == 1) {
            ASSERT_EQ(range.begin, next);
            next = range.end;
          }
        }
        ASSERT_EQ(next, count) << threads << " threads, grain " << grain;
      }
    }
  }
}

TEST(ThreadPoolTest, RangesHoldAtLeastTheGrainUnlessTheLoopIsSmaller) {
  ThreadPool pool(4);
  for (int64_t count = 1; count < 40; ++count) {
    for (int64_t grain = 1; grain < 12; ++grain) {
      for (const Range& range : RangesOf(pool, count, grain)) {
        if (range.times > 0) {
          ASSERT_GE(range.end - range.begin, std::min(count, grain)) << count << " indices, grain " << grain;
        }
      }
    }
  }
}

TEST(ThreadPoolTest, AllThreadsTakePartInALongLoop) {
  ThreadPool pool(3);
  std::vector<std::thread::id> ids(3);
  std::atomic<int> started{0};
  pool.ParallelFor(3, 1, [&](int64_t, int64_t, int worker) {
    ids.at(static_cast<size_t>(worker)) = std::this_thread::get_id();
    ++started;
    while (started < 3) {  // returns only once all three run at the same time
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_NE(ids[1], ids[0]);
  EXPECT_NE(ids[2], ids[0]);
  EXPECT_NE(ids[2], ids[1]);
}

TEST(ThreadPoolTest, TheCallerRunsPartsThatASleepingWorkerHasNotStarted) {
  ThreadPool pool(2);
  int by_caller = 0;
  for (int loop = 0; loop < 200; ++loop) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    std::thread::id id;
    pool.ParallelFor(2, 1, [&](int64_t, int64_t, int worker) {
      if (worker == 1) {
        id = std::this_thread::get_id();
      }
    });
    by_caller += id == std::this_thread::get_id();
  }
  EXPECT_GT(by_caller, 0);  // waking takes microseconds, the caller's own part none
}

TEST(ThreadPoolTest, ALoopBelowTwoGrainsStaysOnTheCaller) {
  ThreadPool pool(3);
  std::thread::id id;
  pool.ParallelFor(9, 5, [&](int64_t begin, int64_t end, int worker) {
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 9);
    EXPECT_EQ(worker, 0);
    id = std::this_thread::get_id();
  });
  EXPECT_EQ(id, std::this_thread::get_id());
}

TEST(ThreadPoolTest, AnEmptyLoopCallsNothing) {
  ThreadPool pool(2);
  pool.ParallelFor(0, 1, [](int64_t, int64_t, int) { FAIL() << "nothing to do"; });
}

// Plain memory written by workers and read by the caller, loop after loop: a lost wake-up hangs, a lost or
// early part shows in the sum (and under the thread sanitizer as a race).
TEST(ThreadPoolTest, ManyLoopsOfChangingSizeLoseNoPart) {
  for (const int threads : {2, 3, 6}) {
    ThreadPool pool(threads);
    std::vector<int64_t> cell(64, 0);
    std::vector<int64_t> want(64, 0);
    for (int64_t loop = 0; loop < 3000; ++loop) {
      const int64_t count = 1 + loop % 64;
      pool.ParallelFor(count, 1 + loop % 3, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          cell[static_cast<size_t>(i)] += loop;
        }
      });
      for (int64_t i = 0; i < count; ++i) {
        want[static_cast<size_t>(i)] += loop;
      }
      ASSERT_EQ(cell, want) << "loop " << loop;
    }
  }
}

TEST(ThreadPoolTest, SleepingWorkersWakeForTheNextLoop) {
  ThreadPool pool(3);
  std::atomic<int> parts{0};
  for (int loop = 0; loop < 50; ++loop) {
    // Longer than a worker spins; a little longer each time, so that some calls fall into the falling asleep.
    std::this_thread::sleep_for(std::chrono::microseconds(10 + 20 * loop));
    pool.ParallelFor(3, 1, [&](int64_t, int64_t, int) { ++parts; });
  }
  EXPECT_EQ(parts, 150);
}

TEST(ThreadPoolTest, TheCallerSleepsUntilASlowWorkerIsDone) {
  ThreadPool pool(2);
  int64_t done = 0;
  for (int loop = 0; loop < 5; ++loop) {
    pool.ParallelFor(2, 1, [&](int64_t, int64_t, int worker) {
      if (worker == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        ++done;
      }
    });
  }
  EXPECT_EQ(done, 5);
}

TEST(ThreadPoolTest, APoolEndsWhetherItsWorkersNeverRanSpinOrSleep) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool unused(3);
    ThreadPool used(3);
    used.ParallelFor(3, 1, [](int64_t, int64_t, int) {});
    if (i % 10 == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

TEST(ThreadPoolDeathTest, WrongUseIsOurBug) {
  EXPECT_DEATH(ThreadPool(0), "at least the calling thread");
  ThreadPool pool(1);
  EXPECT_DEATH(pool.ParallelFor(1, 0, [](int64_t, int64_t, int) {}), "grain >= 1");
  EXPECT_DEATH(pool.ParallelFor(-1, 1, [](int64_t, int64_t, int) {}), "count >= 0");
}

}  // namespace
}  // namespace arborist
