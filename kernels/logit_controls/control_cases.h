#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "kernels/logit_controls/logit_controls.h"
#include "kernels/testing/random_tensor.h"

namespace arborist::kernels {

// A step's rows and lists in host memory, for tests.
struct ControlCase {
  int64_t vocabulary = 0;
  int64_t stride = 0;  // of the logits, in and out
  std::vector<float> raw{};
  std::vector<RowControls> row{};
  std::vector<SequenceControls> sequence{};
  std::vector<LogitEntry> entry{};
  std::vector<uint32_t> mask{};

  int64_t rows() const { return static_cast<int64_t>(row.size()); }
  int64_t words() const { return (vocabulary + 31) / 32; }
  LogitControlsArgs Args(float* choice) const {
    return {.raw = {raw.data(), rows(), vocabulary, stride},
            .row = {row.data(), rows()},
            .sequence = {sequence.data(), static_cast<int64_t>(sequence.size())},
            .entry = {entry.data(), static_cast<int64_t>(entry.size())},
            .mask = {mask.data(), static_cast<int64_t>(mask.size()) / words(), words(), words()},
            .choice = {choice, rows(), vocabulary, stride}};
  }
  // The same lists, one row alone.
  ControlCase Alone(int64_t r) const {
    ControlCase alone = *this;
    alone.raw.assign(raw.begin() + r * stride, raw.begin() + (r + 1) * stride);
    alone.row = {row[r]};
    return alone;
  }
};

class ControlCases {
 public:
  explicit ControlCases(testing::Random& random) : random_(random) {}

  ControlCase Draw(int64_t rows, int64_t vocabulary, int64_t gap) {
    ControlCase c = {.vocabulary = vocabulary, .stride = vocabulary + gap};
    c.raw = random_.Normals(rows * c.stride, 8);
    for (float& value : c.raw) {
      const int64_t kind = random_.Uniform(0, 200);
      value = kind == 0 ? -0.0f : kind == 1 ? 1e-42f : kind == 2 ? -3.4e38f : kind == 3 ? 3.4e38f : value;
    }
    for (int64_t i = random_.Uniform(0, 4); i >= 0; --i) {
      // 1 is as good as off.
      c.sequence.push_back({.repetition = random_.Uniform(0, 2) == 0 ? 1.0f : 0.3f + Positive(2),
                            .presence = random_.Normal(2),
                            .frequency = random_.Normal(0.5f),
                            .entries = Run(c, random_.Uniform(0, 1) == 0 ? 20 : vocabulary)});
    }
    const auto masks = random_.Uniform(0, 3);
    for (int64_t i = 0; i < masks * c.words(); ++i) {
      const int64_t kind = random_.Uniform(0, 3);
      c.mask.push_back(kind == 0 ? 0u : kind == 1 ? ~0u : static_cast<uint32_t>(random_.engine()()));
    }
    for (int64_t r = 0; r < rows; ++r) {
      RowControls row;
      if (random_.Uniform(0, 3) > 0) {
        row = {.sequence = Index(static_cast<int64_t>(c.sequence.size())),
               .mask = Index(masks),
               .entries = Run(c, random_.Uniform(0, 5) == 0 ? vocabulary : 70)};
      }
      c.row.push_back(row);
    }
    return c;
  }

 private:
  float Positive(float scale) { return std::abs(random_.Normal(scale)) + 1e-3f; }
  int32_t Index(int64_t size) { return static_cast<int32_t>(random_.Uniform(-1, size - 1)); }
  EntryRun Run(ControlCase& c, int64_t most) {
    std::set<int64_t> tokens;
    for (int64_t i = random_.Uniform(0, std::min(most, c.vocabulary)); i > 0; --i) {
      tokens.insert(random_.Uniform(0, c.vocabulary - 1));
    }
    const EntryRun run = {static_cast<int32_t>(c.entry.size()), static_cast<int32_t>(tokens.size())};
    for (const int64_t token : tokens) {
      const auto count = static_cast<int32_t>(random_.Uniform(0, 3));
      c.entry.push_back({.token = TokenId{static_cast<int32_t>(token)},
                         .bias = random_.Uniform(0, 1) == 0 ? 0.0f : random_.Normal(30),
                         .output_count = count,
                         .occurred = static_cast<int16_t>(count > 0 || random_.Uniform(0, 1) == 0 ? 1 : 0),
                         .forbidden = static_cast<int16_t>(random_.Uniform(0, 9) == 0 ? 1 : 0)});
    }
    return run;
  }

  testing::Random& random_;
};

}  // namespace arborist::kernels
