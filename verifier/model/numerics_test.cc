// Guards kNumericsVersion: logits and K/V of every golden target, as hashes. The bits are the same on every
// instruction set. If a change of result bits is meant, raise kNumericsVersion in verifier/fingerprint.h and
// put the printed hashes here.

#include <gtest/gtest.h>

#include <map>
#include <span>

#include "common/weights/fingerprint.h"
#include "kernels/simd/isa.h"
#include "verifier/model/testing/golden_model.h"

namespace arborist::verifier {
namespace {

const std::map<std::string, std::string> kHashOfVersion1 = {
    {"kimi_small_latents", "2fd1dba27bdbad1a2b594493c9882405d91c7dfee9de3bbe12f83c8ea51bdd54"},
    {"kimi_step_ramp", "897102569e82435d5ca473008275a3de02eed1f3aeb3e57b984b7c44d3f38c39"},
    {"kimi_wrapped", "000b06639f554fea700c5a2b2b714aaae962b8f5cbdd275d911d934da73372fe"},
    {"tied", "9e56d0cc1aaa51679709cea08021054b2ea5d367acccfab203dbbd5671d9aabe"},
    {"v2_groups", "5427e3991f476ab0c302e88268477bf3164d0fa1dcbd40f4f9051899ecd432e0"},
    {"v2_lite", "77bac42986520efbb21bc6533c1960cd7656d65b3210885da27ff52d85a110e0"},
    {"v3_groups", "a1516111774489164db763408443e3f544c36543e6b38ad4eeb5d8f520843142"},
};

TEST(Numerics, LogitsAndKvHaveTheCommittedBitsOnEveryInstructionSet) {
  const kernels::Isa active = kernels::ActiveIsa();
  for (const std::string& target : testing::kGoldenTargets) {
    const testing::Golden golden = testing::ReadGolden(target);
    for (const kernels::Isa isa : kernels::SupportedIsas()) {
      kernels::ForceIsa(isa);
      const auto harness = testing::Harness::Make({.directory = testing::GoldenDirectory(target)});
      ASSERT_TRUE(harness.ok()) << harness.status();
      const auto output = (*harness)->Run(golden.tokens, 64);
      ASSERT_TRUE(output.ok()) << output.status();
      const auto logits = std::as_bytes(std::span(output->logits));
      std::vector<std::byte> all(logits.begin(), logits.end());
      const std::vector<std::byte> kv = (*harness)->CommittedKv();
      all.insert(all.end(), kv.begin(), kv.end());
      EXPECT_EQ(Sha256(std::span<const std::byte>(all)), kHashOfVersion1.at(target))
          << target << " on " << kernels::Name(isa);
    }
  }
  kernels::ForceIsa(active);
}

}  // namespace
}  // namespace arborist::verifier
