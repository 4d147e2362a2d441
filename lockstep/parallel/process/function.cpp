#include "lockstep/parallel/process/function.h"

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

struct Entry {
  AnyFunction thunk;
  PackedFunction packed;
  uint64_t signature;
};

std::vector<Entry>& table() {
  static std::vector<Entry> entries;
  return entries;
}

const Entry& entry_of(const FunctionId& id) {
  const auto& entries = table();
  if (id.index < entries.size() && entries[id.index].signature == id.signature) {
    return entries[id.index];
  }
  throw InvalidArgument(
      "[function] this executable has no function " + std::to_string(id.index) + " of that type",
      "client and workers must run the same build");
}

}  // namespace

FunctionId add_function(AnyFunction thunk, PackedFunction packed, const std::type_info& type) {
  const char* const name = type.name();
  const uint64_t signature = digest_of(name, std::strlen(name)).low;
  table().push_back({thunk, packed, signature});
  return {static_cast<uint32_t>(table().size() - 1), signature};
}

AnyFunction find_function(const FunctionId& id) { return entry_of(id).thunk; }

PackedFunction find_packed(const FunctionId& id) { return entry_of(id).packed; }

}  // namespace lockstep::detail
