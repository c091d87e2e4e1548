#include "verifier/accept_curve.h"

#include <algorithm>
#include <cmath>

#include "verifier/cost_curve.h"

namespace arborist::verifier {
namespace {

constexpr double kFast = 1.0 / 64;   // of what the scores promise
constexpr double kFade = 1.0 / 512;  // of how far they came true
constexpr int kDoubtedVisits = 8;
constexpr double kDoubtedTokens = 32;
constexpr double kBelief = 2;  // tokens of evidence that the scores have for a start

}  // namespace

void AcceptCurve::See(int asked, std::span<const float> score, std::span<const int32_t> path, int together) {
  const double fading = 1 - kFade / together;
  const int nodes = static_cast<int>(score.size()) - 1;
  for (int i = 0; i < static_cast<int>(kEnds.size()); ++i) {
    const int begin = Begin(i);
    const double covered = static_cast<double>(std::min(std::max(asked, nodes), kEnds[i]) - begin) / Width(i);
    if (covered < 0.5) {
      break;
    }
    double expected = 0;
    for (int node = begin + 1; node <= std::min(nodes, kEnds[i]); ++node) {
      expected += std::exp(score[node]);
    }
    const auto accepted =
        std::count_if(path.begin(), path.end(), [&](int node) { return node > begin && node <= kEnds[i]; });
    Stretch& stretch = stretches_[i];
    MoveMean(expected / covered, kFast / together, stretch.expected, stretch.visits);
    stretch.seen_expected = fading * stretch.seen_expected + expected;
    stretch.seen_accepted = fading * stretch.seen_accepted + static_cast<double>(accepted);
  }
}

void AcceptCurve::Doubt() {
  for (Stretch& stretch : stretches_) {
    stretch.visits = std::min(stretch.visits, kDoubtedVisits);
    const double kept = std::min(1.0, kDoubtedTokens / std::max(stretch.seen_expected, 1e-9));
    stretch.seen_expected *= kept;
    stretch.seen_accepted *= kept;
  }
}

double AcceptCurve::Tokens(int nodes) const {
  double tokens = 1;
  double density = 1, before = 1;  // expected tokens a node in the last stretch and the one before it
  for (int i = 0; i < static_cast<int>(kEnds.size()) && Begin(i) < nodes; ++i) {
    const Stretch& stretch = stretches_[i];
    double next = density * std::min(1.0, density / before);  // falls on as it fell
    if (stretch.visits > 0) {
      const double truth = (stretch.seen_accepted + kBelief) / (stretch.seen_expected + kBelief);
      next = stretch.expected * truth / Width(i);
    }
    before = density;
    density = std::clamp(next, 1e-6, 1.0);
    tokens += density * (std::min(nodes, kEnds[i]) - Begin(i));
  }
  return tokens;
}

bool AcceptCurve::Visited(int nodes) const {
  const auto end = std::lower_bound(kEnds.begin(), kEnds.end(), nodes);
  return end != kEnds.end() && stretches_[end - kEnds.begin()].visits > 0;
}

}  // namespace arborist::verifier
