#include "apps/lockstep/models/predicted_inputs.h"

#include <fmt/format.h>

#include "apps/lockstep/image_options.h"
#include "lockstep/base/error.h"
#include "lockstep/storage/object_store.h"

namespace lockstep::command {

lockstep::Example Tolerant::read(int64_t index) const {
  try {
    return wrapped().read(index);
  } catch (const FileError& error) {
    if (storage::is_address(name(index))) throw;
    note(index, error);
  } catch (const DataError& error) {
    note(index, error);
  }
  lockstep::Example example;
  const ExampleSpec announced = spec();
  for (size_t i = 0; i < announced.inputs.size(); ++i) {
    const ValueSpec& input = announced.inputs[i];
    const bool image = input.kind == ValueKind::image;
    const Shape& shape = image ? shapes_.at(i) : input.shape;
    const auto count = static_cast<size_t>(shape.elements());
    if (input.type == DType::i32) {
      example.inputs.emplace_back(IntegerArray{shape, std::vector<int32_t>(count)});
    } else if (image) {
      example.inputs.emplace_back(Image{shape[1], shape[2], shape[0], std::vector<uint8_t>(count)});
    } else {
      example.inputs.emplace_back(Array{shape, std::vector<float>(count)});
    }
  }
  example.target = ClassLabel{0};
  return example;
}

std::vector<UnreadableImage> Tolerant::skipped() const {
  const MutexLock lock(mutex_);
  std::vector<UnreadableImage> images;
  for (const auto& [index, error] : failed_) images.push_back({name(index), error.reason});
  return images;
}

void Tolerant::refuse() const {
  const MutexLock lock(mutex_);
  if (failed_.empty()) return;
  const auto& [reason, hint] = failed_.begin()->second;
  if (failed_.size() == 1) throw DataError(reason, hint.empty() && size() > 1 ? skip_hint : hint);
  throw DataError(fmt::format("[predict] {} of {} images cannot be read; the first: {}",
                              failed_.size(), size(), reason),
                  std::ssize(failed_) < size() ? skip_hint : hint);
}

lockstep::Example Measured::read(int64_t index) const {
  lockstep::Example example = wrapped().read(index);
  if (const auto* const image = std::get_if<Image>(&example.inputs.at(0))) {
    const MutexLock lock(mutex_);
    sizes_[index] = {image->height, image->width, image->scale};
  }
  return example;
}

}  // namespace lockstep::command
