#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/grammar/byte_grammar.h"
#include "common/grammar/json_value.h"

namespace arborist {

// The pieces of JSON texts, written as json_schema.h says. Rules that many pieces share are made once.
class JsonText {
 public:
  using Part = ByteGrammar::Part;
  static constexpr int kUnbounded = -1;
  static constexpr int64_t kLargestInteger = 999'999'999'999'999'999;  // 18 digits

  explicit JsonText(ByteGrammar& grammar) : grammar_(grammar) {}

  Part Never();                                 // no text
  Part Space();                                 // may be empty
  Part String(int min_length, int max_length);  // in characters; max may be kUnbounded
  Part Quoted(Part body);
  Part Integer(int64_t low, int64_t high);  // both inclusive and within +-kLargestInteger; low > high: none
  Part Integer();
  Part Number(int64_t low, int64_t high);  // as Integer(low, high), with fractions between the bounds
  Part Number();
  Part Literal(const JsonValue& value);

  // Elements are rules. `rest` (any number of them) follows the first ones; -1: nothing does.
  Part Array(const std::vector<int32_t>& first, int32_t rest, int min_items, int max_items);

  struct Property {
    std::string name;
    int32_t rule;
    bool required;
  };
  // `additional`: the rule of other members' values; -1: there are none.
  Part Object(const std::vector<Property>& properties, int32_t additional);

  int32_t Any();  // the rule of every JSON value

 private:
  Part Character();
  Part Digits(int least, int most);
  Part Natural(int64_t low, int64_t high);
  void FixedDigits(const std::string& low, const std::string& high, Part whole);
  Part OtherKey(const std::vector<Property>& properties);
  Part Member(Part key, int32_t rule);

  ByteGrammar& grammar_;
  int32_t space_ = -1;
  int32_t character_ = -1;
  int32_t any_ = -1;
};

// `text` as a JSON string with its quotes; characters are escaped where they must be.
std::string QuotedJson(std::string_view text);

}  // namespace arborist
