#include "lockstep/engine/kernels/backends/support.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"

namespace lockstep::kernels {
namespace {

// A string as a template argument: the name of an entry.
template <size_t size>
struct Name {
  char text[size];
  constexpr Name(const char (&from)[size]) { std::copy_n(from, size, text); }
  constexpr std::string_view view() const { return {text, size - 1}; }
};

// Calls visit.operator()<name>(entry) for each entry.
template <class AnyTable, class Visit>
void for_each_entry(AnyTable& t, Visit&& visit) {
  visit.template operator()<"convolution">(t.convolution);
  visit.template operator()<"transposed_convolution">(t.transposed_convolution);
  visit.template operator()<"fully_connected">(t.fully_connected);
  visit.template operator()<"batch_normalization">(t.batch_normalization);
  visit.template operator()<"group_normalization">(t.group_normalization);
  visit.template operator()<"pooling">(t.pooling);
  visit.template operator()<"relu">(t.relu);
  visit.template operator()<"clipped_relu">(t.clipped_relu);
  visit.template operator()<"activation">(t.activation);
  visit.template operator()<"addition">(t.addition);
  visit.template operator()<"multiplication">(t.multiplication);
  visit.template operator()<"dropout">(t.dropout);
  visit.template operator()<"reshape">(t.reshape);
  visit.template operator()<"concatenation">(t.concatenation);
  visit.template operator()<"sum">(t.sum);
  visit.template operator()<"softmax">(t.softmax);
  visit.template operator()<"cross_entropy">(t.cross_entropy);
  visit.template operator()<"mean_squared_error">(t.mean_squared_error);
  visit.template operator()<"normalize_images">(t.normalize_images);
  visit.template operator()<"reorder">(t.reorder);
  visit.template operator()<"accumulate">(t.accumulate);
  visit.template operator()<"zero">(t.zero);
  visit.template operator()<"sgdm">(t.sgdm);
  visit.template operator()<"adam">(t.adam);
  visit.template operator()<"rmsprop">(t.rmsprop);
  visit.template operator()<"sgdm_of_all">(t.sgdm_of_all);
  visit.template operator()<"adam_of_all">(t.adam_of_all);
  visit.template operator()<"rmsprop_of_all">(t.rmsprop_of_all);
  visit.template operator()<"add">(t.add);
  visit.template operator()<"block_squares">(t.block_squares);
  visit.template operator()<"limit">(t.limit);
  visit.template operator()<"divide">(t.divide);
  visit.template operator()<"augment_images">(t.augment_images);
}
// A new entry of Table needs a line above.
static_assert(sizeof(Table) == sizeof(void*) * (1 + 33));

// Not entries of Table, but usable under the same conditions.
constexpr const char *kNccl = "nccl", *kBf16 = "bf16", *kF16 = "f16";

// Entries that read or write bf16 and f16.
constexpr std::string_view kNarrow[] = {"convolution",     "transposed_convolution",
                                        "fully_connected", "batch_normalization",
                                        "pooling",         "relu",
                                        "addition",        "reshape",
                                        "concatenation",   "reorder",
                                        "accumulate"};

template <Name name, bool present, class Result, class... Arguments>
Result refuse(Arguments...) {
  const std::string text(name.view());
  if constexpr (present) {
    throw Unsupported(
        "[kernels] " + text + " has never run on a GPU",
        "name it in LOCKSTEP_UNVERIFIED=" + text + ",... (or all) to use it all the same");
  } else {
    throw Unsupported("[kernels] " + text + " has no CUDA kernel", "the CPU has one");
  }
}

// Optional entries: callers have a fallback.
constexpr bool is_optional(std::string_view name) {
  return name.ends_with("_of_all") || name == "augment_images";
}

template <Name name, class Result, class... Arguments>
void guard(Result (*&entry)(Arguments...), bool usable) {
  if (usable) return;
  if constexpr (is_optional(name.view())) {
    entry = nullptr;
    return;
  }
  entry =
      entry ? refuse<name, true, Result, Arguments...> : refuse<name, false, Result, Arguments...>;
}

std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const size_t end = list.find(',');
    if (end != 0) names.emplace_back(list.substr(0, end));
    list = end == list.npos ? std::string_view() : list.substr(end + 1);
  }
  return names;
}

bool is_unlocked(std::string_view name, std::string_view unlocked) {
  const std::vector<std::string> named = names_in(unlocked);
  return std::any_of(named.begin(), named.end(),
                     [&](const std::string& n) { return n == name || n == "all"; });
}

}  // namespace

std::vector<KernelSupport> kernel_support(const Table& table,
                                          std::span<const cuda::Verified> verified,
                                          std::string_view unlocked) {
  const std::vector<std::string> named = names_in(unlocked);
  const auto is_named = [&](std::string_view name) {
    return std::find(named.begin(), named.end(), name) != named.end();
  };
  const bool all = is_named("all");
  std::vector<KernelSupport> support;
  for_each_entry(table, [&]<Name name>(const auto& entry) {
    KernelSupport s{.name = name.view(), .present = entry != nullptr};
    for (const cuda::Verified& v : verified) {
      if (v.name == s.name && !is_narrow(v.dtype)) s.verified = &v;
    }
    s.unlocked = all || is_named(s.name);
    s.optional = is_optional(s.name);
    support.push_back(s);
  });
  std::vector<std::string> known{"all", kNccl, kBf16, kF16};
  for (const auto& s : support) known.emplace_back(s.name);
  for (const std::string& name : named) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw InvalidArgument("[kernels] LOCKSTEP_UNVERIFIED names `" + name + "`, which is no kernel",
                          suggest(name, known));
  }
  return support;
}

bool narrow_usable(const Table& table, DType narrow, std::span<const cuda::Verified> verified,
                   std::string_view unlocked) {
  const bool offered = narrow == DType::bf16 ? table.bf16 : table.f16;
  return offered &&
         (is_unlocked(name_of(narrow), unlocked) ||
          std::all_of(std::begin(kNarrow), std::end(kNarrow), [&](std::string_view name) {
            return std::any_of(verified.begin(), verified.end(), [&](const cuda::Verified& v) {
              return v.name == name && v.dtype == narrow;
            });
          }));
}

bool nccl_usable(std::span<const cuda::Verified> verified, std::string_view unlocked) {
  return is_unlocked(kNccl, unlocked) ||
         std::any_of(verified.begin(), verified.end(),
                     [](const cuda::Verified& v) { return v.name == kNccl; });
}

Table guarded(const Table& table, std::span<const cuda::Verified> verified,
              std::string_view unlocked) {
  const std::vector<KernelSupport> support = kernel_support(table, verified, unlocked);
  Table result = table;
  result.bf16 = narrow_usable(table, DType::bf16, verified, unlocked);
  result.f16 = narrow_usable(table, DType::f16, verified, unlocked);
  auto next = support.begin();
  for_each_entry(result, [&]<Name name>(auto& entry) { guard<name>(entry, (next++)->usable()); });
  return result;
}

}  // namespace lockstep::kernels
