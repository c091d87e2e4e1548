// Every mistake of the golden data's table, made in the derived settings, the weights or the inputs: the
// golden comparison must see it by at least ten times its tolerance, else that comparison proves nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "common/base/check.h"
#include "drafter/model/testing/golden_drafter.h"
#include "kernels/kernel_set.h"

namespace arborist::drafter {
namespace {

using testing::GoldenDrafter;
using testing::RelativeError;
using testing::RunOptions;

constexpr double kSeen = 10 * 1e-4;

struct Mistake {
  DFlashSettings settings;
  DFlashWeights weights;
  RunOptions options;
  std::vector<std::vector<char>> memory;  // altered copies that weights point to
  std::vector<float> context;
};

struct Trap {
  const char* name;
  std::vector<std::string> checkpoints;  // where it shows
  std::function<void(const GoldenDrafter&, Mistake&)> make;
};

const std::vector<std::string> kAll = testing::kGoldenDrafters;
const std::vector<std::string> kSliding = {"sliding", "sliding_bidirectional"};
const std::vector<std::string> kYarn = {"yarn", "yarn_attention_factor"};

double Magnitude(const DFlashSettings& settings) { return 0.1 * std::log(settings.rotary.factor) + 1; }

// A copy of a bf16 matrix whose element (r, c) is the original's (row_of(r), column_of(c)).
WeightView Permuted(const WeightView& original, Mistake& mistake,
                    const std::function<int64_t(int64_t)>& row_of,
                    const std::function<int64_t(int64_t)>& column_of) {
  Check(original.dtype == DType::kBF16, "goldens are bf16");
  std::vector<char>& bytes = mistake.memory.emplace_back(original.rows * original.columns * 2);
  for (int64_t r = 0; r < original.rows; ++r) {
    for (int64_t c = 0; c < original.columns; ++c) {
      std::memcpy(&bytes[(r * original.columns + c) * 2],
                  static_cast<const char*>(original.data) + (row_of(r) * original.columns + column_of(c)) * 2,
                  2);
    }
  }
  WeightView copy = original;
  copy.data = bytes.data();
  return copy;
}

void ZeroMaskEmbedding(const GoldenDrafter& golden, Mistake& m) {
  const auto same = [](int64_t i) { return i; };
  m.weights.embedding = Permuted(golden.weights.embedding, m, same, same);
  std::memset(m.memory.back().data() + golden.settings.mask_token * golden.settings.hidden * 2, 0,
              golden.settings.hidden * 2);
}

// Query head h reads key head h modulo their number: moves head h to a slot that reads that one.
void InterleaveHeads(const GoldenDrafter& golden, Mistake& m) {
  const DFlashSettings& s = golden.settings;
  const int64_t repeat = s.heads / s.kv_heads;
  const auto source = [&](int64_t i) {
    const int64_t slot = i / s.head_dim;
    return (slot / repeat + slot % repeat * s.kv_heads) * s.head_dim + i % s.head_dim;
  };
  const auto same = [](int64_t i) { return i; };
  for (DFlashLayerWeights& layer : m.weights.layers) {
    layer.query = Permuted(layer.query, m, source, same);
    layer.output = Permuted(layer.output, m, same, source);
  }
}

void FuseWithoutNorm(const GoldenDrafter& golden, Mistake& m) {
  const WeightView& fc = golden.projection.fc;
  const BFloat16* weight = static_cast<const BFloat16*>(fc.data);
  for (int64_t t = 0; t < golden.start[1]; ++t) {
    for (int64_t r = 0; r < fc.rows; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < fc.columns; ++c) {
        sum += static_cast<double>(golden.taps[t * fc.columns + c]) * ToFloat(weight[r * fc.columns + c]);
      }
      m.context.push_back(static_cast<float>(sum));
    }
  }
  m.options.context = &m.context;
}

void ForSliding(Mistake& m, const std::function<void(LayerVisibility&)>& change) {
  for (LayerVisibility& layer : m.settings.layers) {
    if (layer.window > 0) {
      change(layer);
    }
  }
}

const Trap kTraps[] = {
    {"mask_in_slot_0", kAll, [](auto&, Mistake& m) { m.settings.reading.bonus_in_first_slot = false; }},
    {"zero_mask_embedding", kAll, ZeroMaskEmbedding},
    {"context_normed_again", kAll,
     [](auto&, Mistake& m) { m.settings.reading.context_through_input_norm = true; }},
    {"hidden_norm_missing", kAll, FuseWithoutNorm},
    {"rope_interleaved", kAll,
     [](auto&, Mistake& m) { m.settings.reading.pairing = kernels::RopePairing::kInterleaved; }},
    {"full_layers_causal",
     {"full", "sliding", "yarn", "yarn_attention_factor"},
     [](auto&, Mistake& m) {
       for (LayerVisibility& layer : m.settings.layers) {
         layer.causal = layer.causal || layer.window == 0;
       }
     }},
    {"sliding_causality_flipped", kSliding,
     [](auto&, Mistake& m) { ForSliding(m, [](LayerVisibility& l) { l.causal = !l.causal; }); }},
    {"window_ignored", kSliding,
     [](auto&, Mistake& m) { ForSliding(m, [](LayerVisibility& l) { l.window = 0; }); }},
    {"window_one_wider", kSliding,
     [](auto&, Mistake& m) { ForSliding(m, [](LayerVisibility& l) { ++l.window; }); }},
    {"qk_norm_missing", kAll, [](auto&, Mistake& m) { m.settings.reading.query_key_norm = false; }},
    {"gqa_interleaved", kAll, InterleaveHeads},
    {"label_shift", kAll, [](auto&, Mistake& m) { m.settings.reading.first_predicting_slot = 0; }},
    {"block_position_off_by_one", kAll, [](auto&, Mistake& m) { m.options.position_offset = 1; }},
    {"context_not_grown", kAll, [](auto&, Mistake& m) { m.options.context_grows = false; }},
    {"block_kv_kept",
     {"full", "yarn", "yarn_attention_factor"},
     [](auto&, Mistake& m) { m.options.block_kept = true; }},
    {"yarn_ignored", kYarn, [](auto&, Mistake& m) { m.settings.rotary.yarn = false; }},
    {"mscale_squared", kYarn,
     [](auto&, Mistake& m) {
       m.settings.attention_scale *= static_cast<float>(Magnitude(m.settings) * Magnitude(m.settings));
     }},
    {"attention_factor_forced",
     {"yarn"},
     [](auto&, Mistake& m) { m.settings.rotary.attention_factor = Magnitude(m.settings); }},
    {"attention_factor_missing",
     {"yarn_attention_factor"},
     [](auto&, Mistake& m) { m.settings.rotary.attention_factor = 1; }},
    {"final_norm_missing", kAll, [](auto&, Mistake& m) { m.settings.reading.final_norm = false; }},
};

class DFlashTrapsTest : public ::testing::TestWithParam<Trap> {};

TEST_P(DFlashTrapsTest, GoldensSeeTheMistake) {
  for (const std::string& checkpoint : GetParam().checkpoints) {
    const GoldenDrafter golden(checkpoint);
    Mistake mistake{
        .settings = golden.settings, .weights = golden.weights, .options = {}, .memory = {}, .context = {}};
    mistake.memory.reserve(16);  // views into it stay valid
    GetParam().make(golden, mistake);
    const auto run =
        RunRounds(golden, mistake.settings, mistake.weights, kernels::CpuKernels(), mistake.options);
    const double error = RelativeError(run.log_probs, golden.Read("log_probs"));
    EXPECT_GE(error, kSeen) << checkpoint;
    EXPECT_LT(error, 1e3) << checkpoint << ": a mistake gives other numbers, not none";
  }
}

INSTANTIATE_TEST_SUITE_P(Table, DFlashTrapsTest, ::testing::ValuesIn(kTraps),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace arborist::drafter
