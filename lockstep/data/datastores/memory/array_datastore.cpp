#include <cmath>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/memory/in_memory.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw InvalidArgument("[array_datastore] " + what);
}

std::string name_of(int64_t index) { return "image " + std::to_string(index); }
std::string name_of_array(int64_t index) { return "observation " + std::to_string(index); }

void check_size(int64_t height, int64_t width, int64_t channels, const std::string& what) {
  if (height >= 1 && width >= 1 && height <= max_image_side && width <= max_image_side &&
      (channels == 1 || channels == 3)) {
    return;
  }
  refuse(what + " of " + std::to_string(height) + " x " + std::to_string(width) + " x " +
         std::to_string(channels) + " (rows x columns x channels): sides must be 1 to " +
         std::to_string(max_image_side) + ", channels 1 or 3");
}

class ImagesInMemory : public InMemory {
 public:
  ImagesInMemory(int64_t size, ImageLabels labels)
      : InMemory("array_datastore", size, std::move(labels), name_of, "images") {}
  Example read(int64_t index) const override {
    Image made = image(check(index));
    const Digest content = digest_of_image(made);
    return one_input(std::move(made), ClassLabel{label(index)}, content);
  }

 private:
  virtual Image image(size_t index) const = 0;
};

class ImageList final : public ImagesInMemory {
 public:
  ImageList(std::vector<Image> images, ImageLabels labels)
      : ImagesInMemory(static_cast<int64_t>(images.size()), std::move(labels)),
        images_(std::move(images)) {
    for (size_t i = 0; i < images_.size(); ++i) {
      const Image& image = images_[i];
      const std::string what = name_of(static_cast<int64_t>(i));
      check_size(image.height, image.width, image.channels, what);
      const auto bytes = static_cast<size_t>(image.height * image.width * image.channels);
      if (image.pixels.size() != bytes) {
        refuse(what + " has " + std::to_string(image.pixels.size()) + " bytes of pixels, not " +
               std::to_string(bytes));
      }
    }
  }

 private:
  Image image(size_t index) const override { return images_[index]; }

  std::vector<Image> images_;
};

class Block final : public ImagesInMemory {
 public:
  Block(ImageBlock block, ImageLabels labels)
      : ImagesInMemory(block.count, std::move(labels)), block_(std::move(block)) {}

 private:
  Image image(size_t index) const override {
    const auto bytes = static_cast<int64_t>(block_.height * block_.width * block_.channels);
    const auto begin = block_.pixels.begin() + static_cast<std::ptrdiff_t>(index) * bytes;
    return {block_.height, block_.width, block_.channels, {begin, begin + bytes}};
  }

  ImageBlock block_;
};

class Arrays final : public InMemory {
 public:
  Arrays(ArrayBlock block, ImageLabels labels)
      : InMemory("array_datastore", block.count, std::move(labels), name_of_array,
                 "arrays of " + block.shape.to_string()),
        block_(std::move(block)) {}
  ExampleSpec spec() const override {
    ExampleSpec spec;
    spec.inputs[0] = {.kind = ValueKind::array, .shape = block_.shape};
    return spec;
  }
  Example read(int64_t index) const override {
    const float* const from = elements(index);
    return one_input(Array{block_.shape, {from, from + block_.shape.elements()}},
                     ClassLabel{label(index)}, digest_of_array(block_.shape, from));
  }
  Digest content_digest(int64_t index) const override {
    return digest_of_array(block_.shape, elements(index));
  }

 private:
  const float* elements(int64_t index) const {
    return block_.values.data() + static_cast<int64_t>(check(index)) * block_.shape.elements();
  }

  ArrayBlock block_;
};

}  // namespace

DatastorePtr array_datastore(std::vector<Image> images, ImageLabels labels) {
  return std::make_shared<ImageList>(std::move(images), std::move(labels));
}

DatastorePtr array_datastore(ImageBlock block, ImageLabels labels) {
  check_size(block.height, block.width, block.channels, "images");
  const auto bytes = static_cast<uint64_t>(block.height * block.width * block.channels);
  if (block.count < 0 || block.pixels.size() % bytes != 0 ||
      block.pixels.size() / bytes != static_cast<uint64_t>(block.count)) {
    refuse("a block of " + std::to_string(block.pixels.size()) + " bytes for " +
           counted(block.count, "image") + " of " + std::to_string(bytes));
  }
  return std::make_shared<Block>(std::move(block), std::move(labels));
}

DatastorePtr array_datastore(ArrayBlock block, ImageLabels labels) {
  const auto elements = static_cast<size_t>(block.shape.elements());
  if (block.shape.rank() < 1 || elements < 1) {
    refuse("arrays of " + block.shape.to_string() + " have no elements");
  }
  if (block.count < 0 || block.values.size() % elements != 0 ||
      block.values.size() / elements != static_cast<size_t>(block.count)) {
    refuse("a block of " + std::to_string(block.values.size()) + " floats for " +
           counted(block.count, "array") + " of " + block.shape.to_string());
  }
  for (size_t i = 0; i < block.values.size(); ++i) {
    if (std::isfinite(block.values[i])) continue;
    refuse(name_of_array(static_cast<int64_t>(i / elements)) + ": element " +
           std::to_string(i % elements) + " is " + std::to_string(block.values[i]) +
           ", which is not finite");
  }
  return std::make_shared<Arrays>(std::move(block), std::move(labels));
}

DatastorePtr array_datastore(const Tensor& values, ImageLabels labels) {
  if (!values.defined() || values.dtype() != DType::f32 || values.shape().rank() < 2) {
    refuse("expected a tensor n x shape of f32, received " +
           (values.defined()
                ? std::string(name_of(values.dtype())) + " of " + values.shape().to_string()
                : std::string("none")));
  }
  return array_datastore(
      ArrayBlock{values.shape()[0], values.shape().without_batch(), values.to_vector()},
      std::move(labels));
}

}  // namespace lockstep
