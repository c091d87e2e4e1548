#pragma once

#include <array>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/sequence_path.h"

namespace arborist::coordinator {

// Keeps asking the configured peers what they are, and chooses among those that can be used now. Peers stand
// best first. The first verifier that answers decides the model; others count as equal if their fingerprint
// is.
class PeerRouter : public Router {
 public:
  struct Settings {
    int32_t protocol_version = 0;
    absl::Duration probe_interval = absl::Milliseconds(250);
    absl::Duration probe_timeout = absl::Seconds(1);
  };

  PeerRouter(const Settings& settings, std::vector<std::unique_ptr<VerifierClient>> verifiers,
             std::vector<std::unique_ptr<DrafterClient>> drafters);
  ~PeerRouter() override;

  // Starts asking in the background. `on_verifier_change` hears whether any verifier is usable, at first and
  // at each change, from a thread of the router.
  void Run(std::function<void(bool)> on_verifier_change);
  // Ends the asking; nothing is told after it. Idempotent.
  void Stop();
  // One round of questions; Run does nothing else.
  void ProbeVerifiers();
  void ProbeDrafters();

  // What the first usable verifier is; nothing if there is none.
  std::optional<VerifierFacts> Model() const;
  struct DrafterView {
    bool configured = false;
    bool usable = false;
    std::string proposer;
  };
  DrafterView Drafters() const;

  DrafterClient* ChooseDrafter(const VerifierClient& verifier) override;
  std::string ProjectionOf(const DrafterClient& drafter) override;
  bool DraftingPays(const VerifierClient& verifier, const DrafterClient& drafter, float temperature) override;
  void ReportDrafting(const VerifierClient& verifier, const DrafterClient& drafter, float temperature,
                      bool pays) override;
  VerifierClient* ChooseVerifier(const std::string& fingerprint,
                                 const std::vector<const VerifierClient*>& failed) override;
  std::string WhyNoOther(const std::string& fingerprint,
                         const std::vector<const VerifierClient*>& failed) override;
  void ReportFault(const DrafterClient& drafter) override;
  void ReportFault(const VerifierClient& verifier) override;

 private:
  template <typename Client, typename Facts>
  struct Peer {
    std::unique_ptr<Client> client;
    std::optional<Facts> facts;  // of the last good answer; nothing while the peer is not usable
    int64_t faults = 0;          // an answer to a question from before a fault says nothing
    int misses = 0;              // questions in a row without an answer
    std::string ailment = "it has not answered yet";  // why there are no facts
    // Of a verifier: drafting did not pay lately, by temperature, with a drafter that takes features or not.
    std::array<std::array<bool, 2>, 3> plain = {};
  };
  using VerifierPeer = Peer<VerifierClient, VerifierFacts>;
  using DrafterPeer = Peer<DrafterClient, DrafterFacts>;

  template <typename Client, typename Facts>
  void Probe(std::vector<Peer<Client, Facts>>& peers, int allowed_misses);
  void Loop(const std::function<void()>& round);
  bool Fits(const DrafterFacts& drafter, const VerifierFacts& verifier) const;
  const VerifierFacts* ModelLocked() const;  // under mutex_
  // Nothing while the drafter is not usable; under mutex_.
  std::optional<bool> TakesFeaturesLocked(const DrafterClient& drafter) const;

  const Settings settings_;
  mutable std::mutex mutex_;
  std::condition_variable stop_changed_;
  // The lists never change; what a peer holds beside its client is guarded by mutex_.
  std::vector<VerifierPeer> verifiers_;
  std::vector<DrafterPeer> drafters_;
  bool stopping_ = false;  // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace arborist::coordinator
