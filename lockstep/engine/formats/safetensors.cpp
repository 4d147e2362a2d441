#include "lockstep/engine/formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/numeric/bfloat16.h"
#include "lockstep/base/numeric/float16.h"

namespace lockstep {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "tensors are stored as they lie in memory");

constexpr size_t length_bytes = 8;
constexpr size_t alignment = 64;
constexpr uint64_t largest_header = 100'000'000;
constexpr int deepest_header = 3;  // header, tensor, its list of numbers

constexpr struct {
  DType dtype;
  const char* name;
} dtypes[] = {{DType::f32, "F32"}, {DType::i32, "I32"}, {DType::i64, "I64"},
              {DType::u8, "U8"},   {DType::f16, "F16"}, {DType::bf16, "BF16"}};

// f32 has all numbers of the types of 16 bits.
template <class Narrow>
void widen(const std::byte* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    Narrow number;
    std::memcpy(&number.bits, from + static_cast<size_t>(i) * sizeof number.bits,
                sizeof number.bits);
    to[i] = to_float(number);
  }
}

[[noreturn]] void damaged(const std::string& file, const std::string& what,
                          const std::string& hint = {}) {
  throw DataError("[safetensors] " + file + ": " + what, hint);
}

// What other programs write for networks, by its first bytes, which are not the length of a
// header; "": nothing known.
std::string other_kind(std::span<const std::byte> bytes) {
  const std::string_view first(reinterpret_cast<const char*>(bytes.data()),
                               std::min<size_t>(bytes.size(), 8));
  const bool pickled = first.size() > 1 && first[0] == '\x80' && first[1] >= 2 && first[1] <= 5;
  if (pickled) return "a pickle of Python, as torch.save() once wrote";
  if (first.starts_with("PK\x03\x04"))
    return "a ZIP archive, as torch.save() and numpy.savez() write";
  if (first.starts_with("\x89HDF")) return "an HDF5 file, as Keras writes";
  if (first.starts_with("GGUF")) return "a GGUF file";
  return {};
}

constexpr const char* kHowToWrite =
    "in Python: safetensors.torch.save_file(model.state_dict(), \"model.safetensors\")";

std::string quoted(const std::string& name) {
  constexpr size_t longest = 100;
  // Escapes the name as JSON, so that odd bytes do not corrupt a terminal.
  return json(name.substr(0, longest)).dump(-1, ' ', true, json::error_handler_t::replace);
}

json parse_header(std::string_view text, const std::string& file) {
  try {
    json header = parse_json<json>(text, {.deepest = deepest_header, .unique_keys = true});
    if (!header.is_object()) damaged(file, "the header is not a JSON object");
    return header;
  } catch (const JsonError& error) {
    using Kind = JsonError::Kind;
    if (error.kind() == Kind::depth) damaged(file, "the header is nested too deeply");
    if (error.kind() != Kind::syntax) damaged(file, std::string("the header: ") + error.what());
    damaged(file,
            "the header is not JSON (byte " + std::to_string(length_bytes + error.byte()) + ")");
  }
}

struct Entry {
  std::string name;
  DType dtype;
  Shape shape;
  uint64_t begin, end;
};

uint64_t whole(const json& value, const std::string& file, const std::string& where) {
  if (!value.is_number_unsigned()) damaged(file, where + " must be whole numbers");
  return value.get<uint64_t>();
}

Entry read_entry(const std::string& name, const json& object, const std::string& file) {
  const std::string where = "tensor " + quoted(name);
  if (!object.is_object()) damaged(file, where + " is not described by an object");
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!object.contains(key)) damaged(file, where + " has no " + key);
  }
  if (object.size() != 3) damaged(file, where + " has fields that the format does not have");
  Entry entry{name, DType::f32, {}, 0, 0};
  const json& type = object["dtype"];
  const auto* known = std::find_if(std::begin(dtypes), std::end(dtypes),
                                   [&](const auto& d) { return type == d.name; });
  if (known == std::end(dtypes)) {
    damaged(file,
            where + " has type " + (type.is_string() ? quoted(type) : "that is not a text") +
                "; F32, F16, BF16, I32, I64 and U8 are supported",
            type == "F64" ? "convert it: model.float() before model.state_dict()" : "");
  }
  entry.dtype = known->dtype;
  if (!object["shape"].is_array()) damaged(file, where + ": the shape is not a list");
  std::vector<int64_t> dims;
  for (const json& dim : object["shape"]) {
    const uint64_t extent = whole(dim, file, where + ": the shape");
    if (extent > static_cast<uint64_t>(INT64_MAX))
      damaged(file, where + ": the shape is too large");
    dims.push_back(static_cast<int64_t>(extent));
  }
  try {
    entry.shape = Shape(std::move(dims));
  } catch (const InvalidArgument&) {
    damaged(file, where + ": the shape is too large");
  }
  const json& offsets = object["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2)
    damaged(file, where + ": data_offsets must be two numbers");
  entry.begin = whole(offsets[0], file, where + ": data_offsets");
  entry.end = whole(offsets[1], file, where + ": data_offsets");
  const auto elements = static_cast<uint64_t>(entry.shape.elements());
  const uint64_t size = size_of(entry.dtype);
  if (entry.begin > entry.end || elements > UINT64_MAX / size ||
      entry.end - entry.begin != elements * size) {
    damaged(file, where + ": data_offsets do not fit its shape " + entry.shape.to_string());
  }
  return entry;
}

}  // namespace

const Tensor& SafetensorsFile::at(const std::string& name, const std::string& file) const {
  for (const NamedTensor& tensor : tensors) {
    if (tensor.name == name) return tensor.tensor;
  }
  damaged(file, "tensor " + quoted(name) + " is missing");
}

std::vector<std::byte> write_safetensors(const std::vector<NamedTensor>& tensors,
                                         const std::map<std::string, std::string>& metadata) {
  // Wide elements first, so that every tensor is aligned to its element size.
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return size_of(a->tensor.dtype()) > size_of(b->tensor.dtype());
  });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string> names{"__metadata__"};
  uint64_t offset = 0;
  for (const NamedTensor* entry : order) {
    if (!names.insert(entry->name).second) {
      throw InvalidArgument("[safetensors] " + quoted(entry->name) +
                            (entry->name == "__metadata__" ? " is not a valid tensor name"
                                                           : " is the name of two tensors"));
    }
    if (!entry->tensor.defined()) {
      throw InvalidArgument("[safetensors] the tensor is undefined: " + quoted(entry->name));
    }
    const auto* type = std::find_if(std::begin(dtypes), std::end(dtypes), [&](const auto& d) {
      return d.dtype == entry->tensor.dtype();
    });
    const uint64_t end = offset + entry->tensor.spec().plain().bytes();
    header[entry->name] = {{"dtype", type->name},
                           {"shape", entry->tensor.shape().dims()},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception&) {
    throw InvalidArgument("[safetensors] a name or the metadata is not UTF-8");
  }
  text.resize((length_bytes + text.size() + alignment - 1) / alignment * alignment - length_bytes,
              ' ');
  if (text.size() > largest_header) {
    throw InvalidArgument("[safetensors] the header has " + std::to_string(text.size()) +
                          " bytes, more than the format allows");
  }

  std::vector<std::byte> bytes(length_bytes + text.size() + offset);
  const uint64_t length = text.size();
  std::memcpy(bytes.data(), &length, length_bytes);
  std::memcpy(bytes.data() + length_bytes, text.data(), text.size());
  std::byte* next = bytes.data() + length_bytes + text.size();
  for (const NamedTensor* entry : order) {
    const Tensor plain = entry->tensor.to({}).to_row_major();
    if (plain.bytes() > 0) std::memcpy(next, plain.raw(), plain.bytes());
    next += plain.bytes();
  }
  return bytes;
}

SafetensorsFile read_safetensors(std::span<const std::byte> bytes, const std::string& file) {
  if (bytes.size() < length_bytes) {
    damaged(file, "has " + std::to_string(bytes.size()) + " bytes, too few for a header");
  }
  uint64_t length;
  std::memcpy(&length, bytes.data(), length_bytes);
  const uint64_t rest = bytes.size() - length_bytes;
  if (length > largest_header) {
    const std::string kind = other_kind(bytes);
    if (!kind.empty()) damaged(file, "is " + kind + ", not a safetensors file", kHowToWrite);
    damaged(file,
            "is not a safetensors file: its first 8 bytes claim a header of " +
                std::to_string(length) + " bytes",
            kHowToWrite);
  }
  if (length > rest) {
    damaged(file, "claims a header of " + std::to_string(length) + " bytes and has " +
                      std::to_string(rest) + " after its first 8");
  }
  const json header = parse_header(
      {reinterpret_cast<const char*>(bytes.data()) + length_bytes, static_cast<size_t>(length)},
      file);

  SafetensorsFile result;
  std::vector<Entry> entries;
  for (const auto& [name, object] : header.items()) {
    if (name != "__metadata__") {
      entries.push_back(read_entry(name, object, file));
      continue;
    }
    if (!object.is_object()) damaged(file, "__metadata__ is not an object");
    for (const auto& [key, value] : object.items()) {
      if (!value.is_string()) damaged(file, "__metadata__ " + quoted(key) + " is not a text");
      result.metadata[key] = value.get<std::string>();
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  const std::span<const std::byte> data = bytes.subspan(length_bytes + static_cast<size_t>(length));
  uint64_t position = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != position) {
      damaged(file, "tensor " + quoted(entry.name) + " begins at byte " +
                        std::to_string(entry.begin) + " of the data, the one before it ends at " +
                        std::to_string(position));
    }
    position = entry.end;
  }
  if (position != data.size()) {
    damaged(file, "the tensors cover " + std::to_string(position) + " of " +
                      std::to_string(data.size()) + " bytes of data");
  }
  for (const Entry& entry : entries) {
    const bool narrow = is_narrow(entry.dtype);
    Tensor tensor(entry.shape, narrow ? DType::f32 : entry.dtype);
    const std::byte* const from = data.data() + entry.begin;
    const auto count = static_cast<size_t>(entry.end - entry.begin);
    if (entry.dtype == DType::f16) {
      widen<Float16>(from, entry.shape.elements(), tensor.data<float>());
    } else if (entry.dtype == DType::bf16) {
      widen<BFloat16>(from, entry.shape.elements(), tensor.data<float>());
    } else if (count > 0) {
      std::memcpy(tensor.raw(), from, count);
    }
    result.widened += narrow ? 1 : 0;
    result.tensors.push_back({entry.name, std::move(tensor)});
  }
  return result;
}

}  // namespace lockstep
