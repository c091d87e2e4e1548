#pragma once

#include <algorithm>
#include <optional>

#include "drafter/speculation_loop.h"
#include "drafter/verifier_stream.h"

namespace arborist::drafter {

// Splits the time of one sequence into draft, verify, wire, queue and prefill.
class RoundClock {
 public:
  // A sign of life during admission and prefill.
  void Opening(bool queued, Clock::time_point now) {
    const double passed = Seconds(now - opening_mark_);
    (was_queued_ ? seconds_.queue : seconds_.prefill) += passed;
    was_queued_ = queued;
    opening_mark_ = now;
  }

  void BeginDraft() { draft_begin_ = Clock::now(); }
  double EndDraft() {
    const double passed = Seconds(Clock::now() - draft_begin_);
    seconds_.draft += passed;
    return passed;
  }

  // Before the call: the answer may come while it runs.
  void Sending() { sent_ = Clock::now(); }

  double SinceSending(Clock::time_point received) const { return Seconds(received - sent_); }

  // Of the tokens that came at `received`; what the verifier did not use of the time since the sending (or
  // the previous tokens) was the wire's. Starts anew.
  RoundSeconds Take(double queue_seconds, double verify_seconds, Clock::time_point received) {
    seconds_.queue += queue_seconds;
    seconds_.verify += verify_seconds;
    seconds_.wire += std::max(0.0, Seconds(received - sent_) - queue_seconds - verify_seconds);
    sent_ = received;
    const RoundSeconds taken = seconds_;
    seconds_ = {};
    return taken;
  }

 private:
  static double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

  RoundSeconds seconds_;
  Clock::time_point opening_mark_ = Clock::now();
  bool was_queued_ = true;
  Clock::time_point draft_begin_;
  Clock::time_point sent_;
};

}  // namespace arborist::drafter
