#include "tests/fuzz/message_mutator.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

// libFuzzer's own mutations; absent where seeds are only replayed.
extern "C" __attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace arborist::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  bool OneIn(uint32_t n) { return random_() % n == 0; }

  // One change in the message or in a message below it.
  void Change(Message& message) {
    const Reflection& reflection = *message.GetReflection();
    const FieldDescriptor& field =
        *message.GetDescriptor()->field(static_cast<int>(random_() % message.GetDescriptor()->field_count()));
    if (OneIn(16)) {
      reflection.ClearField(&message, &field);
    } else if (field.is_repeated()) {
      ChangeList(message, field);
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Change(*reflection.MutableMessage(&message, &field));
    } else {
      Set(message, field, -1);
    }
  }

 private:
  void ChangeList(Message& message, const FieldDescriptor& field) {
    const Reflection& reflection = *message.GetReflection();
    const int size = reflection.FieldSize(message, &field);
    const int at = size == 0 ? 0 : static_cast<int>(random_() % size);
    const uint32_t kind = random_() % 8;
    if (size == 0 || kind < 2) {
      for (uint32_t more = OneIn(8) ? random_() % 200 : 0;; --more) {
        Add(message, field);
        if (more == 0) {
          return;
        }
      }
    } else if (kind == 2) {
      reflection.RemoveLast(&message, &field);
    } else if (kind == 3) {
      reflection.SwapElements(&message, &field, at, size - 1);
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Change(*reflection.MutableRepeatedMessage(&message, &field, at));
    } else {
      Set(message, field, at);
    }
  }

  void Add(Message& message, const FieldDescriptor& field) {
    const Reflection& reflection = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        Change(*reflection.AddMessage(&message, &field));
        return;
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection.AddString(&message, &field, Text(""));
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection.AddInt32(&message, &field, static_cast<int32_t>(Integer(0)));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return reflection.AddFloat(&message, &field, static_cast<float>(Real(0)));
      default:
        return;  // the messages here have no other lists
    }
  }

  // A field, or element `at` of a list.
  void Set(Message& message, const FieldDescriptor& field, int at) {
    const Reflection& r = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return at < 0
                   ? r.SetInt32(&message, &field, static_cast<int32_t>(Integer(r.GetInt32(message, &field))))
                   : r.SetRepeatedInt32(
                         &message, &field, at,
                         static_cast<int32_t>(Integer(r.GetRepeatedInt32(message, &field, at))));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return at < 0 ? r.SetFloat(&message, &field, static_cast<float>(Real(r.GetFloat(message, &field))))
                      : r.SetRepeatedFloat(&message, &field, at,
                                           static_cast<float>(Real(r.GetRepeatedFloat(message, &field, at))));
      case FieldDescriptor::CPPTYPE_STRING:
        return at < 0 ? r.SetString(&message, &field, Text(r.GetString(message, &field)))
                      : r.SetRepeatedString(&message, &field, at,
                                            Text(r.GetRepeatedString(message, &field, at)));
      case FieldDescriptor::CPPTYPE_UINT32:
        return r.SetUInt32(&message, &field, static_cast<uint32_t>(Integer(r.GetUInt32(message, &field))));
      case FieldDescriptor::CPPTYPE_INT64:
        return r.SetInt64(&message, &field, Integer(r.GetInt64(message, &field)));
      case FieldDescriptor::CPPTYPE_UINT64:
        return r.SetUInt64(&message, &field, static_cast<uint64_t>(Integer(0)));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return r.SetDouble(&message, &field, Real(r.GetDouble(message, &field)));
      case FieldDescriptor::CPPTYPE_BOOL:
        return r.SetBool(&message, &field, OneIn(2));
      case FieldDescriptor::CPPTYPE_ENUM:
        return r.SetEnumValue(&message, &field, static_cast<int>(OneIn(8) ? Integer(0) : random_() % 8));
      default:
        return;
    }
  }

  int64_t Integer(int64_t old) {
    constexpr int64_t kEdges[] = {-1,
                                  0,
                                  1,
                                  2,
                                  127,
                                  128,
                                  255,
                                  256,
                                  257,
                                  999,
                                  1000,
                                  1023,
                                  1024,
                                  1025,
                                  4096,
                                  std::numeric_limits<int32_t>::min(),
                                  std::numeric_limits<int32_t>::max(),
                                  std::numeric_limits<int64_t>::min(),
                                  std::numeric_limits<int64_t>::max()};
    switch (random_() % 4) {
      case 0:
        return kEdges[random_() % std::size(kEdges)];
      case 1:
        return static_cast<int64_t>(static_cast<uint64_t>(old) + random_() % 5 - 2);
      default:
        return random_() % 20;
    }
  }

  double Real(double old) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    constexpr double kEdges[] = {0,     -0.0, 1,     -1,   2,         0.5,       100,
                                 100.5, -100, 1e-45, 1e30, kInfinity, -kInfinity};
    switch (random_() % 4) {
      case 0:
        return kEdges[random_() % std::size(kEdges)];
      case 1:
        return OneIn(4) ? std::numeric_limits<double>::quiet_NaN() : -old;
      case 2:
        return old - 0.25;
      default:
        return -static_cast<double>(random_() % 100) / 7;
    }
  }

  std::string Text(std::string text) {
    constexpr size_t kEdges[] = {0, 1, 64, 128, 129, 256, 257, 1024, 4096, 4097};
    if (OneIn(16)) {
      return std::string(kEdges[random_() % std::size(kEdges)], 'a');
    }
    const size_t room = std::max<size_t>(text.size() + 8, 16);
    const size_t size = text.size();
    text.resize(room);
    text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), size, room));
    return text;
  }

  std::minstd_rand random_;
};

}  // namespace

size_t MutateMessage(Message& message, uint8_t* data, size_t size, size_t max_size, uint32_t seed) {
  Mutator mutator(seed);
  if (mutator.OneIn(2) || !message.ParseFromArray(data, static_cast<int>(size))) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  do {
    mutator.Change(message);
  } while (!mutator.OneIn(3));
  const std::string bytes = message.SerializeAsString();
  if (bytes.size() > max_size) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  std::copy(bytes.begin(), bytes.end(), data);
  return bytes.size();
}

}  // namespace arborist::fuzz
