// The results of a case as bytes for another program: a line of JSON that names arrays, then the
// row-major arrays in order.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "lockstep/engine/tensor/tensor.h"

namespace lockstep::random_networks {

class Frame {
 public:
  nlohmann::ordered_json head;

  template <class T>
  void add(const std::string& name, std::span<const T> values, const Shape& shape) {
    head["arrays"].push_back(
        {{"name", name}, {"dtype", name_of(DTypeOf<T>::value)}, {"shape", shape.dims()}});
    const auto bytes = std::as_bytes(values);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void add(const std::string& name, const Tensor& tensor) {
    const std::vector<float> values = tensor.to_vector();
    add<float>(name, values, tensor.shape());
  }
  void write(std::FILE* file);
  // Removes all contents.
  void clear() {
    head = nlohmann::ordered_json::object();
    bytes_.clear();
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace lockstep::random_networks
