#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>

namespace arborist::fuzz {

// For LLVMFuzzerCustomMutator: changes the bytes of a message on the wire, as often field by field (so that
// nested lengths stay right and deeper checks are reached) as byte by byte. `message` is an empty one of the
// right type.
size_t MutateMessage(google::protobuf::Message& message, uint8_t* data, size_t size, size_t max_size,
                     uint32_t seed);

}  // namespace arborist::fuzz
