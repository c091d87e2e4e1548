#include "common/projection/projection.h"

#include <openssl/evp.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/projection/checked_tensor.h"

namespace arborist {
namespace {

constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHidden = 1 << 20;

std::string HashOf(std::span<const std::span<const std::byte>> parts) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  bool fine = context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  for (const std::span<const std::byte> part : parts) {
    fine = fine && EVP_DigestUpdate(context.get(), part.data(), part.size()) == 1;
  }
  Check(fine && EVP_DigestFinal_ex(context.get(), digest, &size) == 1, "SHA-256 is always there");
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

absl::StatusOr<std::vector<int32_t>> ListedTaps(const JsonObject& dflash) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> ids, dflash.IntList("target_layer_ids"));
  std::vector<int32_t> taps;
  std::set<int64_t> seen;
  for (const int64_t id : ids) {
    if (id < 0 || id >= kMaxLayers || !seen.insert(id).second) {
      return dflash.Unexpected("target_layer_ids", absl::StrCat("distinct layers in [0, ", kMaxLayers, ")"));
    }
    taps.push_back(static_cast<int32_t>(id));
  }
  if (taps.empty()) {
    return dflash.Unexpected("target_layer_ids", "at least one layer");
  }
  return taps;
}

absl::StatusOr<std::vector<int32_t>> EvenTaps(const JsonObject& config) {
  ASSIGN_OR_RETURN(const int64_t target, config.Int("num_target_layers"));
  ASSIGN_OR_RETURN(const int64_t count, config.Int("num_hidden_layers"));
  if (target < 1 || target > kMaxLayers) {
    return config.Unexpected("num_target_layers", absl::StrCat("1 to ", kMaxLayers));
  }
  if (count == 1) {
    return std::vector<int32_t>{static_cast<int32_t>(target / 2)};
  }
  if (count < 1 || count > target - 3) {
    return config.Unexpected("num_hidden_layers",
                             absl::StrCat("1 to num_target_layers - 3 = ", target - 3,
                                          ", or dflash_config.target_layer_ids to be given"));
  }
  std::vector<int32_t> taps;
  for (int64_t i = 0; i < count; ++i) {
    // Ties to even, as the rule's origin rounds.
    taps.push_back(static_cast<int32_t>(
        std::nearbyint(1.0 + static_cast<double>(i * (target - 4)) / static_cast<double>(count - 1))));
  }
  return taps;
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> TargetLayerIds(const JsonObject& config) {
  if (config.Has("dflash_config")) {
    ASSIGN_OR_RETURN(const JsonObject dflash, config.Object("dflash_config"));
    if (dflash.Has("target_layer_ids")) {
      return ListedTaps(dflash);
    }
  }
  return EvenTaps(config);
}

absl::StatusOr<std::string> DrafterPrefix(const Checkpoint& checkpoint) {
  for (const char* prefix : {"", "model."}) {
    if (checkpoint.Has(absl::StrCat(prefix, "fc.weight"))) {
      return std::string(prefix);
    }
  }
  return absl::NotFoundError(
      absl::StrCat(checkpoint.directory(), ": tensor fc.weight: missing, expected in every DFlash drafter"));
}

absl::StatusOr<Projection> LoadProjection(const std::string& drafter_directory) {
  ASSIGN_OR_RETURN(const JsonObject config, ReadJson(absl::StrCat(drafter_directory, "/config.json")));
  ASSIGN_OR_RETURN(const int64_t hidden, config.Int("hidden_size"));
  if (hidden < 1 || hidden > kMaxHidden) {
    return config.Unexpected("hidden_size", absl::StrCat("1 to ", kMaxHidden));
  }
  ASSIGN_OR_RETURN(const double epsilon, config.Number("rms_norm_eps"));
  if (!(epsilon > 0 && epsilon < 1)) {
    return config.Unexpected("rms_norm_eps", "a number in (0, 1)");
  }
  ASSIGN_OR_RETURN(std::vector<int32_t> taps, TargetLayerIds(config));
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(drafter_directory));
  ASSIGN_OR_RETURN(const std::string prefix, DrafterPrefix(checkpoint));
  const std::string fc_name = absl::StrCat(prefix, "fc.weight");
  const std::string norm_name = absl::StrCat(prefix, "hidden_norm.weight");
  ASSIGN_OR_RETURN(const WeightView fc,
                   FindFiniteMatrix(checkpoint, fc_name, hidden, static_cast<int64_t>(taps.size()) * hidden));
  ASSIGN_OR_RETURN(std::vector<float> norm, ReadVector(checkpoint, norm_name, hidden));
  ASSIGN_OR_RETURN(const TensorView fc_bytes, checkpoint.Find(fc_name));
  ASSIGN_OR_RETURN(const TensorView norm_bytes, checkpoint.Find(norm_name));
  const std::span<const std::byte> parts[] = {
      {fc_bytes.data, fc_bytes.bytes}, {norm_bytes.data, norm_bytes.bytes}, std::as_bytes(std::span(taps))};
  std::string hash = HashOf(parts);
  return Projection{.checkpoint = std::move(checkpoint),
                    .fc = fc,
                    .norm = std::move(norm),
                    .epsilon = static_cast<float>(epsilon),
                    .taps = std::move(taps),
                    .hash = std::move(hash)};
}

}  // namespace arborist
