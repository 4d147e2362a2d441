// Tar archives in WebDataset's layout: for each image the members KEY.EXTENSION and KEY.cls, with
// the number of its class as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct TarMember {
  std::string name;
  uint64_t offset = 0, size = 0;  // of the contents
};

// Adds a member to an archive (POSIX.1-2001; names beyond ASCII or 100 bytes in an extended
// header), with fixed times and owners, so that equal contents give equal archives. Returns the
// offset of the contents in the archive.
uint64_t add_member(std::string& archive, const std::string& name, std::string_view contents);
// Adds the end of an archive: two blocks of zeros.
void end_archive(std::string& archive);

// The regular files of an archive, in order. Knows ustar, extended headers and GNU's long names.
// The bytes may come from anyone. `name` appears in messages. Throws DataError for a damaged
// archive, for sparse files, and for members that are neither files nor folders.
std::vector<TarMember> members_of(std::span<const std::byte> archive, const std::string& name);

// The name of an image's member for its path in the listing, and back. WebDataset divides a name at
// the first '.' after the last '/', so other dots before the extension become %2E, and % becomes
// %25. `number` is appended if images of one folder differ only in their extension; 0: nothing.
std::string member_name(const std::string& path, int64_t number);
std::string listing_path(const std::string& member);
// A member's key in WebDataset: what stands before that '.'.
std::string member_key(const std::string& member);

}  // namespace lockstep
