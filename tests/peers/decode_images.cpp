// Decodes the files that are named on standard input, a line each. Writes FILE.raw (rows x columns
// x channels bytes), and a line "rows columns channels orientation", or "error: ...", for each.

#include <iostream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/data/images/image.h"
#include "lockstep/data/images/image_format.h"

int main() {
  using namespace lockstep;
  for (std::string path; std::getline(std::cin, path);) {
    const std::vector<std::byte> bytes = local_files().read(path);
    try {
      const Image image = decode_image(bytes, "image");
      write_atomically(local_files(), path + ".raw", std::as_bytes(std::span(image.pixels)));
      std::cout << image.height << ' ' << image.width << ' ' << image.channels << ' '
                << exif_orientation(bytes) << "\n";
    } catch (const DataError& error) {
      std::cout << "error: " << error.what() << "\n";
    }
  }
}
