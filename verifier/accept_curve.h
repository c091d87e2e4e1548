#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace arborist::verifier {

// How many tokens a round of a tree commits, by its number of nodes, learned from verified trees. A tree's
// prefix would have been accepted as far as the path goes inside it, so each tree tells about all smaller
// ones. Scores say what the drafter expects of this text and move fast; how far they can be believed is
// learned slowly, for every stretch of the best-first order by itself.
class AcceptCurve {
 public:
  // `score` and `path` begin with the root: scores are log-probabilities, the path holds accepted nodes.
  // `asked` >= the tree's nodes: a drafter that had no more to offer gives nothing there.
  // `together` sequences are alike: what is remembered is so many rounds of all, for with few rounds of many
  // it would follow them from the hard beginnings of their texts to the easy ends.
  void See(int asked, std::span<const float> score, std::span<const int32_t> path, int together = 1);

  // What was seen is of other times: what comes now counts for more.
  void Doubt();

  // Expected tokens of a round of so many nodes, the target's own token included: >= 1, rising with nodes.
  double Tokens(int nodes) const;
  bool known() const { return stretches_[0].visits > 0; }
  // Some tree was as large.
  bool Visited(int nodes) const;

 private:
  // Nodes (kEnds[i - 1], kEnds[i]] of a tree, root not counted.
  static constexpr std::array<int, 16> kEnds = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 255};
  struct Stretch {
    double expected = 0;       // tokens that the scores promise now
    double seen_expected = 0;  // the same summed over a long past that fades
    double seen_accepted = 0;  // and what came true of it
    int visits = 0;
  };
  static int Begin(int stretch) { return stretch == 0 ? 0 : kEnds[stretch - 1]; }
  static int Width(int stretch) { return kEnds[stretch] - Begin(stretch); }

  std::array<Stretch, kEnds.size()> stretches_;
};

}  // namespace arborist::verifier
