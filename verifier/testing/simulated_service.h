// A service in which requests come and go, drafters share a device and must catch up after plain decoding,
// groups of sequences take turns, and messages need their time. Its verifier is SequenceBudgets alone.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <vector>

#include "verifier/sequence_budgets.h"

namespace arborist::verifier::testing {

// kTree: trees of 8 nodes.
enum class ServiceMode { kOff, kTree, kAuto };

// Seconds as one GPU needs for the shipped pair; who drafts how well.
struct SimulatedWorld {
  double temperature = 0;
  double falling = 0.96;  // of the probability of each deeper node of the first 7
  double beside = 0.03;   // of the others
  double young = 0.8;     // times falling, at the beginning of a text; nothing is left of it after
  int grown = 100;        // tokens
  double varied = 0;      // up to so much more or less of falling, by text
  double hop = 90e-6;     // a message
  double hop_sequence = 7e-6;
  double draft = 125e-6;
  double draft_stream = 9e-6;
  double catch_up = 300e-6;  // of the drafter's device, for a sequence that has decoded plainly
  double prompt = 700e-6;    // a step with prompt rows more
  // Verifier and drafter share a GPU, without MPS by turns: a turn's price where the other one had the GPU
  // last, and how much longer a step or a draft takes that begins while the other one computes.
  double turn = 0;
  double beside_other = 1;

  double Step(int rows, int trees) const;
  // `text`: of it, -1 to 1.
  double Accepted(int node, int position, double text) const;
};

// Decides what to draft as a verifier's step thread does.
class SimulatedService {
 public:
  explicit SimulatedService(const SimulatedWorld& world, int seed = 11);

  // All requests at once; the sum of tokens / whole time of each.
  double Batch(ServiceMode mode, int sequences, int tokens = 256);
  // So many clients: where a request ends, its client sends another after a moment. Tokens a second, after so
  // many seconds that do not count.
  double Loop(ServiceMode mode, int clients, double seconds, double uncounted);
  void Idle(double seconds) { now_ += seconds; }
  // Of the next Loop, after so many seconds: other texts.
  void Change(const SimulatedWorld& world, double seconds);
  int64_t trees() const { return trees_; }

 private:
  enum Owner { kVerifiers, kDrafters };
  struct One {
    enum Phase { kComing, kPrompt, kDrafting, kWaiting, kGone };
    Sequence sequence;
    Phase phase = kComing;
    double text = 0;
    int tokens = 0;
    int left = 0;
    int plain_tokens = 0;
    double begun = 0;
    bool drafter = false;  // between the client and the verifier
    bool late = false;     // it lacks features
    double last_draft = -1;
    double queued = 0;
  };
  struct Event {
    double at;
    int64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return at > other.at || (at == other.at && order > other.order);
    }
  };
  using Clock = SequenceBudgets::Clock;

  double Uniform(double low, double high);
  double Hop();
  void After(double seconds, std::function<void()> what);
  Clock::time_point At(double seconds) const;
  // What work of so many seconds takes on the GPU that both share.
  double Turn(Owner owner, double seconds);
  // `read`: whose prompts were read. They hear of it when the next step is planned and all that came are
  // counted.
  void Step(std::vector<One*> read = {});
  // A client's request, after so many seconds.
  void Begin(One& one, int tokens, double wait);
  void RunAll();
  void EndStep(double begin, int rows);
  void Commit(One& one, int tokens);
  // The drafter hears what pays; it drafts or sends a Decode.
  void Tell(One& one, int budget);
  void Device();
  void Arrive(One& one, int nodes, int decode_left);

  SimulatedWorld world_;
  SequenceBudgets budgets_;
  ServiceMode mode_ = ServiceMode::kOff;
  std::vector<std::unique_ptr<One>> ones_;
  std::priority_queue<Event> events_;
  int64_t order_ = 0;
  double now_ = 0;
  double rate_ = 0;
  double until_ = 0;  // clients send requests
  int64_t tokens_ = 0;
  int64_t trees_ = 0;
  bool ended_plainly_ = false;  // most of the last request with AUTO
  Owner last_ = kVerifiers;     // that computed on the GPU
  bool busy_ = false;
  std::vector<One*> in_step_;
  std::vector<One*> prompts_;
  bool device_busy_ = false;
  std::deque<One*> catching_up_;
  std::deque<One*> drafts_;
  std::mt19937 random_;
};

}  // namespace arborist::verifier::testing
