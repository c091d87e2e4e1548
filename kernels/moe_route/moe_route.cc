#include "kernels/moe_route/moe_route.h"

#include "absl/strings/str_cat.h"

namespace arborist::kernels {

absl::Status ValidateMoeRoute(const MoeRouteArgs& args) {
  const auto wrong = [](absl::string_view field, int64_t value, const std::string& expected) {
    return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", expected));
  };
  const int64_t experts = args.logits.columns;
  if (experts < 1 || experts > kMaxRoutedExperts) {
    return wrong("logits.columns", experts, absl::StrCat("1 to ", kMaxRoutedExperts, " experts"));
  }
  if (args.bias.size != 0 && args.bias.size != experts) {
    return wrong("bias.size", args.bias.size, absl::StrCat("0 or ", experts));
  }
  if (args.groups < 1 || experts % args.groups != 0) {
    return wrong("groups", args.groups, absl::StrCat("a divisor of ", experts));
  }
  if (args.kept_groups < 1 || args.kept_groups > args.groups) {
    return wrong("kept_groups", args.kept_groups, absl::StrCat("1 to ", args.groups));
  }
  if (args.top_k < 1 || args.top_k > experts / args.groups * args.kept_groups) {
    return wrong("top_k", args.top_k, absl::StrCat("1 to ", experts / args.groups * args.kept_groups));
  }
  if (args.expert.rows != args.logits.rows || args.expert.columns != args.top_k) {
    return wrong("expert.columns", args.expert.columns,
                 absl::StrCat("top_k=", args.top_k, " and as many rows as logits"));
  }
  if (args.weight.rows != args.logits.rows || args.weight.columns != args.top_k) {
    return wrong("weight.columns", args.weight.columns,
                 absl::StrCat("top_k=", args.top_k, " and as many rows as logits"));
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
