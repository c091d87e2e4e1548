#pragma once

#include <cstdint>
#include <functional>
#include <random>

#include "verifier/testing/recording_sink.h"
#include "verifier/testing/test_verifier.h"

namespace arborist::verifier {

// What one owner does from before it opens a sequence until it has heard its end.
using OwnerVisit = std::function<void(std::mt19937& random, int64_t epoch)>;

// Owners that come and go, six at once: each makes `visits` visits, one after the other, with random numbers
// of its own and epochs that rise and are nobody else's. Afterwards no page may be in use.
void OwnerStorm(TestVerifier& verifier, int visits, const OwnerVisit& visit);

// Of a visit: opens, lets `stay` use the sequence and say how to leave it, leaves and awaits its end. Nothing
// is left to do where opening is refused, as in a storm that of the lower of two epochs is.
enum class Leave { kCancel, kFinish };
void OpenAndLeave(TestVerifier& verifier, OpenArgs args, RecordingSink& sink,
                  const std::function<Leave(SequenceHandle)>& stay);

}  // namespace arborist::verifier
