#include "tests/random_networks/frame.h"

#include "lockstep/base/error.h"

namespace lockstep::random_networks {

void Frame::write(std::FILE* file) {
  head["bytes"] = bytes_.size();
  const std::string line = head.dump() + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file) != line.size() ||
      std::fwrite(bytes_.data(), 1, bytes_.size(), file) != bytes_.size() ||
      std::fflush(file) != 0) {
    throw Error("[random_networks] cannot write a case: the reader has gone");
  }
}

}  // namespace lockstep::random_networks
