// Malformed trees, against a real verifier whose last committed token is 12.
#include "absl/strings/str_cat.h"
#include "common/rpc/protocol.h"
#include "tests/bad_input/processes.h"
#include "tests/bad_input/verify_stream.h"

namespace arborist::bad_input {
namespace {

struct BadTree {
  const char* name;
  std::string tree;  // a TokenTree
  std::string message;
};

std::string Repeated(const char* one, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&text, one);
  }
  return text;
}

// A chain of `nodes` drafted nodes below the root.
std::string Chain(int nodes) {
  std::string text = "token_ids: 12 parents: -1 scores: 0 ";
  for (int i = 0; i < nodes; ++i) {
    absl::StrAppend(&text, "token_ids: ", 20 + i, " parents: ", i, " scores: -1 ");
  }
  return text;
}

// Siblings below the root.
std::string Fan(int nodes) {
  std::string text = "token_ids: 12 parents: -1 scores: 0 ";
  for (int i = 0; i < nodes; ++i) {
    absl::StrAppend(&text, "token_ids: ", 20 + i, " parents: 0 scores: -1 ");
  }
  return text;
}

const std::vector<BadTree>& BadTrees() {
  static const auto* const table = new std::vector<BadTree>{
      {"no node at all", " ", "tree.token has 0 nodes, expected at least the root"},
      {"no parents", "token_ids: 12 scores: 0",
       "tree has 1 tokens, 0 parents and 1 scores, expected equal counts"},
      {"no scores", "token_ids: 12 parents: -1",
       "tree has 1 tokens, 1 parents and 0 scores, expected equal counts"},
      {"one score too many", "token_ids: [12, 13] parents: [-1, 0] scores: [0, -1, -2]",
       "tree has 2 tokens, 2 parents and 3 scores, expected equal counts"},
      {"another root", "token_ids: [11, 13] parents: [-1, 0] scores: [0, -1]",
       "tree.token[0]=11, expected the last committed token 12"},
      {"a root with a parent", "token_ids: [12, 13] parents: [0, 0] scores: [0, -1]",
       "tree.parent[0]=0, expected -1 for the root"},
      {"a root with a score", "token_ids: [12, 13] parents: [-1, 0] scores: [-0.5, -1]",
       "tree.score[0]=-0.5, expected 0 for the root"},
      {"a second root", "token_ids: [12, 13] parents: [-1, -1] scores: [0, -1]",
       "tree.parent[1]=-1, expected an index in [0, 1)"},
      {"a node that is its own parent", "token_ids: [12, 13] parents: [-1, 1] scores: [0, -1]",
       "tree.parent[1]=1, expected an index in [0, 1)"},
      {"a cycle of two", "token_ids: [12, 13, 14] parents: [-1, 2, 1] scores: [0, -1, -2]",
       "tree.parent[1]=2, expected an index in [0, 1)"},
      {"a parent outside the tree", "token_ids: [12, 13] parents: [-1, 2147483647] scores: [0, -1]",
       "tree.parent[1]=2147483647, expected an index in [0, 1)"},
      {"a parent far below zero", "token_ids: [12, 13] parents: [-1, -2147483648] scores: [0, -1]",
       "tree.parent[1]=-2147483648, expected an index in [0, 1)"},
      {"an id below zero", "token_ids: [12, -1] parents: [-1, 0] scores: [0, -1]",
       "tree.token[1]=-1, expected an id in [0, 4096)"},
      {"an id beyond the vocabulary", "token_ids: [12, 4096] parents: [-1, 0] scores: [0, -1]",
       "tree.token[1]=4096, expected an id in [0, 4096)"},
      {"a score that is no number", "token_ids: [12, 13] parents: [-1, 0] scores: [0, nan]",
       "tree.score[1]=nan, expected a finite value <= score[0]=0"},
      {"a score of minus infinity", "token_ids: [12, 13] parents: [-1, 0] scores: [0, -inf]",
       "tree.score[1]=-inf, expected a finite value <= score[0]=0"},
      {"a score above zero", "token_ids: [12, 13] parents: [-1, 0] scores: [0, 0.25]",
       "tree.score[1]=0.25, expected a finite value <= score[0]=0"},
      {"scores that rise", "token_ids: [12, 13, 14] parents: [-1, 0, 0] scores: [0, -2, -1]",
       "tree.score[2]=-1, expected a finite value <= score[1]=-2"},
      {"the same token twice below one node",
       "token_ids: [12, 13, 13] parents: [-1, 0, 0] scores: [0, -1, -1]",
       "tree.token[2]=13, expected a token that no sibling under node 0 has"},
      {"a node deeper than 63", Chain(64), "tree.depth[64]=64, expected at most 63"},
      {"more nodes than were opened for", Fan(9), "tree has 9 drafted nodes, expected at most 8"},
      {"256 nodes", Fan(256), "tree has 256 drafted nodes, expected at most 8"},
      {"a million nodes",
       "token_ids: 12 parents: -1 scores: 0" + Repeated(" token_ids: 20 parents: 0 scores: -1", 200000),
       "tree has 200000 drafted nodes, expected at most 8"},
  };
  return *table;
}

TEST(BadTreesTest, EveryMalformedTreeEndsItsStreamAndNothingElse) {
  for (const BadTree& bad : BadTrees()) {
    SCOPED_TRACE(bad.name);
    VerifyStream stream;
    stream.Do(absl::StrCat(
        "open { sequence { tree_nodes: ", bad.name == std::string("a node deeper than 63") ? 64 : 8, " } }"));
    stream.Do("wait");
    stream.Do(absl::StrCat("tree { tree { ", bad.tree, " } }"));
    const size_t equals = bad.message.find('=');
    const std::string field = equals == std::string::npos ? "" : bad.message.substr(0, equals);
    ExpectRefused(stream.End(), kVerifierOrigin,
                  {.reason = "BAD_TREE", .field = field, .message = bad.message});
    ExpectStillServes();
  }
}

// Useless is not malformed: it is verified, and the text stays.
TEST(BadTreesTest, ATreeOfUselessNodesIsVerified) {
  VerifyStream stream;
  stream.Do("open {}");
  stream.Do("wait");
  stream.Do(absl::StrCat("tree { tree { ", Fan(8), " } }"));
  stream.Do("committed");
  stream.Do("stop {}");
  EXPECT_TRUE(stream.End().ok());
  ExpectStillServes();
}

}  // namespace
}  // namespace arborist::bad_input
