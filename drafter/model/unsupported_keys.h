#pragma once

#include "absl/status/status.h"
#include "common/json/json.h"

namespace arborist::drafter {

// InvalidArgument for the first key of config.json or its dflash_config that changes what the network
// computes and that we do not implement: never ignored, since the text stays right and only acceptance would
// drop.
absl::Status RefuseUnsupportedKeys(const JsonObject& config);

}  // namespace arborist::drafter
