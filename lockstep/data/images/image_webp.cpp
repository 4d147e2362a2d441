// Decodes WebP with libwebp. The decoder's arithmetic is that of integers, so all of its variants
// for processors give the same bytes.
#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/data/images/image_codecs.h"

namespace lockstep::detail {
namespace {

std::string webp_reason(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return "out of memory";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "an unsupported feature";
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      return "the file ends too early";
    default:
      return "invalid data";
  }
}

[[noreturn]] void damaged_webp(const std::string& name, size_t bytes, const std::string& what) {
  throw DataError("[image] " + name + ": damaged WebP of " + std::to_string(bytes) +
                  " bytes: " + what);
}

// Decodes a still image into `to`, whose rows have `stride` bytes. Sets every option that affects
// pixels.
void decode_still(const uint8_t* bytes, size_t size, int64_t width, int64_t height, uint8_t* to,
                  int64_t stride, const std::string& name) {
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) throw InternalError("[image] libwebp has another version");
  config.options.use_threads = 0;
  config.options.no_fancy_upsampling = 0;
  config.options.bypass_filtering = 0;
  config.options.dithering_strength = 0;
  config.options.alpha_dithering_strength = 0;
  config.output.colorspace = MODE_RGB;  // as stored, without transparency
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = to;
  config.output.u.RGBA.stride = static_cast<int>(stride);
  config.output.u.RGBA.size = static_cast<size_t>((height - 1) * stride + 3 * width);
  const VP8StatusCode status = WebPDecode(bytes, size, &config);
  WebPFreeDecBuffer(&config.output);
  if (status != VP8_STATUS_OK) damaged_webp(name, size, webp_reason(status));
}

// The first frame, at its position on the canvas; the rest of the canvas is black.
Image first_frame_of(const WebPData& file, const std::string& name) {
  const std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)> demuxer(WebPDemux(&file),
                                                                         &WebPDemuxDelete);
  if (!demuxer) damaged_webp(name, file.size, "its frames are not whole");
  Image image{WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT),
              WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH),
              3,
              {}};
  check_compressed_size(static_cast<uint64_t>(image.height), static_cast<uint64_t>(image.width),
                        file.size, name);
  WebPIterator frame{};
  const std::unique_ptr<WebPIterator, decltype(&WebPDemuxReleaseIterator)> released(
      &frame, &WebPDemuxReleaseIterator);
  if (!WebPDemuxGetFrame(demuxer.get(), 1, &frame) || !frame.complete) {
    damaged_webp(name, file.size, "it has no whole frame");
  }
  WebPBitstreamFeatures features;
  const VP8StatusCode status =
      WebPGetFeatures(frame.fragment.bytes, frame.fragment.size, &features);
  if (status != VP8_STATUS_OK) damaged_webp(name, file.size, webp_reason(status));
  const bool inside = frame.x_offset >= 0 && frame.y_offset >= 0 && features.width >= 1 &&
                      features.height >= 1 && frame.x_offset + features.width <= image.width &&
                      frame.y_offset + features.height <= image.height;
  if (!inside) damaged_webp(name, file.size, "a frame lies outside the canvas");
  image.pixels.resize(static_cast<size_t>(3 * image.height * image.width));
  decode_still(frame.fragment.bytes, frame.fragment.size, features.width, features.height,
               image.pixels.data() + 3 * (frame.y_offset * image.width + frame.x_offset),
               3 * image.width, name);
  return image;
}

}  // namespace

Image decode_webp(std::span<const std::byte> bytes, const std::string& name) {
  const WebPData file{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(file.bytes, file.size, &features);
  if (status != VP8_STATUS_OK) damaged_webp(name, file.size, webp_reason(status));
  check_compressed_size(static_cast<uint64_t>(features.height),
                        static_cast<uint64_t>(features.width), file.size, name);
  if (features.has_animation) return first_frame_of(file, name);
  Image image{features.height, features.width, 3, {}};
  image.pixels.resize(static_cast<size_t>(3 * image.height * image.width));
  decode_still(file.bytes, file.size, image.width, image.height, image.pixels.data(),
               3 * image.width, name);
  return image;
}

std::string webp_library_version() {
  const int version = WebPGetDecoderVersion();
  return "libwebp " + std::to_string(version >> 16) + "." + std::to_string(version >> 8 & 255) +
         "." + std::to_string(version & 255);
}

}  // namespace lockstep::detail
