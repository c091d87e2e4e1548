#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "verifier/testing/lifecycle_support.h"

namespace arborist::verifier {
namespace {

// Keeps whoever tells it of tokens until another thread does so too.
class MeetingPoint {
 public:
  void Come() {
    std::unique_lock lock(mutex_);
    ++visits_;
    threads_.insert(std::this_thread::get_id());
    changed_.notify_all();
    alone_ = alone_ || !changed_.wait_for(lock, std::chrono::seconds(20), [this] { return met_by_all(); });
  }
  int visits() {
    const std::lock_guard lock(mutex_);
    return visits_;
  }
  bool alone() {
    const std::lock_guard lock(mutex_);
    return alone_;
  }

 private:
  bool met_by_all() const { return alone_ || threads_.size() > 1; }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::thread::id> threads_;
  int visits_ = 0;
  bool alone_ = false;
};

class MeetingSink final : public SequenceSink {
 public:
  explicit MeetingSink(MeetingPoint& point) : point_(point) {}
  void OnProgress(ProgressState, int) override {}
  void OnPromptLogProbs(int32_t, std::vector<float>) override {}
  void OnReady(int) override {}
  void OnFeatures(int32_t, int32_t, std::vector<uint16_t>) override {}
  void OnCommitted(Committed) override { point_.Come(); }
  void OnClosed(absl::Status) override {}

 private:
  MeetingPoint& point_;
};

TEST(DeliveryTest, OfOneStepSeveralThreadsTellTheOwners) {
  constexpr int kSequences = 12;
  StepGate gate;
  MeetingPoint point;
  RecordingSink first;
  std::vector<MeetingSink> others(kSequences, MeetingSink(point));
  TestVerifierOptions options;
  options.verifier.max_sequences = kSequences + 1;
  options.verifier.deliverers = 2;
  options.before = gate.hook();
  TestVerifier verifier(std::move(options));
  const auto handle = verifier->Open(Request("first", 1), &first);
  ASSERT_TRUE(verifier->SubmitDecode(*handle, 1, 1).ok());
  gate.WaitArrived();
  for (int i = 0; i < kSequences; ++i) {  // all in the next step
    const auto other = verifier->Open(Request("r" + std::to_string(i), 1), &others[i]);
    ASSERT_TRUE(verifier->SubmitDecode(*other, 1, 1).ok());
  }
  gate.Open();
  ASSERT_TRUE(first.TakeCommitted().has_value());
  verifier.Destroy();  // tells what was computed
  EXPECT_EQ(point.visits(), kSequences);
  EXPECT_FALSE(point.alone());
}

TEST(DeliveryTest, WhoTellsTheOwnersChangesNothing) {
  constexpr int kSequences = 12;
  const auto decode_all = [](int deliverers) {
    TestVerifierOptions options;
    options.verifier.max_sequences = kSequences;
    options.verifier.deliverers = deliverers;
    TestVerifier verifier(std::move(options));
    std::vector<Decoded> decoded(kSequences);
    std::vector<std::thread> owners;
    for (int i = 0; i < kSequences; ++i) {
      owners.emplace_back(
          [&, i] { decoded[i] = DecodePlain(*verifier, Request("r" + std::to_string(i), 3 + i, 40)); });
    }
    for (std::thread& owner : owners) {
      owner.join();
    }
    ExpectAllPagesFree(verifier);
    return decoded;
  };
  const std::vector<Decoded> one = decode_all(1), several = decode_all(4);
  for (int i = 0; i < kSequences; ++i) {
    EXPECT_EQ(one[i].tokens.size(), 40u);
    EXPECT_EQ(several[i].tokens, one[i].tokens) << i;
    EXPECT_EQ(several[i].rounds, one[i].rounds) << i;
  }
}

}  // namespace
}  // namespace arborist::verifier
