#include "lockstep/data/datastores/sequences/numpy_file.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/counted.h"
#include "lockstep/base/crc.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are read as little-endian");

constexpr Crc<uint32_t> kZipChecksum(0xEDB88320u);

// The bytes of a file, for messages with its path.
struct NumpyBytes {
  std::string_view text;
  const std::string& path;

  [[noreturn]] void refuse(const std::string& what, const std::string& hint = {}) const {
    throw DataError("[numpy] " + path + " " + what, hint);
  }
  std::string_view part(size_t from, size_t count) const {
    if (from > text.size() || count > text.size() - from) refuse("ends too early");
    return text.substr(from, count);
  }
  // A little-endian number of 2 or 4 bytes.
  uint64_t number(size_t from, size_t count) const {
    uint64_t value = 0;
    std::memcpy(&value, part(from, count).data(), count);
    return value;
  }
};

// ---- The header of an array ----

struct NumpyHeader {
  char order = '<';  // byte order: '<', '>', or '|' for single bytes
  char kind = 'f';   // f, i, u, b
  size_t width = 0;  // bytes of an element
  bool columns_first = false;
  std::vector<int64_t> dims;
};

// What follows 'key': in the header, without blanks before it.
std::string_view header_value(const NumpyBytes& file, std::string_view header,
                              const std::string& key) {
  const size_t at = header.find("'" + key + "':");
  if (at == std::string_view::npos) file.refuse("has no `" + key + "` in its header");
  header.remove_prefix(at + key.size() + 3);
  header.remove_prefix(std::min(header.find_first_not_of(' '), header.size()));
  return header;
}

void take_type(const NumpyBytes& file, std::string_view header, NumpyHeader& into) {
  std::string_view text = header_value(file, header, "descr");
  const size_t end = text.size() < 2 ? std::string_view::npos : text.find('\'', 1);
  const bool quoted = text.starts_with('\'') && end != std::string_view::npos;
  const std::string type(quoted ? text.substr(1, end - 1) : text.substr(0, 20));
  size_t width = 0;
  if (type.size() == 3) width = static_cast<size_t>(type[2] - '0');
  const std::string_view kinds = width == 1   ? "iub"
                                 : width == 2 ? "iuf"
                                 : width == 4 ? "iuf"
                                 : width == 8 ? "iuf"
                                              : "";
  const bool known = quoted && type.size() == 3 && kinds.find(type[1]) != std::string_view::npos &&
                     std::string_view("<>|=").find(type[0]) != std::string_view::npos;
  if (!known) {
    file.refuse("has elements of the type " + type + ", which is not read",
                "convert them to float32 before numpy.save()");
  }
  into.order = type[0];
  into.kind = type[1];
  into.width = width;
}

void take_shape(const NumpyBytes& file, std::string_view header, NumpyHeader& into) {
  const std::string_view text = header_value(file, header, "shape");
  const size_t end = text.find(')');
  if (!text.starts_with('(') || end == std::string_view::npos) file.refuse("has no valid shape");
  const char* at = text.data() + 1;
  const char* const stop = text.data() + end;
  while (at < stop) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    int64_t dim = 0;
    const auto [next, error] = std::from_chars(at, stop, dim);
    if (error != std::errc() || dim < 0) file.refuse("has no valid shape");
    into.dims.push_back(dim);
    at = next;
  }
}

// ---- Elements ----

float half_to_float(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int mantissa = half & 1023;
  const float sign = half & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
}

template <class T>
T bits_at(const char* from, bool swapped) {
  unsigned char bytes[sizeof(T)];
  std::memcpy(bytes, from, sizeof(T));
  if (swapped) std::reverse(bytes, bytes + sizeof(T));
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

template <class T>
double number_at(const char* from, bool swapped) {
  return static_cast<double>(bits_at<T>(from, swapped));
}

double element_at(const NumpyHeader& header, const char* from) {
  const bool swapped = header.order == '>';
  const bool is_signed = header.kind == 'i';
  if (header.kind == 'f') {
    if (header.width == 8) return number_at<double>(from, swapped);
    if (header.width == 4) return static_cast<double>(number_at<float>(from, swapped));
    const auto bits = static_cast<uint16_t>(number_at<uint16_t>(from, swapped));
    return static_cast<double>(half_to_float(bits));
  }
  switch (header.width) {
    case 1:
      return is_signed ? number_at<int8_t>(from, false) : number_at<uint8_t>(from, false);
    case 2:
      return is_signed ? number_at<int16_t>(from, swapped) : number_at<uint16_t>(from, swapped);
    case 4:
      return is_signed ? number_at<int32_t>(from, swapped) : number_at<uint32_t>(from, swapped);
    default:
      return is_signed ? number_at<int64_t>(from, swapped) : number_at<uint64_t>(from, swapped);
  }
}

// Whether f32 holds an integer with this magnitude: 24 bits from its highest to its lowest.
bool fits_f32(uint64_t magnitude) {
  constexpr int kBits = 24;
  return magnitude == 0 || std::bit_width(magnitude) - std::countr_zero(magnitude) <= kBits;
}

// An integer of 4 or 8 bytes that f32 does not hold, as text; else "".
std::string rounded_integer(const NumpyHeader& header, const char* from) {
  if (header.kind == 'f' || header.width < 4) return {};
  const bool swapped = header.order == '>', is_signed = header.kind == 'i';
  if (header.width == 4 || is_signed) {
    const int64_t value = header.width == 8 ? bits_at<int64_t>(from, swapped)
                          : is_signed       ? bits_at<int32_t>(from, swapped)
                                            : int64_t{bits_at<uint32_t>(from, swapped)};
    const auto bits = static_cast<uint64_t>(value);
    return fits_f32(value < 0 ? 0 - bits : bits) ? "" : std::to_string(value);
  }
  const auto value = bits_at<uint64_t>(from, swapped);
  return fits_f32(value) ? "" : std::to_string(value);
}

// "[3, 0]"
std::string text_of_index(const Shape& shape, int64_t element) {
  std::string text;
  for (size_t d = shape.rank(); d > 0; --d) {
    const int64_t dim = shape[static_cast<int>(d) - 1];
    text = std::to_string(element % dim) + (text.empty() ? "" : ", ") + text;
    element /= dim;
  }
  return "[" + text + "]";
}

// Where element number `element`, counted row-major, lies if columns come first.
int64_t column_major(const Shape& shape, int64_t element) {
  int64_t index = 0, stride = shape.elements();
  for (size_t d = shape.rank(); d > 0; --d) {
    const int64_t dim = shape[static_cast<int>(d) - 1];
    stride /= dim;
    index += element % dim * stride;
    element /= dim;
  }
  return index;
}

Array array_of(const NumpyBytes& file, const NumpyHeader& header, std::string_view data) {
  constexpr double kTooLarge = 0x1.ffffffp127;  // rounds to infinity in f32
  Array array;
  try {
    array.shape = Shape(header.dims);
  } catch (const InvalidArgument&) {
    file.refuse("has a shape of too many elements");
  }
  const int64_t count = array.shape.elements();
  if (data.size() / header.width != static_cast<size_t>(count) || data.size() % header.width != 0) {
    file.refuse("has " + std::to_string(data.size()) + " bytes of elements, but its shape " +
                array.shape.to_string() + " has " + counted(count, "element") + " of " +
                std::to_string(header.width));
  }
  array.values.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t from = header.columns_first ? column_major(array.shape, i) : i;
    const char* const at = data.data() + static_cast<size_t>(from) * header.width;
    if (const std::string integer = rounded_integer(header, at); !integer.empty()) {
      file.refuse("has " + integer + " at " + text_of_index(array.shape, i) +
                      ", which f32 cannot hold: its integers are exact up to 16777216",
                  "subtract an offset, or round with astype(\"float32\") before numpy.save(); "
                  "elements count from 0");
    }
    const double value = element_at(header, at);
    if (!(std::abs(value) < kTooLarge)) {
      file.refuse("has " + std::string(std::isnan(value) ? "NaN" : std::to_string(value)) + " at " +
                      text_of_index(array.shape, i) +
                      (std::isfinite(value) ? ", which is out of the range of f32"
                                            : ", which is not finite"),
                  "elements count from 0");
    }
    array.values.push_back(static_cast<float>(value));
  }
  return array;
}

// The header of an .npy file, and where its elements begin.
std::pair<NumpyHeader, size_t> read_header(const NumpyBytes& file) {
  constexpr size_t kMagic = 6;
  const uint64_t version = file.number(kMagic, 1);
  if (version < 1 || version > 3) {
    file.refuse("has version " + std::to_string(version) + " of the format, which is not known");
  }
  const size_t length = version == 1 ? 2 : 4;
  const size_t begin = kMagic + 2 + length;
  const auto count = static_cast<size_t>(file.number(kMagic + 2, length));
  const std::string_view text = file.part(begin, count);
  NumpyHeader header;
  take_type(file, text, header);
  take_shape(file, text, header);
  header.columns_first = header_value(file, text, "fortran_order").starts_with("True");
  return {header, begin + count};
}

Array read_npy(const NumpyBytes& file) {
  const auto [header, begin] = read_header(file);
  return array_of(file, header, file.text.substr(begin));
}

// ---- Archives ----

struct ZipMember {
  std::string name;
  uint64_t method = 0, checksum = 0, stored = 0, size = 0, at = 0;
};

std::vector<ZipMember> zip_members(const NumpyBytes& file) {
  constexpr size_t kEnd = 22, kMember = 46;
  const size_t end = file.text.rfind("PK\x05\x06");
  if (end == std::string_view::npos) file.refuse("is damaged: its list of arrays is missing");
  file.part(end, kEnd);
  auto at = static_cast<size_t>(file.number(end + 16, 4));
  std::vector<ZipMember> members;
  for (uint64_t left = file.number(end + 10, 2); left > 0; --left) {
    if (file.part(at, kMember).substr(0, 4) != "PK\x01\x02") {
      file.refuse("is damaged: its list of arrays is not valid");
    }
    const auto length = static_cast<size_t>(file.number(at + 28, 2));
    members.push_back({.name = std::string(file.part(at + kMember, length)),
                       .method = file.number(at + 10, 2),
                       .checksum = file.number(at + 16, 4),
                       .stored = file.number(at + 20, 4),
                       .size = file.number(at + 24, 4),
                       .at = file.number(at + 42, 4)});
    at += kMember + length + file.number(at + 30, 2) + file.number(at + 32, 2);
  }
  return members;
}

std::string_view contents_of_member(const NumpyBytes& file, const ZipMember& member) {
  constexpr size_t kLocal = 30;
  constexpr uint64_t kElsewhere = 0xFFFFFFFF;  // the size is in a field for large files
  if (member.method != 0) {
    file.refuse("is compressed, which is not read", "write it with numpy.savez()");
  }
  if (member.size == kElsewhere || member.at == kElsewhere) {
    file.refuse("has an array of 4 GiB or more, which is not read", "write it with numpy.save()");
  }
  const auto at = static_cast<size_t>(member.at);
  if (file.part(at, kLocal).substr(0, 4) != "PK\x03\x04" || member.stored != member.size) {
    file.refuse("is damaged: its array `" + member.name + "` is not where it should be");
  }
  const auto skipped = static_cast<size_t>(file.number(at + 26, 2) + file.number(at + 28, 2));
  const std::string_view data = file.part(at + kLocal + skipped, static_cast<size_t>(member.size));
  if (kZipChecksum.of(data) != member.checksum) {
    file.refuse("is damaged: its array `" + member.name + "` has another checksum");
  }
  return data;
}

constexpr std::string_view kMagicOfArray = "\x93NUMPY";

Array read_npz(const NumpyBytes& file, const std::string& member) {
  const std::vector<ZipMember> members = zip_members(file);
  std::string names;
  const ZipMember* found = nullptr;
  for (const ZipMember& one : members) {
    const std::string name =
        one.name.ends_with(".npy") ? one.name.substr(0, one.name.size() - 4) : one.name;
    names += (names.empty() ? "`" : ", `") + name + "`";
    if (name == member || (member.empty() && members.size() == 1)) found = &one;
  }
  if (found == nullptr) {
    const std::string wanted = member.empty() ? "one array" : "an array `" + member + "`";
    file.refuse("has " + (names.empty() ? std::string("no arrays") : "the arrays " + names) +
                ", but " + wanted + " is expected");
  }
  const NumpyBytes array{contents_of_member(file, *found), file.path};
  if (!array.text.starts_with(kMagicOfArray)) {
    file.refuse("has a member `" + found->name + "`, which is not an array");
  }
  return read_npy(array);
}

}  // namespace

Array read_numpy(std::span<const std::byte> bytes, const std::string& path,
                 const std::string& member) {
  const NumpyBytes file{{reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path};
  if (file.text.starts_with(kMagicOfArray)) return read_npy(file);
  if (file.text.starts_with("PK")) return read_npz(file, member);
  file.refuse(bytes.empty() ? "is empty" : "is not an array of NumPy",
              "files are written by numpy.save() or numpy.savez()");
}

NumpyIntegers numpy_integers(std::span<const std::byte> begin, const std::string& path) {
  const NumpyBytes file{{reinterpret_cast<const char*>(begin.data()), begin.size()}, path};
  if (!file.text.starts_with(kMagicOfArray)) {
    file.refuse("is not an array of NumPy", "files are written by numpy.save()");
  }
  const auto [header, offset] = read_header(file);
  const bool integers = header.kind == 'i' || header.kind == 'u';
  if (!integers || header.order == '>' || header.dims.size() != 1) {
    file.refuse("is not a one-dimensional array of little-endian integers",
                "convert it by x.ravel().astype(\"uint16\") before numpy.save()");
  }
  return {.offset = offset,
          .width = header.width,
          .count = static_cast<size_t>(header.dims[0]),
          .is_signed = header.kind == 'i'};
}

bool is_numpy_name(std::string_view name) {
  constexpr size_t kExtension = 4;
  if (name.size() <= kExtension) return false;
  std::string end(name.substr(name.size() - kExtension));
  for (char& c : end) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return end == ".npy" || end == ".npz";
}

}  // namespace lockstep
