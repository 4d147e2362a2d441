// Images of 8 bits: reading JPEG, PNG and binary PNM, writing PNG.
//
// Decoding is exact, so that a training does not depend on who decodes: JPEG by libjpeg-turbo with
// the accurate integer DCT and fancy upsampling always on, PNG by libpng.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// height x width x channels bytes: rows, columns, channels interleaved. A value type.
struct Image {
  int64_t height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;

  friend bool operator==(const Image&, const Image&) = default;
};

// Limits of what decode_image() accepts: a damaged header must not ask for all the memory.
inline constexpr int64_t max_image_side = int64_t{1} << 14;    // rows, columns
inline constexpr int64_t max_image_pixels = int64_t{1} << 28;  // rows x columns

// The image in `bytes`, a whole JPEG, PNG or PNM file, recognised by its first bytes. The result
// has 1 channel (grey) or 3 (red, green, blue).
//   PNG: palettes (grey ones too) become RGB, fewer bits than 8 are expanded, 16 bits v become the
//     nearest whole number to v * 255 / 65535, interlaced rows are put in order, gamma is left
//     alone, and transparency is stripped: the colours stored under transparent pixels show.
//   JPEG: grey stays grey; YCbCr and RGB become RGB. Four inks (CMYK, YCCK) become RGB without a
//     colour profile: R = the nearest to C K / 255, as all common decoders do; the stored values
//     are taken as Adobe writes them, 255 for no ink. Orientation tags are not followed.
//   PNM: P4 (0 and 255), P5 and P6 with a largest value m of 1 to 65535; v becomes the nearest to
//     v * 255 / m. One image a file.
// `name` is for messages. Throws DataError, naming the file and, where known, the byte offset:
// another kind of file, a damaged or truncated one (also where the library would only warn), larger
// than the limits above. Thread-safe.
Image decode_image(std::span<const std::byte> bytes, const std::string& name);

// The same image with 1 or 3 channels. 1 -> 3 repeats; 3 -> 1 takes the luma of ITU-R BT.601
// in integers, (19595 R + 38470 G + 7471 B + 32768) / 65536. Throws InvalidArgument for other
// numbers of channels. Thread-safe.
Image convert_channels(Image image, int64_t channels);

// The image's pixels channel by channel (channels x rows x columns), as networks take them.
// Thread-safe.
std::vector<uint8_t> to_planes(const Image& image);

// A PNG file (8 bits, grey or RGB, no interlace) with the image's pixels. Throws InvalidArgument
// for an image that is empty, inconsistent or has neither 1 nor 3 channels. Thread-safe.
std::vector<std::byte> encode_png(const Image& image);

// "libjpeg-turbo 2.1.5, libpng 1.6.39": the decoders, whose version the numerics fingerprint names.
std::string image_library_versions();

}  // namespace lockstep
