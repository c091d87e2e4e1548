#include "verifier/testing/fake_verifier.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace arborist::verifier::testing {

FakeVerifier::FakeVerifier() : thread_([this] { Run(); }) {}

FakeVerifier::~FakeVerifier() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void FakeVerifier::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) {
      return;
    }
    const auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

void FakeVerifier::Post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void FakeVerifier::HoldSteps(bool hold) {
  {
    std::lock_guard lock(mutex_);
    hold_ = hold;
    if (!hold) {
      tasks_.insert(tasks_.end(), held_.begin(), held_.end());
      held_.clear();
    }
  }
  changed_.notify_all();
}

SequenceSink* FakeVerifier::last_sink() {
  std::lock_guard lock(mutex_);
  return last_sink_;
}

bool FakeVerifier::IsOpen(const SequenceKey& key) const {
  std::lock_guard lock(mutex_);
  return std::any_of(sequences_.begin(), sequences_.end(), [&](const auto& entry) {
    return entry.second.args.key.request_id == key.request_id &&
           entry.second.args.key.sample_index == key.sample_index;
  });
}

int FakeVerifier::open_sequences() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(sequences_.size());
}

std::vector<std::string> FakeVerifier::calls() {
  std::lock_guard lock(mutex_);
  return calls_;
}

OpenArgs FakeVerifier::last_open() {
  std::lock_guard lock(mutex_);
  return last_open_;
}

bool FakeVerifier::WaitForCall(const std::string& call) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(20),
                           [&] { return std::find(calls_.begin(), calls_.end(), call) != calls_.end(); });
}

void FakeVerifier::Record(const std::string& call) {
  calls_.push_back(call);
  changed_.notify_all();
}

absl::StatusOr<SequenceHandle> FakeVerifier::Open(OpenArgs args, SequenceSink* sink) {
  SequenceHandle handle = 0;
  SequenceHandle older = 0;
  {
    std::lock_guard lock(mutex_);
    Record("open");
    int64_t& epoch = epochs_[args.key.request_id];
    if (args.epoch <= epoch) {
      return absl::FailedPreconditionError("epoch is stale");
    }
    epoch = args.epoch;
    for (const auto& [other, sequence] : sequences_) {
      older = sequence.args.key.request_id == args.key.request_id ? other : older;
    }
    handle = next_++;
    last_open_ = args;
    last_sink_ = sink;
    Sequence& sequence = sequences_[handle];
    sequence.args = std::move(args);
    sequence.sink = sink;
    sequence.tokens = sequence.args.prompt;
    sequence.tokens.insert(sequence.tokens.end(), sequence.args.output_so_far.begin(),
                           sequence.args.output_so_far.end());
  }
  if (older != 0) {
    Post([this, older] { Close(older, absl::AbortedError("a higher epoch took over")); });
  }
  if (ready_on_open_) {
    Post([sink] {
      sink->OnProgress(ProgressState::kPrefill, 1);
      sink->OnReady(8);
    });
  }
  return handle;
}

absl::Status FakeVerifier::Submit(SequenceHandle handle, int64_t round, int tokens, int nodes,
                                  const TokenTree* tree) {
  {
    std::lock_guard lock(mutex_);
    Record(tree != nullptr ? "tree" : "decode");
    const auto found = sequences_.find(handle);
    if (found == sequences_.end() || found->second.in_flight) {
      return absl::FailedPreconditionError("a round is in flight");
    }
    if (tree != nullptr) {
      const absl::Status status =
          ValidateTokenTree(*tree, found->second.tokens.back(), {.vocab_size = kVocabulary});
      if (!status.ok()) {
        return status;
      }
    }
    found->second.in_flight = true;
    auto step = [this, handle, round, tokens, nodes] { Step(handle, round, tokens, nodes); };
    (hold_ ? held_ : tasks_).push_back(std::move(step));
  }
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status FakeVerifier::SubmitTree(SequenceHandle sequence, int64_t round, TokenTree tree) {
  return Submit(sequence, round, 1, tree.nodes() - 1, &tree);
}

absl::Status FakeVerifier::SubmitDecode(SequenceHandle sequence, int64_t round, int max_tokens) {
  return Submit(sequence, round, max_tokens, 0, nullptr);
}

void FakeVerifier::Step(SequenceHandle handle, int64_t round, int tokens, int nodes) {
  for (int i = 0; i < tokens; ++i) {
    Committed committed;
    SequenceSink* sink = nullptr;
    bool ending = false;
    {
      std::lock_guard lock(mutex_);
      const auto found = sequences_.find(handle);
      if (found == sequences_.end()) {
        return;
      }
      Sequence& sequence = found->second;
      const TokenId next{(Raw(sequence.tokens.back()) + 1) % kVocabulary};
      committed.epoch = sequence.args.epoch;
      committed.round = round;
      committed.last = i + 1 == tokens;
      committed.first_position = static_cast<int32_t>(sequence.tokens.size());
      committed.tokens = {next};
      committed.log_probs = {-0.5f};
      committed.verified_nodes = nodes;
      committed.next_budget = sequence.args.tree_nodes;
      if (feature_bytes_ > 0) {
        committed.features.assign(feature_bytes_ / 2, 0x3F80);
        committed.feature_position = committed.first_position - 1;
        committed.feature_rows = static_cast<int32_t>(feature_bytes_ / (2 * kHidden));
      }
      sequence.tokens.push_back(next);
      sequence.in_flight = !committed.last;
      sink = sequence.sink;
      ending = sequence.ending && committed.last;
    }
    sink->OnCommitted(std::move(committed));
    if (ending) {
      Close(handle, absl::OkStatus());
    }
  }
}

void FakeVerifier::Close(SequenceHandle handle, const absl::Status& status) {
  SequenceSink* sink = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto found = sequences_.find(handle);
    if (found == sequences_.end()) {
      return;
    }
    sink = found->second.sink;
    sequences_.erase(found);
  }
  sink->OnClosed(status);
}

void FakeVerifier::Finish(SequenceHandle handle) {
  std::unique_lock lock(mutex_);
  Record("finish");
  const auto found = sequences_.find(handle);
  if (found == sequences_.end()) {
    return;
  }
  found->second.ending = true;
  if (!found->second.in_flight) {
    lock.unlock();
    Post([this, handle] { Close(handle, absl::OkStatus()); });
  }
}

void FakeVerifier::Cancel(SequenceHandle handle) {
  {
    std::lock_guard lock(mutex_);
    Record("cancel");
  }
  Post([this, handle] { Close(handle, absl::CancelledError("cancelled")); });
}

}  // namespace arborist::verifier::testing
