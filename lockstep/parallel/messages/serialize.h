// Serialization of values between processes of one build (cereal, in native byte order). Reads are
// bounded: an element count that exceeds the remaining bytes is rejected.
//
// A user-defined type needs a member
//   template <class Archive> void serialize(Archive& archive) { archive(a, b); }
#pragma once

#include <cereal/cereal.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/tuple.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/variant.hpp>
#include <cereal/types/vector.hpp>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "lockstep/base/bytes.h"
#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"

namespace lockstep {

class OutputArchive : public cereal::OutputArchive<OutputArchive, cereal::AllowEmptyClassElision> {
 public:
  explicit OutputArchive(Bytes& to)
      : cereal::OutputArchive<OutputArchive, cereal::AllowEmptyClassElision>(this), to_(to) {}
  void write(const void* data, size_t size) {
    const size_t before = to_.size();
    to_.resize(before + size);
    if (size > 0) std::memcpy(to_.data() + before, data, size);
  }

 private:
  Bytes& to_;
};

class InputArchive : public cereal::InputArchive<InputArchive, cereal::AllowEmptyClassElision> {
 public:
  explicit InputArchive(std::span<const std::byte> from)
      : cereal::InputArchive<InputArchive, cereal::AllowEmptyClassElision>(this), from_(from) {}
  void read(void* data, size_t size) {
    if (size > from_.size()) {
      throw DataError("[message] it ends " + std::to_string(size - from_.size()) +
                      " bytes too early");
    }
    if (size > 0) std::memcpy(data, from_.data(), size);
    from_ = from_.subspan(size);
  }
  size_t left() const { return from_.size(); }

 private:
  std::span<const std::byte> from_;
};

template <class T>
requires std::is_arithmetic_v<T>
void save(OutputArchive& archive, const T& value) { archive.write(&value, sizeof value); }
template <class T>
requires std::is_arithmetic_v<T>
void load(InputArchive& archive, T& value) { archive.read(&value, sizeof value); }
template <class T>
void save(OutputArchive& archive, const cereal::NameValuePair<T>& pair) {
  archive(pair.value);
}
template <class T>
void load(InputArchive& archive, cereal::NameValuePair<T>& pair) {
  archive(pair.value);
}
template <class T>
void save(OutputArchive& archive, const cereal::SizeTag<T>& tag) {
  archive(tag.size);
}
template <class T>
void load(InputArchive& archive, cereal::SizeTag<T>& tag) {
  archive(tag.size);
  if (tag.size > archive.left()) {
    throw DataError("[message] it names " + std::to_string(tag.size) + " elements with " +
                    std::to_string(archive.left()) + " bytes left");
  }
}
template <class T>
void save(OutputArchive& archive, const cereal::BinaryData<T>& data) {
  archive.write(data.data, static_cast<size_t>(data.size));
}
template <class T>
void load(InputArchive& archive, cereal::BinaryData<T>& data) {
  archive.read(data.data, static_cast<size_t>(data.size));
}

// Copies bytes as one block, not one by one.
inline void save(OutputArchive& archive, const Bytes& bytes) {
  archive(cereal::make_size_tag(static_cast<cereal::size_type>(bytes.size())));
  archive.write(bytes.data(), bytes.size());
}
inline void load(InputArchive& archive, Bytes& bytes) {
  cereal::size_type size = 0;
  archive(cereal::make_size_tag(size));
  bytes.resize(size);
  archive.read(bytes.data(), bytes.size());
}

template <class Archive>
void serialize(Archive& archive, Digest& digest) {
  archive(digest.high, digest.low);
}

template <class T>
Bytes encode(const T& value) {
  Bytes bytes;
  OutputArchive archive(bytes);
  archive(value);
  return bytes;
}

// Throws DataError for bytes that do not encode exactly one T.
template <class T>
T decode(std::span<const std::byte> bytes) {
  InputArchive archive(bytes);
  T value{};
  try {
    archive(value);
  } catch (const cereal::Exception&) {
    throw DataError("[message] its contents are not of the expected type");
  }
  if (archive.left() > 0) {
    throw DataError("[message] " + std::to_string(archive.left()) + " bytes too many");
  }
  return value;
}

}  // namespace lockstep

CEREAL_REGISTER_ARCHIVE(lockstep::OutputArchive)
CEREAL_REGISTER_ARCHIVE(lockstep::InputArchive)
CEREAL_SETUP_ARCHIVE_TRAITS(lockstep::InputArchive, lockstep::OutputArchive)
