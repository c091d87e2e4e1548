#include "verifier/admission_order.h"

#include <gtest/gtest.h>

#include <chrono>

namespace arborist::verifier {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Sequence Queued(SequenceHandle handle, int priority, std::chrono::steady_clock::duration opened) {
  Sequence sequence;
  sequence.handle = handle;
  sequence.args.priority = priority;
  sequence.opened = std::chrono::steady_clock::time_point(opened);
  return sequence;
}

bool Before(const Sequence& a, const Sequence& b) {
  EXPECT_FALSE(AdmittedBefore(a, b) && AdmittedBefore(b, a));
  return AdmittedBefore(a, b);
}

TEST(AdmissionOrderTest, EqualPrioritiesAreFirstComeFirstServed) {
  for (const int priority : {-100, 0, 100}) {
    EXPECT_TRUE(Before(Queued(2, priority, seconds(5)), Queued(1, priority, milliseconds(5001))));
    EXPECT_TRUE(Before(Queued(1, priority, seconds(5)), Queued(2, priority, seconds(5))));
    EXPECT_FALSE(Before(Queued(1, priority, seconds(5)), Queued(1, priority, seconds(5))));
  }
}

TEST(AdmissionOrderTest, ALargerPriorityPassesThoseThatWaitForAsManySecondsButNotLonger) {
  const Sequence waits = Queued(1, 0, seconds(500));
  EXPECT_TRUE(Before(Queued(2, 1, milliseconds(500999)), waits));
  EXPECT_TRUE(Before(waits, Queued(2, 1, milliseconds(501001))));
  EXPECT_TRUE(Before(Queued(2, 100, milliseconds(599999)), waits));
  EXPECT_TRUE(Before(waits, Queued(2, 100, milliseconds(600001))));
}

TEST(AdmissionOrderTest, TheLowestIsPassedByTheHighestForTwoHundredSecondsAtMost) {
  const Sequence waits = Queued(1, -100, seconds(500));
  EXPECT_TRUE(Before(Queued(2, 100, milliseconds(699999)), waits));
  EXPECT_TRUE(Before(waits, Queued(2, 100, milliseconds(700001))));
}

}  // namespace
}  // namespace arborist::verifier
