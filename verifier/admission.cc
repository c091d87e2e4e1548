// The step thread: which sequences get pages, and in which order.
#include <algorithm>
#include <utility>

#include "kernels/tree_attention_mla/tree_attention_mla.h"
#include "verifier/admission_order.h"
#include "verifier/verifier_impl.h"

namespace arborist::verifier {
namespace {

// Later sequences that fit may pass one that waits for pages this often; then it comes first.
constexpr int kMaxPassedBy = 8;

// Whether there are pages for it if another sample has all that can be shared; texts are compared only then.
bool MayFit(const Sequence& sequence, const PagePool& pool) {
  return sequence.worst_pages - KvCache::WholePages(sequence.root_position()) <= pool.free_pages();
}

}  // namespace

// Takeovers go before the queue: their pages are here, and their owner has waited already.
void VerifierImpl::AdmitHeirs() {
  announced_.clear();
  for (const auto& [handle, sequence] : table_.all()) {
    if (sequence->inherited.pages.count() > 0) {
      KvInheritance& inherited = sequence->inherited;
      const int32_t common = CommonTokens(sequence->tokens, inherited.tokens);
      inherited.computed =
          std::min(inherited.computed, sequence->log_probs.RowsToTake(inherited.log_probs.known(), common));
      const int32_t kept = KeepCommonPrefix(sequence->tokens, inherited);
      sequence->log_probs.Take(inherited.log_probs, common);
      sequence->pages = std::move(inherited.pages);
      inherited = {};
      if (!Admit(*sequence, kept)) {
        sequence->pages.Release();  // it wants more than there is: it queues like the others
      }
    }
  }
}

void VerifierImpl::AdmitQueue() {
  queue_.clear();
  int admitted = 0;
  for (const auto& [handle, sequence] : table_.all()) {
    if (sequence->phase == Phase::kNew || sequence->phase == Phase::kQueued) {
      queue_.push_back(sequence.get());
    } else {
      ++admitted;
    }
  }
  std::sort(queue_.begin(), queue_.end(),
            [](const Sequence* a, const Sequence* b) { return AdmittedBefore(*a, *b); });
  Sequence* head = nullptr;  // the first that does not fit
  for (Sequence* sequence : queue_) {
    bool waits_for_sample = false;
    if (admitted < options_.max_sequences && (head == nullptr || head->passed_by < kMaxPassedBy) &&
        MayFit(*sequence, cache_.pool())) {
      const SharedPrefix shared = table_.FindSharedPrefix(*sequence);
      waits_for_sample = shared.grows;
      if (!shared.grows && AdmitFromQueue(*sequence, shared)) {
        ++admitted;
        if (head != nullptr) {
          ++head->passed_by;
        }
        continue;
      }
    }
    if (head == nullptr && !waits_for_sample) {
      head = sequence;
    }
    if (sequence->phase == Phase::kNew) {
      sequence->phase = Phase::kQueued;
      announced_.push_back(sequence);
    }
  }
}

bool VerifierImpl::AdmitFromQueue(Sequence& sequence, const SharedPrefix& shared) {
  sequence.pages = cache_.pool().NewSequence();
  if (shared.pages > 0) {
    sequence.pages.Share(shared.from->pages, shared.pages);
    sequence.log_probs.Take(shared.from->log_probs, shared.common_tokens);
  }
  if (!Admit(sequence, static_cast<int32_t>(shared.pages * kernels::kPageRows))) {
    sequence.pages.Release();
    return false;
  }
  return true;
}

bool VerifierImpl::Admit(Sequence& sequence, int32_t kept) {
  if (!sequence.pages.Resize(sequence.worst_pages)) {
    return false;
  }
  sequence.computed = kept;
  sequence.log_probs.BeginAt(kept);
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
