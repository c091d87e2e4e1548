// Each known way to misread a checkpoint, made on purpose: the golden comparison must notice, by at least ten
// times its tolerance. What no setting can express is done by a kernel that errs.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "verifier/model/testing/golden_model.h"

namespace arborist::verifier {
namespace {

using kernels::AddRmsNormArgs;
using kernels::CpuKernels;
using kernels::KernelSet;
using kernels::MlaLatentsArgs;
using kernels::MoeExpertsArgs;
using kernels::MoeRouteArgs;

constexpr double kNoticed = 1e-3;  // ten times the tolerance of model_golden_test

// Of the run under test: kernels are plain functions.
float routed_scaling = 1;
int norms_left = 0;  // that follow a sum
int moe_layers_seen = 0;

absl::Status LatentsThatNormTheRotatedPart(const MlaLatentsArgs& args, StreamView stream) {
  const int64_t latent = args.key_norm.size;
  for (int64_t t = 0; t < args.key.rows; ++t) {
    float* key = args.key.row(t) + latent;
    const int64_t dim = args.key.columns - latent;
    const float square = std::inner_product(key, key + dim, key, 0.0f) / static_cast<float>(dim);
    std::for_each(key, key + dim, [&](float& value) { value /= std::sqrt(square + 1e-6f); });
  }
  return CpuKernels().mla_latents(args, stream);
}

float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

absl::Status RouteWithBiasInTheWeights(const MoeRouteArgs& args, StreamView stream) {
  const absl::Status status = CpuKernels().moe_route(args, stream);
  for (int64_t t = 0; status.ok() && t < args.logits.rows; ++t) {
    float sum = 0;
    for (int k = 0; k < args.top_k; ++k) {
      const int32_t expert = args.expert.row(t)[k];
      sum += args.weight.row(t)[k] = Sigmoid(args.logits.row(t)[expert]) + args.bias[expert];
    }
    for (int k = 0; k < args.top_k; ++k) {
      args.weight.row(t)[k] *= args.scaling / sum;
    }
  }
  return status;
}

// Masked experts get choice 0, so they beat kept ones whose choice is negative.
absl::Status RouteWithMaskedGroupsAtZero(const MoeRouteArgs& args, StreamView) {
  const int64_t experts = args.logits.columns, members = experts / args.groups;
  for (int64_t t = 0; t < args.logits.rows; ++t) {
    std::vector<float> score(experts), choice(experts), group_score(args.groups);
    for (int64_t e = 0; e < experts; ++e) {
      score[e] = Sigmoid(args.logits.row(t)[e]);
      choice[e] = score[e] + args.bias[e];
    }
    for (int g = 0; g < args.groups; ++g) {
      std::vector<float> group(choice.begin() + g * members, choice.begin() + (g + 1) * members);
      std::sort(group.rbegin(), group.rend());
      group_score[g] = group[0] + group[1];
    }
    std::vector<float> ranked = group_score;
    std::sort(ranked.rbegin(), ranked.rend());
    std::vector<int32_t> order(experts);
    std::iota(order.begin(), order.end(), 0);
    for (int64_t e = 0; e < experts; ++e) {
      choice[e] = group_score[e / members] >= ranked[args.kept_groups - 1] ? choice[e] : 0;
    }
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return choice[a] > choice[b]; });
    std::sort(order.begin(), order.begin() + args.top_k);
    float sum = 0;
    for (int k = 0; k < args.top_k; ++k) {
      sum += score[order[k]];
    }
    for (int k = 0; k < args.top_k; ++k) {
      args.expert.row(t)[k] = order[k];
      args.weight.row(t)[k] = score[order[k]] / sum * args.scaling;
    }
  }
  return absl::OkStatus();
}

// Leaves the first MoE layer with its shared expert alone, as if it were a dense MLP.
absl::Status RouteNothingInTheFirstLayer(const MoeRouteArgs& args, StreamView stream) {
  const absl::Status status = CpuKernels().moe_route(args, stream);
  if (moe_layers_seen++ == 0) {
    for (int64_t t = 0; t < args.weight.rows; ++t) {
      std::fill_n(args.weight.row(t), args.weight.columns, 0.0f);
    }
  }
  return status;
}

absl::Status ExpertsWithoutTheSharedOne(const MoeExpertsArgs& args, StreamView stream) {
  MoeExpertsArgs altered = args;
  altered.shared = nullptr;
  altered.full_shared_width = 0;
  return CpuKernels().moe_experts(altered, stream);
}

absl::Status ExpertsWithTheSharedOneScaled(const MoeExpertsArgs& args, StreamView stream) {
  std::vector<float> routed(args.out.rows * args.out.columns);
  MoeExpertsArgs altered = args;
  altered.out = {routed.data(), args.out.rows, args.out.columns, args.out.columns};
  absl::Status status = ExpertsWithoutTheSharedOne(altered, stream);
  status.Update(CpuKernels().moe_experts(args, stream));
  for (int64_t t = 0; t < args.out.rows; ++t) {
    for (int64_t c = 0; c < args.out.columns; ++c) {
      float& out = args.out.row(t)[c];
      out = altered.out.row(t)[c] + routed_scaling * (out - altered.out.row(t)[c]);
    }
  }
  return status;
}

absl::Status NormButNotTheFinalOne(const AddRmsNormArgs& args, StreamView stream) {
  const absl::Status status = CpuKernels().add_rms_norm(args, stream);
  if (--norms_left == 0) {
    for (int64_t t = 0; t < args.into.rows; ++t) {
      std::copy_n(args.into.row(t), args.into.columns, args.out.row(t));
    }
  }
  return status;
}

struct Trap {
  std::string name;
  std::vector<std::string> targets;  // that must notice
  std::function<void(ModelConfig&)> config = nullptr;
  std::function<void(Interpretation&, const ModelConfig&)> meaning = nullptr;
  std::function<void(KernelSet&)> kernels = nullptr;
};

const std::vector<std::string> kAll = testing::kGoldenTargets;
const std::vector<std::string> kYarn = {"kimi_small_latents", "kimi_step_ramp", "kimi_wrapped",
                                        "v2_groups",          "v2_lite",        "v3_groups"};
const std::vector<std::string> kSigmoid = {"kimi_small_latents", "kimi_step_ramp", "kimi_wrapped", "tied",
                                           "v3_groups"};
const std::vector<std::string> kScaled = {"kimi_small_latents", "kimi_step_ramp", "kimi_wrapped", "tied",
                                          "v2_groups",          "v3_groups"};
const std::vector<std::string> kUntied = kYarn;

std::vector<Trap> Traps() {
  return {
      {"rope_half_split", kAll, nullptr,
       [](Interpretation& m, const ModelConfig&) { m.rope_pairing = kernels::RopePairing::kHalfSplit; }},
      {"yarn_ignored", kYarn, nullptr,
       [](Interpretation& m, const ModelConfig& c) {
         m.rope_frequency = RopeFrequencies(c.qk_rope_head_dim, c.rope_theta, std::nullopt);
       }},
      {"yarn_beta_32_1", {"kimi_step_ramp"}, [](ModelConfig& c) { c.yarn->beta_fast = 32; }},
      {"mscale_missing", kYarn, nullptr,
       [](Interpretation& m, const ModelConfig& c) {
         m.softmax_scale = 1 / std::sqrt(static_cast<float>(c.qk_nope_head_dim + c.qk_rope_head_dim));
       }},
      {"mscale_all_dim_one",
       {"v2_groups", "v2_lite"},
       [](ModelConfig& c) { c.yarn->mscale = c.yarn->mscale_all_dim = 1; }},
      {"latent_eps_from_config",
       {"kimi_small_latents"},
       nullptr,
       [](Interpretation& m, const ModelConfig& c) { m.latent_epsilon = c.rms_norm_eps; }},
      {"layer_eps_1e_6",
       {"kimi_small_latents"},
       nullptr,
       [](Interpretation& m, const ModelConfig&) { m.layer_epsilon = 1e-6f; }},
      {"k_pe_normed", kAll, nullptr, nullptr,
       [](KernelSet& k) { k.mla_latents = LatentsThatNormTheRotatedPart; }},
      {"bias_in_weights", kSigmoid, nullptr, nullptr,
       [](KernelSet& k) { k.moe_route = RouteWithBiasInTheWeights; }},
      {"bias_ignored", kSigmoid, nullptr,
       [](Interpretation& m, const ModelConfig&) { m.correction_bias = false; }},
      {"scaling_missing", kScaled, nullptr,
       [](Interpretation& m, const ModelConfig&) { m.routed_scaling = 1; }},
      {"norm_topk_ignored", kSigmoid, nullptr,
       [](Interpretation& m, const ModelConfig&) { m.normalize = false; }},
      {"norm_topk_forced",
       {"v2_groups", "v2_lite"},
       nullptr,
       [](Interpretation& m, const ModelConfig&) { m.normalize = true; }},
      {"groups_ignored",
       {"v2_groups", "v3_groups"},
       nullptr,
       [](Interpretation& m, const ModelConfig&) { m.groups = m.kept_groups = 1; }},
      {"group_score_swapped",
       {"v2_groups", "v3_groups"},
       nullptr,
       [](Interpretation& m, const ModelConfig&) {
         m.group_score = m.group_score == kernels::RouteGroupScore::kMax
                             ? kernels::RouteGroupScore::kTopTwoSum
                             : kernels::RouteGroupScore::kMax;
       }},
      {"masked_groups_zero",
       {"v3_groups"},
       nullptr,
       nullptr,
       [](KernelSet& k) { k.moe_route = RouteWithMaskedGroupsAtZero; }},
      {"shared_expert_missing", kAll, nullptr, nullptr,
       [](KernelSet& k) { k.moe_experts = ExpertsWithoutTheSharedOne; }},
      {"shared_expert_scaled", kScaled, nullptr, nullptr,
       [](KernelSet& k) { k.moe_experts = ExpertsWithTheSharedOneScaled; }},
      {"one_dense_layer_more", kAll, nullptr, nullptr,
       [](KernelSet& k) { k.moe_route = RouteNothingInTheFirstLayer; }},
      {"head_tied", kUntied, [](ModelConfig& c) { c.tie_word_embeddings = true; }},
      {"final_norm_missing", kAll, nullptr, nullptr,
       [](KernelSet& k) { k.add_rms_norm = NormButNotTheFinalOne; }},
  };
}

class ModelTrap : public ::testing::TestWithParam<Trap> {};

TEST_P(ModelTrap, MovesTheLogitsTenTimesFurtherThanTheTolerance) {
  const Trap& trap = GetParam();
  for (const std::string& target : trap.targets) {
    const testing::Golden golden = testing::ReadGolden(target);
    KernelSet kernels = CpuKernels();
    if (trap.kernels) {
      trap.kernels(kernels);
    }
    const auto harness = testing::Harness::Make({.directory = testing::GoldenDirectory(target),
                                                 .kernels = &kernels,
                                                 .alter_config = trap.config,
                                                 .alter_meaning = trap.meaning});
    ASSERT_TRUE(harness.ok()) << harness.status();
    routed_scaling = (*harness)->config().routed_scaling_factor;
    norms_left = 2 * static_cast<int>((*harness)->config().layers);
    moe_layers_seen = 0;
    const auto output = (*harness)->Run(golden.tokens, static_cast<int>(golden.tokens.size()));
    ASSERT_TRUE(output.ok()) << target << ": " << output.status();
    const double error = testing::RelativeError(output->logits, golden.logits);
    EXPECT_GE(error, kNoticed) << target;
    EXPECT_TRUE(std::isfinite(error)) << target << ": a trap gives wrong numbers, not none";
  }
}

INSTANTIATE_TEST_SUITE_P(Traps, ModelTrap, ::testing::ValuesIn(Traps()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace arborist::verifier
