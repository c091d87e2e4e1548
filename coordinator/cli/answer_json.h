#pragma once

#include <string>

#include "arborist/v1/coordinator.pb.h"
#include "coordinator/cli/answer.h"

namespace arborist::coordinator {

// One object with everything that chunks and final said. With n above 1 it is {"answers": [...]}, one object
// for each. Of a call that failed it begins with "error": {code, origin, reason, message, fields,
// retry_delay_ms}, and an answer that had not ended has no more than its chunks.
std::string AsJson(const v1::GenerateRequest& request, const GeneratedAnswers& answers);

}  // namespace arborist::coordinator
