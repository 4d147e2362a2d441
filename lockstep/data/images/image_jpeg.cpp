// Decodes JPEG with libjpeg-turbo. The library reports errors by longjmp. Every function that calls
// it therefore creates no object with a destructor after its setjmp.
#include <cstdio>  // jpeglib.h needs it first
// clang-format on

#include <jerror.h>
#include <jpeglib.h>

#include <csetjmp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/images/image_codecs.h"

namespace lockstep::detail {
namespace {

// More scans than any encoder writes. Without this limit, a small progressive file could require
// hours of work.
constexpr int max_scans = 500;

struct Decoder {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  jmp_buf jump{};
  char message[JMSG_LENGTH_MAX] = {};

  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() { jpeg_destroy_decompress(&info); }  // harmless before creation: `info` is zero
};

Decoder& decoder_of(j_common_ptr info) { return *static_cast<Decoder*>(info->client_data); }

[[noreturn]] void fail(j_common_ptr info) {
  Decoder& decoder = decoder_of(info);
  info->err->format_message(info, decoder.message);
  longjmp(decoder.jump, 1);
}

// Whether a warning is about bytes on which no pixel depends: a version, a number of Adobe's for
// which every decoder takes the usual colors, or bytes between the segments of the header.
bool harmless(j_common_ptr info) {
  switch (info->err->msg_code) {
    case JWRN_JFIF_MAJOR:
    case JWRN_ADOBE_XFORM:
      return true;
    case JWRN_EXTRANEOUS_DATA:
      return info->is_decompressor &&
             reinterpret_cast<j_decompress_ptr>(info)->input_scan_number == 0;
    default:
      return false;
  }
}

// Negative levels are warnings. Most are about damaged data, for which the library would invent
// pixels.
void on_message(j_common_ptr info, int level) {
  if (level < 0 && !harmless(info)) fail(info);
}

void ignore_output(j_common_ptr) {}

void on_progress(j_common_ptr info) {
  if (!info->is_decompressor) return;
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > max_scans) {
    info->err->msg_code = JERR_BAD_PROGRESSION;
    fail(info);
  }
}

bool read_header(Decoder& decoder, const unsigned char* data, unsigned long size) {
  jpeg_decompress_struct& info = decoder.info;
  info.err = jpeg_std_error(&decoder.errors);
  decoder.errors.error_exit = fail;
  decoder.errors.emit_message = on_message;
  decoder.errors.output_message = ignore_output;
  info.client_data = &decoder;
  if (setjmp(decoder.jump) != 0) return false;
  jpeg_create_decompress(&info);
  decoder.progress.progress_monitor = on_progress;
  info.progress = &decoder.progress;
  jpeg_mem_src(&info, data, size);
  jpeg_read_header(&info, TRUE);
  return true;
}

// Sets every option that affects pixels, so that no default is used.
bool start(Decoder& decoder, unsigned eighths) {
  jpeg_decompress_struct& info = decoder.info;
  if (setjmp(decoder.jump) != 0) return false;
  info.dct_method = JDCT_ISLOW;
  info.do_fancy_upsampling = TRUE;
  info.do_block_smoothing = FALSE;
  info.quantize_colors = FALSE;
  info.scale_num = eighths;
  info.scale_denom = 8;
  jpeg_start_decompress(&info);
  return true;
}

bool read_pixels(Decoder& decoder, unsigned char* pixels, size_t row_bytes) {
  jpeg_decompress_struct& info = decoder.info;
  if (setjmp(decoder.jump) != 0) return false;
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = pixels + row_bytes * info.output_scanline;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);  // reads to the end marker
  return true;
}

[[noreturn]] void damaged(const Decoder& decoder, std::span<const std::byte> bytes,
                          const std::string& name) {
  const int bits = decoder.info.data_precision;
  if (decoder.errors.msg_code == JERR_BAD_PRECISION && (bits == 12 || bits == 16)) {
    throw DataError("[image] " + name + ": a JPEG with " + std::to_string(bits) +
                        " bits in a sample, which is not supported",
                    "convert it to 8 bits, or to PNG");
  }
  if (decoder.errors.msg_code == JERR_SOF_UNSUPPORTED) {
    throw DataError(
        "[image] " + name + ": a JPEG of a kind that is not supported: " + decoder.message,
        "lossless and hierarchical JPEG files cannot be read: convert it to PNG");
  }
  // The library's position can differ from the actual one by the contents of its bit buffer. At the
  // end of the data, it points to an end marker inside the library.
  size_t offset = bytes.size();
  const auto* begin = reinterpret_cast<const unsigned char*>(bytes.data());
  if (decoder.errors.msg_code != JWRN_JPEG_EOF && decoder.info.src != nullptr) {
    const unsigned char* at = decoder.info.src->next_input_byte;
    if (at >= begin && at <= begin + bytes.size()) offset = static_cast<size_t>(at - begin);
  }
  throw DataError("[image] " + name + ": damaged JPEG near byte " + std::to_string(offset) +
                  " of " + std::to_string(bytes.size()) + ": " + decoder.message);
}

// The smallest scale that leaves an image of at least this size. Other scales than these are slower
// than the whole image.
unsigned eighths_for(int64_t height, int64_t width, const LeastSize& least) {
  if (!least.any()) return 8;
  for (const unsigned eighths : {1U, 2U, 4U}) {
    if ((height * eighths + 7) / 8 >= least.height && (width * eighths + 7) / 8 >= least.width) {
      return eighths;
    }
  }
  return 8;
}

// Converts CMYK as Adobe stores it (255: no ink) to RGB in place.
Image from_inks(Image image) {
  const auto pixels = static_cast<size_t>(image.height * image.width);
  uint8_t* const p = image.pixels.data();
  for (size_t i = 0; i < pixels; ++i) {
    const uint32_t black = p[4 * i + 3];
    for (size_t c = 0; c < 3; ++c) {
      p[3 * i + c] = static_cast<uint8_t>((p[4 * i + c] * black + 127) / 255);
    }
  }
  image.pixels.resize(3 * pixels);
  image.channels = 3;
  return image;
}

}  // namespace

Image decode_jpeg(std::span<const std::byte> bytes, const std::string& name,
                  const LeastSize& least) {
  Decoder decoder;
  if (!read_header(decoder, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size())) {
    damaged(decoder, bytes, name);
  }
  jpeg_decompress_struct& info = decoder.info;
  check_compressed_size(info.image_height, info.image_width, bytes.size(), name);
  switch (info.jpeg_color_space) {
    case JCS_GRAYSCALE:
      info.out_color_space = JCS_GRAYSCALE;
      break;
    case JCS_YCbCr:
    case JCS_RGB:
      info.out_color_space = JCS_RGB;
      break;
    case JCS_CMYK:
    case JCS_YCCK:
      info.out_color_space = JCS_CMYK;
      break;
    default:
      throw DataError("[image] " + name + ": a JPEG with " + std::to_string(info.num_components) +
                          " components of a color space other than gray, YCbCr, RGB, CMYK or YCCK",
                      "convert it to RGB");
  }
  const unsigned eighths = eighths_for(info.image_height, info.image_width, least);
  if (!start(decoder, eighths)) damaged(decoder, bytes, name);
  Image image{info.output_height, info.output_width, info.output_components, {}};
  if (eighths < 8) image.scale = {8 / eighths, info.image_height, info.image_width};
  const size_t row_bytes = static_cast<size_t>(image.width * image.channels);
  image.pixels.resize(row_bytes * static_cast<size_t>(image.height));
  if (!read_pixels(decoder, image.pixels.data(), row_bytes)) damaged(decoder, bytes, name);
  return info.out_color_space == JCS_CMYK ? from_inks(std::move(image)) : image;
}

// The library has no function for its version.
#define LOCKSTEP_TEXT_OF(x) #x
#define LOCKSTEP_TEXT(x) LOCKSTEP_TEXT_OF(x)
std::string jpeg_library_version() { return "libjpeg-turbo " LOCKSTEP_TEXT(LIBJPEG_TURBO_VERSION); }

}  // namespace lockstep::detail
