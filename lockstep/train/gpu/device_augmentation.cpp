#include "lockstep/train/gpu/device_augmentation.h"

namespace lockstep {

DeviceAugmentation::DeviceAugmentation(const Shape& image, int64_t rows, const PlanRun& run,
                                       int input, Device device)
    : table_(kernels::table_for(device)), device_(memory_of(device)) {
  const auto image_bytes = static_cast<size_t>(rows * image.elements());
  const size_t maps = (image_bytes + kAlignment - 1) / kAlignment * kAlignment;
  bytes_ = maps + static_cast<size_t>(rows) * sizeof(ImageMap);
  memory_ = allocate(bytes_, device);
  // Waits for work that was added for earlier users of the memory.
  device_.follow(run.stream(), device_.default_stream());
  work_.source = memory_.as<uint8_t>();
  work_.maps = reinterpret_cast<const ImageMap*>(memory_.as<std::byte>() + maps);
  work_.destination = static_cast<uint8_t*>(run.input(input));
  work_.images = rows;
  work_.image = kernels::planar(image[0], image[1], image[2]);
}

void DeviceAugmentation::add(const std::byte* host, const PlanRun& run) {
  device_.activate();
  device_.copy_from_host(memory_.data(), host, bytes_, run.stream());
  table_.augment_images(work_, run.stream());
}

}  // namespace lockstep
