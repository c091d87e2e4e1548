#include "verifier/sequence_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace arborist::verifier {

absl::StatusOr<Sequence*> SequenceTable::Insert(std::unique_ptr<Sequence> sequence) {
  const Key key{sequence->args.key.request_id, sequence->args.key.sample_index};
  Sequence* older = nullptr;
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    older = Find(found->second);
    if (sequence->args.epoch <= older->args.epoch) {
      return absl::FailedPreconditionError(absl::StrCat(
          "epoch=", sequence->args.epoch, ", expected more than the open epoch ", older->args.epoch));
    }
  } else {
    const auto waiting = std::count_if(by_handle_.begin(), by_handle_.end(), [](const auto& entry) {
      return entry.second->phase == Phase::kNew || entry.second->phase == Phase::kQueued;
    });
    if (waiting >= max_queue_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("queue has ", waiting, " sequences, expected fewer than ", max_queue_));
    }
  }
  sequence->handle = next_handle_++;
  if (older != nullptr) {
    older->End(absl::AbortedError(
        absl::StrCat("epoch=", older->args.epoch, " was taken over by epoch ", sequence->args.epoch)));
    older->successor = sequence->handle;
    sequence->opened = older->opened;
  }
  by_key_[key] = sequence->handle;
  Sequence* inserted = sequence.get();
  by_handle_.emplace(inserted->handle, std::move(sequence));
  return inserted;
}

Sequence* SequenceTable::Find(SequenceHandle handle) {
  const auto found = by_handle_.find(handle);
  return found == by_handle_.end() ? nullptr : found->second.get();
}

SharedPrefix SequenceTable::FindSharedPrefix(const Sequence& sequence) const {
  const std::string& request = sequence.args.key.request_id;
  const int64_t most = KvCache::WholePages(sequence.root_position());
  SharedPrefix best;
  int64_t later = 0;
  for (auto key = by_key_.lower_bound({request, 0});
       key != by_key_.end() && key->first.first == request && best.pages < most; ++key) {
    const Sequence& other = *by_handle_.at(key->second);
    const bool prefills = other.phase == Phase::kPrefill;
    if (&other == &sequence || (!prefills && other.phase != Phase::kReady)) {
      continue;
    }
    const int32_t common = CommonTokens(sequence.tokens, other.tokens);
    const auto pages = [&](int32_t computed, int32_t log_probs) {
      return KvCache::WholePages(std::min(
          {common, sequence.root_position(), computed, sequence.log_probs.RowsToTake(log_probs, common)}));
    };
    const int64_t now = pages(other.computed, other.log_probs.known());
    if (now > best.pages) {
      best = {.from = &other, .pages = now, .common_tokens = common};
    }
    later = std::max(later, prefills ? pages(other.root_position(), other.log_probs.wanted()) : now);
  }
  best.grows = later > best.pages;
  return best;
}

std::unique_ptr<Sequence> SequenceTable::Remove(SequenceHandle handle) {
  const auto found = by_handle_.find(handle);
  Check(found != by_handle_.end(), "a sequence is removed once");
  std::unique_ptr<Sequence> sequence = std::move(found->second);
  by_handle_.erase(found);
  const auto key = by_key_.find({sequence->args.key.request_id, sequence->args.key.sample_index});
  if (key != by_key_.end() && key->second == handle) {
    by_key_.erase(key);
  }
  KvInheritance left = std::move(sequence->inherited);
  if (sequence->pages.count() > 0) {
    left = {std::move(sequence->pages), sequence->tokens, sequence->computed, sequence->log_probs};
  }
  if (Sequence* successor = Find(sequence->successor); successor != nullptr) {
    successor->inherited = std::move(left);
  }
  return sequence;
}

}  // namespace arborist::verifier
