// Ops that eager calls apply again and again.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "lockstep/engine/graph/op.h"

namespace lockstep {

template <class T>
OpPtr kept(std::shared_ptr<T> op) {
  op->keep();
  return op;
}

// The op T(settings...), for equal settings the same one on each thread. Eager calls keep the
// kernels of such an op. Settings are compared by <, so they are not floating-point numbers, of
// which NaN equals all.
template <class T, class... Settings>
OpPtr kept_op(const Settings&... settings) {
  static_assert(!(std::is_floating_point_v<Settings> || ...));
  constexpr size_t most = 64;  // settings that change with every call would pile up
  thread_local std::map<std::tuple<Settings...>, OpPtr, std::less<>> kept;
  const auto found = kept.find(std::tie(settings...));
  if (found != kept.end()) return found->second;
  OpPtr made = lockstep::kept(std::make_shared<T>(settings...));
  if (kept.size() == most) kept.clear();
  return kept.emplace(std::tuple<Settings...>(settings...), std::move(made)).first->second;
}

}  // namespace lockstep
