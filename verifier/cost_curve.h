#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace arborist::verifier {

// What a step takes, by the size that it is padded to and by how many sequences are in it. Begins with what
// was measured at start and follows what steps take now. Pure: no clock, no device.
class CostCurve {
 public:
  // Ascending, at least one: the sizes of steps; more rows than the last bound cost in proportion.
  explicit CostCurve(std::vector<int> bounds);

  // Of one of the bounds, measured at start. Sizes that were not measured follow from their neighbours.
  void SetAtStart(int bound, double seconds);
  // A step of these rows took so long. Outliers count as twice what was expected. A size that has not
  // come for thousands of steps is forgotten: things may have changed, and the start's measurement gets it
  // tried.
  void Observe(int rows, int sequences, double seconds);
  // Expected, > 0. Rows and sequences are at least 1.
  double Seconds(int rows, int sequences) const;

  std::span<const int> bounds() const { return bounds_; }

 private:
  static constexpr int kGroups = 13;  // of sequences: 1, 2, 3-4, 5-8, ... 4096
  struct Cell {
    double seconds = 0;
    int count = 0;        // of observations
    int64_t seen_at = 0;  // the last one, counted in observations of all cells
  };
  bool Younger(const Cell& cell, int64_t steps) const;
  int BoundIndex(int rows) const;
  double AtStart(int index) const;

  std::vector<int> bounds_;
  std::vector<double> at_start_;  // [bounds]; 0: not measured
  std::vector<std::array<Cell, kGroups>> cells_;
  Cell over_start_;  // how steps compare with the measurement at start
  int64_t observed_ = 0;
};

// 0 for 1, 1 for 2, 2 for 3 and 4, 3 for 5 to 8, ...; `count` is at least 1.
int DoublingGroup(int count);

// Moves a mean towards `sample`: by 1 / count at first, by `slowest` in the long run.
void MoveMean(double sample, double slowest, double& mean, int& count);

}  // namespace arborist::verifier
