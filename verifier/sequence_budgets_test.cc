// AUTO's budgets in a simulated service: requests come and go, drafters share a device and must catch up
// after plain decoding, groups of sequences take turns, and messages need their time.
#include "verifier/sequence_budgets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <utility>
#include <vector>

namespace arborist::verifier {
namespace {

const std::vector<int> kBounds = {1, 2, 4, 9, 17, 33, 65, 129, 257, 385, 512};

enum class Mode { kOff, kTree, kAuto };

// Seconds as one GPU needs for the shipped pair; who drafts how well.
struct World {
  double temperature = 0;
  double falling = 0.96;  // of the probability of each deeper node of the first 7
  double beside = 0.03;   // of the others
  double young = 0.8;     // times falling, at the beginning of a text; nothing is left of it after
  int grown = 100;        // tokens
  double hop = 90e-6;     // a message
  double hop_sequence = 7e-6;
  double draft = 125e-6;
  double draft_stream = 9e-6;
  double catch_up = 300e-6;  // of the drafter's device, for a sequence that has decoded plainly
  double prompt = 700e-6;    // a step with prompt rows more

  double Step(int rows, int trees) const {
    static const std::vector<double> at = {287e-6, 292e-6, 300e-6, 325e-6, 345e-6, 375e-6,
                                           430e-6, 540e-6, 760e-6, 950e-6, 1150e-6};
    const auto i = std::lower_bound(kBounds.begin(), kBounds.end(), std::min(rows, 512)) - kBounds.begin();
    return at[i] + 20e-6 + 2.5e-6 * trees;
  }
  double Accepted(int node, int position) const {
    const double age = std::min(1.0, static_cast<double>(position) / grown);
    return node <= 7 ? std::pow(falling * (young + (1 - young) * age), node) : beside;
  }
};

class Service {
 public:
  explicit Service(const World& world) : world_(world), budgets_(kBounds, 512) {
    for (const int bound : {1, 9, 33, 129, 512}) {
      budgets_.costs().SetAtStart(bound, world.Step(bound, 1) - 20e-6);
    }
  }

  // All requests at once; the sum of tokens / whole time of each.
  double Batch(Mode mode, int sequences, int tokens = 256) {
    mode_ = mode;
    rate_ = 0;
    ones_.clear();
    for (int i = 0; i < sequences; ++i) {
      auto one = std::make_unique<One>();
      one->left = tokens;
      one->begun = now_;
      one->sequence.follows_budget = one->sequence.args.automatic = mode == Mode::kAuto;
      one->sequence.args.sampling.temperature = static_cast<float>(world_.temperature);
      one->sequence.args.tree_nodes = mode == Mode::kOff ? 0 : mode == Mode::kTree ? 8 : 16;
      one->sequence.args.projection_hash = mode == Mode::kOff ? "" : "features";
      one->late = true;
      one->drafter = mode == Mode::kTree || (mode == Mode::kAuto && !ended_plainly_);
      One* raw = one.get();
      ones_.push_back(std::move(one));
      After(Hop() * (raw->drafter ? 4 : 2) + i * 15e-6, [this, raw] {
        raw->phase = One::kPrompt;
        Step();
      });
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      event.what();
    }
    return rate_;
  }
  void Idle(double seconds) { now_ += seconds; }
  int64_t trees() const { return trees_; }

 private:
  struct One {
    enum Phase { kComing, kPrompt, kDrafting, kWaiting, kGone };
    Sequence sequence;
    Phase phase = kComing;
    int left = 0;
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

  double Uniform(double low, double high) { return std::uniform_real_distribution<>(low, high)(random_); }
  double Hop() {
    const auto here = static_cast<double>(ones_.size());
    const double hiccup = Uniform(0, 1) < 0.002 ? 1.5e-3 : 0;
    return world_.hop * Uniform(0.8, 1.4) + world_.hop_sequence * here * Uniform(0, 2) + hiccup;
  }
  void After(double seconds, std::function<void()> what) {
    events_.push({now_ + seconds, order_++, std::move(what)});
  }
  Clock::time_point At(double seconds) const {
    return Clock::time_point(
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds + 1000)));
  }

  void Step() {
    if (busy_) {
      return;
    }
    budgets_.BeginCount();
    in_step_.clear();
    prompts_.clear();
    int rows = 0;
    for (const auto& one : ones_) {
      if (one->phase == One::kComing || one->phase == One::kGone) {
        continue;
      }
      budgets_.Count(one->sequence);
      if (one->phase == One::kPrompt) {
        prompts_.push_back(one.get());
      } else if (one->phase == One::kWaiting && rows + one->sequence.round.tree.nodes() <= 512) {
        rows += one->sequence.round.tree.nodes();
        in_step_.push_back(one.get());
      }
    }
    budgets_.EndCount(At(now_));
    if (in_step_.empty() && prompts_.empty()) {
      return;
    }
    busy_ = true;
    const double begin = now_;
    const auto trees = static_cast<int>(in_step_.size());
    const double seconds = (trees > 0 ? world_.Step(rows, trees) : 300e-6) * Uniform(0.97, 1.05) +
                           (prompts_.empty() ? 0 : world_.prompt);
    After(seconds, [this, begin, rows] { EndStep(begin, rows); });
  }

  void EndStep(double begin, int rows) {
    const auto trees = static_cast<int>(in_step_.size());
    std::vector<std::vector<int32_t>> paths;
    for (One* one : in_step_) {
      std::vector<int32_t> path = {0};
      const double luck = Uniform(0, 1);
      for (int node = 1; node < one->sequence.round.tree.nodes(); ++node) {
        if ((node <= 7 ? luck : Uniform(0, 1)) < world_.Accepted(node, 256 - one->left)) {
          path.push_back(node);
        }
      }
      TreeOutcome outcome;
      outcome.path = path;
      budgets_.See(one->sequence, outcome, At(begin), trees);
      paths.push_back(path);
    }
    budgets_.Decide(At(now_));
    for (int i = 0; i < trees; ++i) {
      Commit(*in_step_[i], static_cast<int>(paths[i].size()));
    }
    if (prompts_.empty()) {
      budgets_.SeeStep(rows, trees, At(begin), At(now_));
    } else {
      budgets_.SeePrompt(At(now_));
    }
    for (One* one : prompts_) {
      Tell(*one, budgets_.First(one->sequence, At(now_)));
    }
    busy_ = false;
    Step();
  }

  void Commit(One& one, int tokens) {
    Round& round = one.sequence.round;
    const int next = budgets_.Next(one.sequence);
    one.sequence.told_at = At(now_);
    one.left -= tokens;
    trees_ += round.decode_left == 0 ? 1 : 0;
    if (one.left <= 0) {
      one.phase = One::kGone;
      rate_ += 256 / (now_ + Hop() * (one.drafter ? 2 : 1) - one.begun);
      ended_plainly_ = mode_ == Mode::kAuto ? round.decode_left > 0 : ended_plainly_;
    } else if (round.decode_left == 0 || (mode_ == Mode::kAuto && next > 0)) {
      one.late = one.late || round.decode_left > 0;
      Tell(one, next);
    }
  }

  // The drafter hears what pays; it drafts or sends a Decode.
  void Tell(One& one, int budget) {
    one.phase = One::kDrafting;
    if (mode_ == Mode::kOff || budget == 0) {
      After(2 * Hop(), [this, &one] { Arrive(one, 0, 1 << 20); });
      return;
    }
    const int hops = std::exchange(one.drafter, true) ? 1 : 4;  // to be taken over
    After(hops * Hop(), [this, &one, budget] {
      one.sequence.told_budget = budget;
      one.queued = now_;
      if (one.late) {
        one.late = false;
        catching_up_.push_back(&one);
      } else {
        drafts_.push_back(&one);
        one.last_draft = now_;
      }
      Device();
    });
  }

  void Device() {
    if (device_busy_) {
      return;
    }
    if (!catching_up_.empty()) {
      One* one = catching_up_.front();
      catching_up_.pop_front();
      device_busy_ = true;
      After(world_.catch_up, [this, one] {
        device_busy_ = false;
        one->queued = one->last_draft = now_;
        drafts_.push_back(one);
        Device();
      });
      return;
    }
    if (drafts_.empty()) {
      return;
    }
    const auto drafting = std::count_if(ones_.begin(), ones_.end(), [&](const auto& one) {
      return one->phase != One::kGone && one->last_draft > now_ - 20e-3;
    });
    const double ready = drafts_.front()->queued + 150e-6;
    if (2 * static_cast<int64_t>(drafts_.size()) < drafting && now_ < ready - 1e-9) {
      After(ready - now_, [this] { Device(); });
      return;
    }
    device_busy_ = true;
    const std::vector<One*> together(drafts_.begin(), drafts_.end());
    drafts_.clear();
    After(world_.draft + world_.draft_stream * static_cast<double>(together.size()), [this, together] {
      device_busy_ = false;
      for (One* one : together) {
        After(Hop(), [this, one] { Arrive(*one, one->sequence.told_budget, 0); });
      }
      Device();
    });
  }

  void Arrive(One& one, int nodes, int decode_left) {
    Round& round = one.sequence.round;
    round.tree = TokenTree::RootOnly(TokenId{});
    for (int node = 1; node <= nodes; ++node) {
      round.tree.token.push_back(TokenId{});
      round.tree.parent.push_back(0);
      round.tree.score.push_back(static_cast<float>(std::log(world_.Accepted(node, 256 - one.left))));
    }
    round.decode_left = decode_left;
    round.submitted = At(now_);
    one.phase = One::kWaiting;
    Step();
  }

  World world_;
  SequenceBudgets budgets_;
  Mode mode_ = Mode::kOff;
  std::vector<std::unique_ptr<One>> ones_;
  std::priority_queue<Event> events_;
  int64_t order_ = 0;
  double now_ = 0;
  double rate_ = 0;
  int64_t trees_ = 0;
  bool ended_plainly_ = false;  // the last request with AUTO
  bool busy_ = false;
  std::vector<One*> in_step_;
  std::vector<One*> prompts_;
  bool device_busy_ = false;
  std::deque<One*> catching_up_;
  std::deque<One*> drafts_;
  std::mt19937 random_{11};
};

struct Rates {
  double off = 0, tree = 0, automatic = 0;
  int64_t automatic_trees = 0;
};

// By turns, as a benchmark does it; between two batches nobody is here. The first turn is not counted.
Rates Alternate(Service& service, int sequences, int alternations, double idle = 0.05) {
  Rates rates;
  for (int i = -1; i < alternations; ++i) {
    for (const Mode mode : {Mode::kOff, Mode::kAuto, Mode::kTree}) {
      const int64_t trees = service.trees();
      const double rate = service.Batch(mode, sequences) / alternations;
      service.Idle(idle);
      if (i >= 0) {
        (mode == Mode::kOff ? rates.off : mode == Mode::kTree ? rates.tree : rates.automatic) += rate;
        rates.automatic_trees += mode == Mode::kAuto ? service.trees() - trees : 0;
      }
    }
  }
  return rates;
}

const World kTreesPay = {};
const World kBeginningsAreHard = {.falling = 0.965, .young = 0.5, .grown = 60};
const World kTreesDoNotPay = {.temperature = 1, .falling = 0.5};

TEST(SequenceBudgetsTest, KeepsToTreesWhereTheyPayWithManySequencesToo) {
  Service service(kTreesPay);
  for (const int sequences : {8, 32, 1}) {
    const Rates rates = Alternate(service, sequences, 12);
    EXPECT_GT(rates.tree, 1.2 * rates.off);
    EXPECT_GT(rates.automatic, 0.92 * rates.tree) << sequences;
  }
}

// All texts begin at once, where trees lose; what they give in all is known after the first batch.
TEST(SequenceBudgetsTest, HardBeginningsOfTextsDoNotHideThatTreesPay) {
  for (const int sequences : {1, 8, 32}) {
    Service service(kBeginningsAreHard);
    const Rates rates = Alternate(service, sequences, 12);
    EXPECT_GT(rates.tree, 1.2 * rates.off);
    EXPECT_GT(rates.automatic, 0.92 * rates.tree) << sequences;
  }
}

// What eight sequences showed is no reason against trees of one.
TEST(SequenceBudgetsTest, TreesOfOneSequenceAreFoundWhereThoseOfEightLose) {
  Service service({.draft_stream = 400e-6});
  const Rates eight = Alternate(service, 8, 12);
  EXPECT_LT(eight.tree, eight.off);
  const Rates one = Alternate(service, 1, 12);
  EXPECT_GT(one.tree, 1.2 * one.off);
  EXPECT_GT(one.automatic, 0.9 * one.tree);
}

TEST(SequenceBudgetsTest, TrialsOfWhatDoesNotPayCostLessThanOnePercent) {
  Service service(kTreesDoNotPay);
  for (const int sequences : {8, 32, 1}) {
    const Rates rates = Alternate(service, sequences, 20);
    EXPECT_LT(rates.tree, 0.9 * rates.off) << sequences;
    EXPECT_GT(rates.automatic, 0.99 * rates.off) << sequences;
  }
}

// Else trials would be most of what rare requests do.
TEST(SequenceBudgetsTest, TimeWithoutSequencesBringsNoTrials) {
  Service busy(kTreesDoNotPay);
  Service rare(kTreesDoNotPay);
  const Rates often = Alternate(busy, 8, 20, /*idle=*/0);
  const Rates seldom = Alternate(rare, 8, 20, /*idle=*/60);
  EXPECT_LE(seldom.automatic_trees, often.automatic_trees + 32);
  EXPECT_GT(seldom.automatic, 0.99 * seldom.off);
}

}  // namespace
}  // namespace arborist::verifier
