#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace arborist {

// Command line flags that override a config: --name=value, --name value, or --name alone for switches. Flags
// are applied in the order of the command line, so one may be given several times.
class FlagSet {
 public:
  explicit FlagSet(std::string usage) : usage_(std::move(usage)) {}

  // `apply` gets the value and returns InvalidArgument for a bad one.
  void Add(std::string name, std::string help, std::function<absl::Status(const std::string&)> apply);
  // Any text is a good value.
  void AddText(std::string name, std::string help, std::function<void(const std::string&)> apply);
  void AddSwitch(std::string name, std::string help, std::function<void()> apply);
  // Decimal, the whole value, in [least, most].
  void AddInteger(std::string name, std::string help, int64_t least, int64_t most,
                  std::function<void(int64_t)> apply);

  // argv[0] is skipped. Unknown flags, stray words and missing values are InvalidArgument.
  absl::Status Parse(int argc, const char* const* argv) const;
  std::string Help() const;

 private:
  struct Flag {
    std::string name;
    std::string help;
    bool takes_value = true;
    std::function<absl::Status(const std::string&)> apply;
  };
  const Flag* Find(const std::string& name) const;

  std::string usage_;
  std::vector<Flag> flags_;
};

}  // namespace arborist
