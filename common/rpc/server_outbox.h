#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "grpcpp/support/status.h"

namespace arborist {

// The one writer of a server stream. It gates every StartWrite on the completion of the previous one (a
// client's answer can overtake OnWriteDone; gRPC 1.51 then aborts the process), bounds what waits, and calls
// Finish once, never while a write is in flight. Thread-safe. `write` runs under its mutex: gRPC never runs a
// reaction on the stack of the call that starts an operation. `finish` runs outside of it, as the reactor may
// be gone a moment later.
//
// Four kinds of messages, in this order of precedence: a preface (its producer bounds it), results (bounded),
// a sign of life (only the newest is kept) and bulk (sent when nothing else waits; its producer bounds it).
template <typename Message>
class ServerOutbox {
 public:
  struct Bounds {
    size_t messages = 4;
    size_t bytes = 2 << 20;
    size_t merge_depth = 1;  // so many of the results that wait are offered to Merge, the newest first
  };
  // Joins `next` onto `waiting`, of a preface or a result that still waits; false if the two must stay apart.
  // With a merge_depth above 1 a result may overtake others: those of another answer on the same stream.
  using Merge = std::function<bool(Message& waiting, Message& next)>;
  // Makes the next message, false if there is none any more.
  using Source = std::function<bool(Message& next)>;
  using Clock = std::chrono::steady_clock;

  // `write` is the reactor's StartWrite, `finish` its Finish. After `finish` began, the outbox is not touched
  // again by itself: the reactor may delete itself in OnDone.
  ServerOutbox(Bounds bounds, Merge merge, std::function<void(const Message*)> write,
               std::function<void(const grpc::Status&)> finish)
      : bounds_(bounds), merge_(std::move(merge)), write_(std::move(write)), finish_(std::move(finish)) {}

  // What comes before all results and is known in full before the first of them, so that no bound of messages
  // that wait would tell a slow reader from a long preface.
  void PushPreface(Message message) {
    std::unique_lock lock(mutex_);
    if (end_.has_value()) {
      return;
    }
    if (preface_.empty() || !merge_ || !merge_(preface_.back(), message)) {
      preface_.push_back(std::move(message));
    }
    Pump(lock);
  }

  // What comes before the preface, made when its turn comes, so that it takes no room. At most once, before
  // the first result; `next` runs under the mutex.
  void SetPrefaceSource(Source next) {
    std::unique_lock lock(mutex_);
    if (!end_.has_value()) {
      preface_source_ = std::move(next);
      Pump(lock);
    }
  }

  // False: the reader is slow, and the message is left as it was; the caller waits for an OnWriteDone or ends
  // the stream by Abort.
  bool PushResult(Message&& message) {
    std::unique_lock lock(mutex_);
    if (end_.has_value()) {
      return true;  // nobody waits for it any more
    }
    const size_t bytes = message.ByteSizeLong();
    if (result_bytes_ + bytes > bounds_.bytes && result_bytes_ > 0) {
      return false;
    }
    std::pair<Message, size_t>* place = PlaceToMerge(message);
    if (place == nullptr) {
      if (results_.size() >= bounds_.messages) {
        return false;
      }
      place = &results_.emplace_back(std::move(message), 0);
    }
    place->second += bytes;
    result_bytes_ += bytes;
    Pump(lock);
    return true;
  }

  void PushSignOfLife(Message message) {
    std::unique_lock lock(mutex_);
    if (!end_.has_value()) {
      sign_of_life_ = std::move(message);
      Pump(lock);
    }
  }

  void PushBulk(Message message) {
    std::unique_lock lock(mutex_);
    if (!end_.has_value()) {
      bulk_.push_back(std::move(message));
      Pump(lock);
    }
  }

  // Ends the stream with `status` when the preface and the results that wait are out. The first Close or
  // Abort decides.
  void Close(const grpc::Status& status) { End(status, /*keep_results=*/true); }
  // Ends it as soon as the write in flight is done; what waits is dropped.
  void Abort(const grpc::Status& status) { End(status, /*keep_results=*/false); }

  // From OnWriteDone.
  void OnWriteDone(bool ok) {
    std::unique_lock lock(mutex_);
    writing_ = false;
    if (!ok) {
      preface_source_ = nullptr;  // the peer is gone; the reactor hears of it by OnCancel
      preface_.clear();
      results_.clear();
      result_bytes_ = 0;
      sign_of_life_.reset();
      bulk_.clear();
    }
    Pump(lock);
  }

  // The write in flight began longer ago: its reader takes nothing, and nothing but a TryCancel of the call
  // ends it.
  bool WriteOverdue(std::chrono::milliseconds patience) const {
    std::unique_lock lock(mutex_);
    return writing_ && Clock::now() - write_began_ > patience;
  }

  // The end was decided this long ago, but a reader that takes nothing holds it up: TryCancel the call.
  bool Overdue(std::chrono::milliseconds patience) const {
    std::unique_lock lock(mutex_);
    return end_.has_value() && !finished_ && Clock::now() - ended_at_ > patience;
  }

 private:
  // The result that `message` has become a part of, if there is one.
  std::pair<Message, size_t>* PlaceToMerge(Message& message) {
    const size_t offered = merge_ ? std::min(bounds_.merge_depth, results_.size()) : 0;
    for (size_t i = 1; i <= offered; ++i) {
      std::pair<Message, size_t>& waiting = results_[results_.size() - i];
      if (merge_(waiting.first, message)) {
        return &waiting;
      }
    }
    return nullptr;
  }

  // Whether in_flight_ now is the source's next message.
  bool TakeFromSource() {
    if (preface_source_ && !preface_source_(in_flight_)) {
      preface_source_ = nullptr;
    }
    return preface_source_ != nullptr;
  }

  void End(const grpc::Status& status, bool keep_results) {
    std::unique_lock lock(mutex_);
    if (end_.has_value()) {
      return;
    }
    end_ = status;
    ended_at_ = Clock::now();
    sign_of_life_.reset();
    bulk_.clear();
    if (!keep_results) {
      preface_source_ = nullptr;
      preface_.clear();
      results_.clear();
    }
    Pump(lock);
  }

  // Under the lock; when it ends the stream, it releases it and is the last thing that touches this object.
  void Pump(std::unique_lock<std::mutex>& lock) {
    if (writing_ || finished_) {
      return;
    }
    if (TakeFromSource()) {
      // in_flight_ is made
    } else if (!preface_.empty()) {
      in_flight_ = std::move(preface_.front());
      preface_.pop_front();
    } else if (!results_.empty()) {
      result_bytes_ -= results_.front().second;
      in_flight_ = std::move(results_.front().first);
      results_.pop_front();
    } else if (sign_of_life_.has_value()) {
      in_flight_ = std::move(*sign_of_life_);
      sign_of_life_.reset();
    } else if (!bulk_.empty()) {
      in_flight_ = std::move(bulk_.front());
      bulk_.pop_front();
    } else if (end_.has_value()) {
      finished_ = true;
      const auto finish = std::move(finish_);
      const grpc::Status status = *end_;
      lock.unlock();
      finish(status);
      return;
    } else {
      return;
    }
    writing_ = true;
    write_began_ = Clock::now();
    write_(&in_flight_);
  }

  const Bounds bounds_;
  const Merge merge_;
  const std::function<void(const Message*)> write_;
  std::function<void(const grpc::Status&)> finish_;

  mutable std::mutex mutex_;
  Source preface_source_;
  std::deque<Message> preface_;
  std::deque<std::pair<Message, size_t>> results_;  // and their bytes
  size_t result_bytes_ = 0;
  std::optional<Message> sign_of_life_;
  std::deque<Message> bulk_;
  Message in_flight_;  // belongs to gRPC while writing_
  bool writing_ = false;
  Clock::time_point write_began_;  // of the newest
  std::optional<grpc::Status> end_;
  Clock::time_point ended_at_;
  bool finished_ = false;
};

}  // namespace arborist
