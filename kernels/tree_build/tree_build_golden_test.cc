// The 33 cases of tests/golden/tree_build, made by an independent builder (tests/golden/README.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/json/json.h"
#include "common/weights/mapped_file.h"
#include "common/weights/safetensors.h"
#include "kernels/tree_build/tree_build.h"

namespace arborist::kernels {
namespace {

std::string CasesPath() {
  const char* root = std::getenv("ARBORIST_SOURCE_DIR");
  return std::string(root == nullptr ? "." : root) + "/tests/golden/tree_build/cases.safetensors";
}

// Scores are doubles, a type that checkpoints never have, so the tensor is cut out of the file here.
std::vector<double> Doubles(const std::string& name) {
  absl::StatusOr<MappedFile> file = MappedFile::Open(CasesPath());
  EXPECT_TRUE(file.ok()) << file.status();
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file->bytes().data(), 8);
  const std::string header(reinterpret_cast<const char*>(file->bytes().data()) + 8, header_bytes);
  const absl::StatusOr<JsonObject> entry = ParseJson(header, "header")->Object(name);
  EXPECT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ(*entry->String("dtype"), "F64");
  const std::vector<int64_t> range = *entry->IntList("data_offsets");
  std::vector<double> values((range[1] - range[0]) / 8);
  std::memcpy(values.data(), file->bytes().data() + 8 + header_bytes + range[0], values.size() * 8);
  return values;
}

TEST(TreeBuildGoldenTest, EveryCaseOfTheReferenceBuilderIsMetBitForBit) {
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(CasesPath());
  ASSERT_TRUE(file.ok()) << file.status();
  int cases = 0;
  for (; file->Has((cases < 10 ? "0" : "") + std::to_string(cases) + ".budget"); ++cases) {
    const std::string key = (cases < 10 ? "0" : "") + std::to_string(cases) + ".";
    SCOPED_TRACE(key);
    const auto tensor = [&](const char* name) { return *file->Find(key + name); };
    const TensorView log_prob = tensor("log_prob");
    const int64_t depths = log_prob.shape[0];
    const int64_t k = log_prob.shape[1];
    const int budget = tensor("budget").As<int32_t>()[0];
    std::vector<TokenId> candidate(depths * k);
    std::transform(tensor("token").As<int32_t>(), tensor("token").As<int32_t>() + depths * k,
                   candidate.begin(), [](int32_t id) { return TokenId{id}; });
    const TensorView want_token = tensor("tree_token");
    const auto want_nodes = static_cast<int>(want_token.elements());
    std::vector<TokenId> token(budget + 1);
    std::vector<int32_t> parent(budget + 1);
    std::vector<float> score(budget + 1);
    int32_t nodes = 0;
    const TreeBuildParams params = {.root = TokenId{want_token.As<int32_t>()[0]},
                                    .depths = static_cast<int32_t>(depths),
                                    .k = static_cast<int32_t>(k),
                                    .budget = budget};
    const absl::Status status = cpu::TreeBuild({.params = {&params, 1},
                                                .token = {candidate.data(), depths, k, k},
                                                .log_prob = {log_prob.As<float>(), depths, k, k},
                                                .out_token = {token.data(), 1, budget + 1, budget + 1},
                                                .out_parent = {parent.data(), 1, budget + 1, budget + 1},
                                                .out_score = {score.data(), 1, budget + 1, budget + 1},
                                                .out_nodes = {&nodes, 1}},
                                               {});
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(nodes, want_nodes);
    const std::vector<double> want_score = Doubles(key + "tree_score");
    float before = 0;
    for (int node = 0; node < nodes; ++node) {
      EXPECT_EQ(Raw(token[node]), want_token.As<int32_t>()[node]);
      EXPECT_EQ(parent[node], tensor("tree_parent").As<int32_t>()[node]);
      before = std::min(before, static_cast<float>(want_score[node]));
      EXPECT_EQ(score[node], before);
    }
  }
  EXPECT_EQ(cases, 33);
}

}  // namespace
}  // namespace arborist::kernels
