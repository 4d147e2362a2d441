#include "lockstep/engine/formats/safetensors.h"

#include "tests/fuzz/target.h"

namespace lockstep::fuzz {

void parse(std::span<const std::byte> bytes) {
  const SafetensorsFile file = read_safetensors(bytes, "file");
  // A file that was read can be written and read again.
  const auto again = write_safetensors(file.tensors, file.metadata);
  read_safetensors(again, "again");
}

std::vector<Bytes> seeds() {
  const Tensor a = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor b = Tensor::from(std::vector<uint8_t>{7, 8}, {2});
  const Tensor c = Tensor::from(std::vector<int32_t>{9}, {});
  return {
      write_safetensors({}, {}), write_safetensors({{"a", a}}, {{"key", "value"}}),
      write_safetensors({{"a", a}, {"b/c", b}, {"\"", c}}, {}),
      // As other programs write them, without padding.
      bytes_of(std::string("\x36\0\0\0\0\0\0\0", 8) +
               R"({"x":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})" + std::string(8, 'x'))};
}

}  // namespace lockstep::fuzz
