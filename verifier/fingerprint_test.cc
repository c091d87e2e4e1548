#include "verifier/fingerprint.h"

#include <gtest/gtest.h>

#include <set>

namespace arborist::verifier {
namespace {

TEST(VerifierFingerprintTest, EveryFieldChangesIt) {
  const VerifierIdentity base{.checkpoint = "abc"};
  std::vector<VerifierIdentity> identities(9, base);
  identities[1].checkpoint = "abd";
  identities[2].backend = "cuda";
  identities[3].architecture = "sm_90a";
  identities[4].weight_dtype = "F8";
  identities[5].activation_dtype = "BF16";
  identities[6].kv_dtype = "BF16";
  identities[7].numerics = "FAST";
  identities[8].ranks = 2;
  identities.push_back(base);
  identities.back().numerics_version = kNumericsVersion + 1;
  std::set<std::string> fingerprints;
  for (const VerifierIdentity& identity : identities) {
    fingerprints.insert(VerifierFingerprint(identity));
  }
  EXPECT_EQ(fingerprints.size(), identities.size());
}

TEST(VerifierFingerprintTest, EqualIdentitiesHaveEqualFingerprintsOf64HexDigits) {
  const std::string fingerprint = VerifierFingerprint({.checkpoint = "abc"});
  EXPECT_EQ(fingerprint, VerifierFingerprint({.checkpoint = "abc"}));
  EXPECT_EQ(fingerprint.size(), 64u);
  EXPECT_EQ(fingerprint.find_first_not_of("0123456789abcdef"), std::string::npos);
}

}  // namespace
}  // namespace arborist::verifier
