// The step thread: which sequences get pages, and in which order.
#include <algorithm>
#include <utility>

#include "verifier/verifier_impl.h"

namespace arborist::verifier {
namespace {

// Later sequences that fit may pass one that waits for pages this often; then it comes first.
constexpr int kMaxPassedBy = 8;

}  // namespace

// Takeovers go before the queue: their pages are here, and their owner has waited already.
void VerifierImpl::AdmitHeirs() {
  announced_.clear();
  for (const auto& [handle, sequence] : table_.all()) {
    if (sequence->inherited.pages.count() > 0) {
      const int32_t kept = KeepCommonPrefix(sequence->tokens, sequence->inherited);
      sequence->pages = std::move(sequence->inherited.pages);
      sequence->inherited = {};
      if (!Admit(*sequence, kept)) {
        sequence->pages.Release();  // it wants more than there is: it queues like the others
      }
    }
  }
}

void VerifierImpl::AdmitQueue() {
  auto admitted = std::count_if(table_.all().begin(), table_.all().end(), [](const auto& entry) {
    return entry.second->phase == Phase::kPrefill || entry.second->phase == Phase::kReady;
  });
  Sequence* head = nullptr;  // the first that does not fit
  for (const auto& [handle, sequence] : table_.all()) {
    if (sequence->phase != Phase::kNew && sequence->phase != Phase::kQueued) {
      continue;
    }
    if (admitted < options_.max_sequences && (head == nullptr || head->passed_by < kMaxPassedBy)) {
      sequence->pages = cache_.pool().NewSequence();
      if (Admit(*sequence, 0)) {
        ++admitted;
        if (head != nullptr) {
          ++head->passed_by;
        }
        continue;
      }
    }
    if (head == nullptr) {
      head = sequence.get();
    }
    if (sequence->phase == Phase::kNew) {
      sequence->phase = Phase::kQueued;
      announced_.push_back(sequence.get());
    }
  }
}

bool VerifierImpl::Admit(Sequence& sequence, int32_t kept) {
  if (!sequence.pages.Resize(sequence.worst_pages)) {
    return false;
  }
  sequence.computed = kept;
  sequence.ticket = next_ticket_++;
  sequence.phase = Phase::kPrefill;
  BecomeReadyIfComputed(sequence);
  announced_.push_back(&sequence);
  return true;
}

void VerifierImpl::BecomeReadyIfComputed(Sequence& sequence) {
  if (sequence.computed < sequence.root_position()) {
    return;
  }
  sequence.phase = Phase::kReady;
  if (!sequence.args.projection_hash.empty()) {
    const int window = sequence.args.feature_window;
    sequence.features_end = sequence.computed;
    sequence.features_begin = window == 0 ? 0 : std::max(0, sequence.computed - window);
  }
}

}  // namespace arborist::verifier
