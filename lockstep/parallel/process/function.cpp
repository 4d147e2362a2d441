#include "lockstep/parallel/process/function.h"

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

struct Entry {
  AnyFunction thunk;
  uint64_t signature;
};

std::vector<Entry>& table() {
  static std::vector<Entry> entries;
  return entries;
}

}  // namespace

FunctionId add_function(AnyFunction thunk, const std::type_info& type) {
  const char* const name = type.name();
  const uint64_t signature = digest_of(name, std::strlen(name)).low;
  table().push_back({thunk, signature});
  return {static_cast<uint32_t>(table().size() - 1), signature};
}

AnyFunction find_function(const FunctionId& id) {
  const auto& entries = table();
  if (id.index < entries.size() && entries[id.index].signature == id.signature) {
    return entries[id.index].thunk;
  }
  throw InvalidArgument(
      "[function] this executable has no function " + std::to_string(id.index) + " of that type",
      "client and workers must run the same build");
}

}  // namespace lockstep::detail
