// Formats by the first bytes, and EXIF orientations.
#include "lockstep/data/images/image_format.h"

#include "lockstep/data/images/image.h"
#include "tests/fuzz/images.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {

void parse(std::span<const std::byte> bytes) {
  recognize_image(bytes);
  const int orientation = exif_orientation(bytes);
  if (orientation < 1 || orientation > 8) throw InternalError("[fuzz] an orientation beyond 8");
}

std::vector<Bytes> seeds() {
  using namespace std::string_literals;
  const std::string little = "II*\0\x8\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0"s;
  const std::string big = "MM\0*\0\0\0\x8\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"s;
  const std::string png(reinterpret_cast<const char*>(encode_png(pattern(2, 2, 1)).data()), 33);
  return {bytes_of("\xff\xd8\xff\xe0\0\4xx\xff\xe1\0\x22"
                   "Exif\0\0"s +
                   big + "\xff\xda\0\2"s),
          bytes_of("\xff\xd8\xff\xe1\0\x22"
                   "Exif\0\0"s +
                   little + "\xff\xd9"s),
          bytes_of(png +
                   "\0\0\0\x1a"
                   "eXIf"s +
                   little + "...."s),
          bytes_of("RIFF....WEBPEXIF\x1a\0\0\0"s + big),
          bytes_of("P5 # comment\n 3 2 255\n"s),
          bytes_of(std::string(128, '\0') + "DICM"s)};
}

}  // namespace lockstep::fuzz
