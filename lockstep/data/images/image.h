// Images with 8 bits per channel: reads JPEG, PNG, WebP, GIF, BMP and binary PNM, writes PNG.
//
// Decoding is exact, so training does not depend on the machine that decodes. libjpeg-turbo decodes
// JPEG with the accurate integer DCT and fancy upsampling always on; libpng decodes PNG, libwebp
// WebP with fancy upsampling and without dithering, giflib GIF.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// The scale at which a file was decoded, see decode_image(): pixel (y, x) shows the rows and
// columns from divisor * y - top and divisor * x - left on of an image of height x width pixels.
// What it shows beyond the edges has no meaning. divisor = 1: the image is whole, and nothing else
// is told.
struct DecodedScale {
  int64_t divisor = 1;
  int64_t height = 0, width = 0;
  int64_t top = 0, left = 0;  // more than 0 in images that were turned

  friend bool operator==(const DecodedScale&, const DecodedScale&) = default;
};

// height x width x channels bytes: rows, columns, interleaved channels. A value type.
struct Image {
  int64_t height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;
  DecodedScale scale = {};

  friend bool operator==(const Image&, const Image&) = default;
};

// Red, green and blue of each index.
using Palette = std::vector<std::array<uint8_t, 3>>;

// Limits for decode_image(), so that a damaged header cannot allocate all memory. Compressed images
// of more than 2^24 pixels also need a byte of their file for each further 2^14.
inline constexpr int64_t max_image_side = int64_t{1} << 14;    // rows, columns
inline constexpr int64_t max_image_pixels = int64_t{1} << 28;  // rows x columns

// The size that an image must have at least after decoding, in pixels; 0: all of them.
struct LeastSize {
  int64_t height = 0, width = 0;

  bool any() const { return height > 0 || width > 0; }
  friend bool operator==(const LeastSize&, const LeastSize&) = default;
};

// Decodes `bytes`, a whole image file. The first bytes determine the format. The result has 1
// channel (gray) or 3 (red, green, blue). Transparency is removed, which shows the colors stored
// under transparent pixels. Orientation tags are ignored (see upright()).
//   PNG: palettes, also gray ones, become RGB. Fewer than 8 bits are expanded; 16-bit values v
//     become v * 255 / 65535, rounded to nearest. Interlaced rows are put in order. Gamma is
//     ignored. Compressed data after the pixels are ignored.
//   JPEG: gray stays gray; YCbCr and RGB become RGB. CMYK and YCCK become RGB without a color
//     profile: R = C K / 255, rounded to nearest, as in all common decoders. The stored values are
//     interpreted as Adobe writes them, 255 for no ink. Bytes between the segments of the header
//     are ignored. 12 bits in a sample are not supported.
//   WebP, GIF: become RGB. Of animations the first frame, on a canvas of the announced size, whose
//     rest is black, or for GIF the transparent (else the first) color of the palette.
//   BMP: becomes RGB: 1, 2, 4, 8, 16, 24 and 32 bits, palettes, masks, run lengths. Fewer than 8
//     bits v of at most m become v * 255 / m, rounded to nearest.
//   PNM: P4 (0 and 255), P5 and P6 with a largest value m of 1 to 65535; v becomes v * 255 / m,
//     rounded to nearest. One image per file, which white space may follow.
// With `least`, JPEG is decoded at 1/8, 1/4 or 1/2 of its size (rounded up), the smallest of them
// that has this size, which is faster, and `scale` of the result tells it; other formats are
// decoded as before. `name` appears in messages. Throws DataError, naming the file and the byte
// offset if it is known: for another kind of file, a damaged or truncated one (also if the library
// would only warn, unless no pixel depends on what it warns of), or an image above the limits.
// Thread-safe.
Image decode_image(std::span<const std::byte> bytes, const std::string& name,
                   const LeastSize& least = {});

// Returns the image as its EXIF orientation (1 to 8, see exif_orientation()) says that it is to be
// seen: mirrored left to right for 2, 4, 5 and 7, and turned. Throws InvalidArgument for another
// number. Thread-safe.
Image upright(Image image, int orientation);

// Converts the image to 1 or 3 channels. 1 -> 3 repeats the channel. 3 -> 1 computes the luma of
// ITU-R BT.601 in integers: (19595 R + 38470 G + 7471 B + 32768) / 65536. Throws InvalidArgument
// for other numbers of channels. Thread-safe.
Image convert_channels(Image image, int64_t channels);

// Returns the image's pixels in planar order (channels x rows x columns), as networks need them.
// Thread-safe.
std::vector<uint8_t> to_planes(const Image& image);

// The same into memory for height x width x channels bytes.
void to_planes_into(const Image& image, uint8_t* planes);

// Encodes the image as a PNG file (8 bits, gray or RGB, not interlaced). Throws InvalidArgument for
// an image that is empty or inconsistent, or has neither 1 nor 3 channels. Thread-safe.
std::vector<std::byte> encode_png(const Image& image);

// The same of indices (1 channel) with a palette. Throws InvalidArgument also for more than 256
// colors, and for an index beyond them.
std::vector<std::byte> encode_png(const Image& indices, const Palette& palette);

// Returns the decoders and their versions, "libjpeg-turbo 2.1.5, libpng 1.6.39, ...", for the
// numerics fingerprint.
std::string image_library_versions();

// The same, with the builds of the decoders that are shared libraries, which can be replaced
// without another build of Lockstep.
std::string image_library_builds();

}  // namespace lockstep
