// Messages that begin with a number or an enumerator, which identifies their type.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

#include "lockstep/base/bytes.h"
#include "lockstep/base/error.h"

namespace lockstep {

// Puts the prefix in front of a message.
template <class T>
requires std::is_trivially_copyable_v<T> Bytes with_prefix(T prefix,
                                                           std::span<const std::byte> rest) {
  Bytes bytes(sizeof prefix + rest.size());
  std::memcpy(bytes.data(), &prefix, sizeof prefix);
  if (!rest.empty()) std::memcpy(bytes.data() + sizeof prefix, rest.data(), rest.size());
  return bytes;
}

// Removes the prefix and returns it. Throws DataError if there are too few bytes.
template <class T>
requires std::is_trivially_copyable_v<T> T take_prefix(std::span<const std::byte>& bytes) {
  T prefix{};
  if (bytes.size() < sizeof prefix)
    throw DataError("[message] the message is shorter than its prefix");
  std::memcpy(&prefix, bytes.data(), sizeof prefix);
  bytes = bytes.subspan(sizeof prefix);
  return prefix;
}

}  // namespace lockstep
