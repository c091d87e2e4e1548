#include "coordinator/peer_router.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace arborist::coordinator {
namespace {

// A verifier under load may answer late; one that broke a stream is reported and counts as lost at once.
constexpr int kVerifierMisses = 3;

// Drafts fare alike within each; as coarse as the verifier's own kinds.
size_t TemperatureKind(float temperature) { return temperature == 0 ? 0 : temperature <= 0.7f ? 1 : 2; }

// Of a peer whose answer to a question was bad.
std::string Ailment(const absl::Status& answer) {
  if (answer.ok()) {
    return "it speaks another protocol version";
  }
  return absl::IsDeadlineExceeded(answer) ? "it does not answer" : std::string(answer.message());
}

}  // namespace

PeerRouter::PeerRouter(const Settings& settings, std::vector<std::unique_ptr<VerifierClient>> verifiers,
                       std::vector<std::unique_ptr<DrafterClient>> drafters)
    : settings_(settings) {
  for (auto& client : verifiers) {
    verifiers_.push_back({std::move(client), std::nullopt});
  }
  for (auto& client : drafters) {
    drafters_.push_back({std::move(client), std::nullopt});
  }
}

PeerRouter::~PeerRouter() { Stop(); }

void PeerRouter::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_changed_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
  threads_.clear();
}

void PeerRouter::Run(std::function<void(bool)> on_verifier_change) {
  threads_.emplace_back([this, on_verifier_change = std::move(on_verifier_change)] {
    std::optional<bool> told;
    Loop([&] {
      ProbeVerifiers();
      const bool usable = Model().has_value();
      if (told != usable) {
        on_verifier_change(usable);
        told = usable;
      }
    });
  });
  if (!drafters_.empty()) {  // a thread of its own: a drafter that hangs must not delay the verifiers
    threads_.emplace_back([this] { Loop([this] { ProbeDrafters(); }); });
  }
}

void PeerRouter::Loop(const std::function<void()>& round) {
  while (true) {
    round();
    std::unique_lock lock(mutex_);
    if (stop_changed_.wait_for(lock, absl::ToChronoNanoseconds(settings_.probe_interval),
                               [this] { return stopping_; })) {
      return;
    }
  }
}

template <typename Client, typename Facts>
void PeerRouter::Probe(std::vector<Peer<Client, Facts>>& peers, int allowed_misses) {
  for (auto& peer : peers) {
    int64_t faults_before = 0;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) {
        return;
      }
      faults_before = peer.faults;
    }
    absl::StatusOr<Facts> facts = peer.client->GetInfo(settings_.probe_timeout);
    const std::lock_guard lock(mutex_);
    if (peer.faults != faults_before) {
      continue;
    }
    if (facts.ok() && facts->protocol_version == settings_.protocol_version) {
      peer.facts = *std::move(facts);
      peer.misses = 0;
    } else if (++peer.misses > allowed_misses || facts.ok() ||
               facts.status().code() != absl::StatusCode::kDeadlineExceeded) {
      peer.facts.reset();
      peer.ailment = Ailment(facts.status());
    }
  }
}

void PeerRouter::ProbeVerifiers() { Probe(verifiers_, kVerifierMisses); }
void PeerRouter::ProbeDrafters() { Probe(drafters_, 0); }

bool PeerRouter::Fits(const DrafterFacts& drafter, const VerifierFacts& verifier) const {
  return drafter.ready && drafter.verifier_fingerprint == verifier.fingerprint &&
         (drafter.projection_hash.empty() || drafter.projection_hash == verifier.projection_hash);
}

const VerifierFacts* PeerRouter::ModelLocked() const {
  for (const VerifierPeer& peer : verifiers_) {
    if (peer.facts.has_value()) {
      return &*peer.facts;
    }
  }
  return nullptr;
}

std::optional<VerifierFacts> PeerRouter::Model() const {
  const std::lock_guard lock(mutex_);
  const VerifierFacts* facts = ModelLocked();
  return facts == nullptr ? std::nullopt : std::optional<VerifierFacts>(*facts);
}

PeerRouter::DrafterView PeerRouter::Drafters() const {
  const std::lock_guard lock(mutex_);
  DrafterView view{.configured = !drafters_.empty(), .usable = false, .proposer = ""};
  const VerifierFacts* verifier = ModelLocked();
  for (const DrafterPeer& peer : drafters_) {
    if (!view.usable && verifier != nullptr && peer.facts.has_value() && Fits(*peer.facts, *verifier)) {
      view.usable = true;
      view.proposer = peer.facts->proposer;
    }
  }
  return view;
}

DrafterClient* PeerRouter::ChooseDrafter(const VerifierClient& verifier) {
  const std::lock_guard lock(mutex_);
  const auto known = std::find_if(verifiers_.begin(), verifiers_.end(),
                                  [&](const VerifierPeer& peer) { return peer.client.get() == &verifier; });
  if (known == verifiers_.end() || !known->facts.has_value()) {
    return nullptr;
  }
  for (DrafterPeer& peer : drafters_) {
    if (peer.facts.has_value() && Fits(*peer.facts, *known->facts)) {
      return peer.client.get();
    }
  }
  return nullptr;
}

std::string PeerRouter::ProjectionOf(const DrafterClient& drafter) {
  const std::lock_guard lock(mutex_);
  for (const DrafterPeer& peer : drafters_) {
    if (peer.client.get() == &drafter && peer.facts.has_value()) {
      return peer.facts->projection_hash;
    }
  }
  return "";
}

std::optional<bool> PeerRouter::TakesFeaturesLocked(const DrafterClient& drafter) const {
  for (const DrafterPeer& peer : drafters_) {
    if (peer.client.get() == &drafter && peer.facts.has_value()) {
      return !peer.facts->projection_hash.empty();
    }
  }
  return std::nullopt;
}

bool PeerRouter::DraftingPays(const VerifierClient& verifier, const DrafterClient& drafter,
                              float temperature) {
  const std::lock_guard lock(mutex_);
  const std::optional<bool> features = TakesFeaturesLocked(drafter);
  return std::none_of(verifiers_.begin(), verifiers_.end(), [&](const VerifierPeer& peer) {
    return features.has_value() && peer.client.get() == &verifier &&
           peer.plain[TemperatureKind(temperature)][*features];
  });
}

void PeerRouter::ReportDrafting(const VerifierClient& verifier, const DrafterClient& drafter,
                                float temperature, bool pays) {
  const std::lock_guard lock(mutex_);
  const std::optional<bool> features = TakesFeaturesLocked(drafter);
  for (VerifierPeer& peer : verifiers_) {
    if (features.has_value() && peer.client.get() == &verifier) {
      peer.plain[TemperatureKind(temperature)][*features] = !pays;
    }
  }
}

VerifierClient* PeerRouter::ChooseVerifier(const std::string& fingerprint,
                                           const std::vector<const VerifierClient*>& failed) {
  const std::lock_guard lock(mutex_);
  for (VerifierPeer& peer : verifiers_) {
    if (peer.facts.has_value() && peer.facts->fingerprint == fingerprint &&
        std::find(failed.begin(), failed.end(), peer.client.get()) == failed.end()) {
      return peer.client.get();
    }
  }
  return nullptr;
}

std::string PeerRouter::WhyNoOther(const std::string& fingerprint,
                                   const std::vector<const VerifierClient*>& failed) {
  const std::lock_guard lock(mutex_);
  std::string why;
  for (const VerifierPeer& peer : verifiers_) {
    if (std::find(failed.begin(), failed.end(), peer.client.get()) != failed.end()) {
      continue;
    }
    const char* of_facts = !peer.facts.has_value()                  ? nullptr
                           : peer.facts->fingerprint == fingerprint ? "it came back too late"
                                                                    : "it has another fingerprint";
    absl::StrAppend(&why, why.empty() ? "no other can be used: " : ", ", peer.client->address(), " (",
                    of_facts == nullptr ? peer.ailment : of_facts, ")");
  }
  if (!why.empty()) {
    return why;
  }
  return verifiers_.size() > 1 ? "no other is left" : "no other is configured";
}

void PeerRouter::ReportFault(const DrafterClient& drafter) {
  const std::lock_guard lock(mutex_);
  for (DrafterPeer& peer : drafters_) {
    if (peer.client.get() == &drafter) {
      peer.facts.reset();
      ++peer.faults;
    }
  }
}

void PeerRouter::ReportFault(const VerifierClient& verifier) {
  const std::lock_guard lock(mutex_);
  for (VerifierPeer& peer : verifiers_) {
    if (peer.client.get() == &verifier) {
      peer.facts.reset();
      peer.ailment = "it broke a stream";
      ++peer.faults;
    }
  }
}

}  // namespace arborist::coordinator
