// Tar archives of images.
#include "lockstep/data/datastores/tar.h"

#include <stdexcept>

#include "tests/fuzz/target.h"

namespace lockstep::fuzz {

void parse(std::span<const std::byte> bytes) {
  for (const TarMember& member : members_of(bytes, "archive")) {
    if (member.offset > bytes.size() || member.size > bytes.size() - member.offset) {
      throw std::logic_error("a member lies outside the archive");
    }
    listing_path(member.name);
    member_key(member.name);
  }
}

std::vector<Bytes> seeds() {
  std::string archive;
  add_member(archive, "a/1.png", "contents");
  add_member(archive, "a/1.cls", "0");
  std::string strange = archive;
  add_member(strange, "k\xc3\xa4se/" + std::string(150, 'x') + "%25.png", std::string(600, 'y'));
  add_member(strange, "empty.jpg", "");
  end_archive(archive);
  end_archive(strange);
  return {bytes_of(std::string(1024, '\0')), bytes_of(archive), bytes_of(strange)};
}

}  // namespace lockstep::fuzz
