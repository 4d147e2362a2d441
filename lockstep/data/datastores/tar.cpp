#include "lockstep/data/datastores/tar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

constexpr size_t tar_block = 512;
constexpr size_t most_name = 4096;

// Fields of a header: first byte and size.
struct TarField {
  size_t first, size;
};
constexpr TarField name_field{0, 100}, mode_field{100, 8}, owner_field{108, 8}, group_field{116, 8},
    size_field{124, 12}, time_field{136, 12}, sum_field{148, 8}, magic_field{257, 8},
    prefix_field{345, 155};
constexpr size_t kind_byte = 156;

using TarHeader = std::array<char, tar_block>;

void put_octal(TarHeader& header, const TarField& field, uint64_t value) {
  for (size_t i = field.size - 1; i-- > 0; value >>= 3) {
    header[field.first + i] = static_cast<char>('0' + (value & 7));
  }
}

uint64_t sum_of(const char* header) {
  uint64_t sum = 0;
  for (size_t i = 0; i < tar_block; ++i) {
    const bool in_sum = i >= sum_field.first && i < sum_field.first + sum_field.size;
    sum += in_sum ? ' ' : static_cast<unsigned char>(header[i]);
  }
  return sum;
}

uint64_t add_entry(std::string& archive, char kind, std::string_view name,
                   std::string_view contents) {
  TarHeader header{};
  std::memcpy(header.data(), name.data(), std::min(name.size(), name_field.size));
  put_octal(header, mode_field, 0644);
  put_octal(header, owner_field, 0);
  put_octal(header, group_field, 0);
  put_octal(header, size_field, contents.size());
  put_octal(header, time_field, 0);
  header[kind_byte] = kind;
  std::memcpy(header.data() + magic_field.first, "ustar\00000", magic_field.size);
  put_octal(header, {sum_field.first, 7}, sum_of(header.data()));
  header[sum_field.first + 7] = ' ';
  archive.append(header.data(), header.size());
  const uint64_t offset = archive.size();
  archive += contents;
  archive.append((tar_block - contents.size() % tar_block) % tar_block, '\0');
  return offset;
}

// One record of an extended header: its own length, a blank, the text, a line feed.
std::string extended_record(const std::string& text) {
  size_t size = text.size() + 2;
  while (std::to_string(size).size() + text.size() + 2 != size) {
    size = std::to_string(size).size() + text.size() + 2;
  }
  return std::to_string(size) + " " + text + "\n";
}

class TarReader {
 public:
  TarReader(std::span<const std::byte> archive, const std::string& name)
      : bytes_(reinterpret_cast<const char*>(archive.data()), archive.size()), name_(name) {}

  std::vector<TarMember> run() {
    while (at_ + tar_block <= bytes_.size() && bytes_[at_] != '\0') read_entry();
    // Archives end with zeros; a cut one would otherwise lose images silently.
    if (at_ + tar_block > bytes_.size()) refuse("it ends too early");
    refuse_after_end();
    return std::move(members_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError("[shards] " + printable(name_) + " is not a valid tar archive: " + what +
                    " (byte " + std::to_string(at_) + ")");
  }

  // After its end an archive holds zeros alone. The members of an archive that was appended by cat
  // would otherwise be lost silently, as other readers lose them.
  void refuse_after_end() {
    const size_t first = bytes_.find_first_not_of('\0', at_);
    if (first == std::string_view::npos) return;
    if (first < at_ + tar_block) refuse("a header begins with zeros");
    at_ = first;
    throw DataError("[shards] " + printable(name_) +
                        " continues after the end of its archive (byte " + std::to_string(first) +
                        ")",
                    "if archives were joined by cat, keep them apart, or join them by "
                    "tar --concatenate");
  }

  std::string text(const TarField& field) const {
    const std::string_view whole = bytes_.substr(at_ + field.first, field.size);
    return std::string(whole.substr(0, whole.find('\0')));
  }
  uint64_t octal(const TarField& field) const {
    uint64_t value = 0;
    bool digits = false;
    for (const char c : bytes_.substr(at_ + field.first, field.size)) {
      if (c == ' ' && !digits) continue;
      if (c == ' ' || c == '\0') break;
      if (c < '0' || c > '7') refuse("a header has a wrong number");
      value = value * 8 + static_cast<uint64_t>(c - '0');
      digits = true;
    }
    return value;
  }

  // "path" and "size" of an extended header.
  void read_extended(std::string_view contents) {
    while (!contents.empty()) {
      size_t size = 0;
      const auto end = std::from_chars(contents.data(), contents.data() + contents.size(), size);
      const auto digits = static_cast<size_t>(end.ptr - contents.data());
      const bool whole = end.ec == std::errc() && size <= contents.size() && size > digits + 2 &&
                         contents[digits] == ' ' && contents[size - 1] == '\n';
      if (!whole) refuse("an extended header is damaged");
      const std::string_view record = contents.substr(digits + 1, size - digits - 2);
      contents = contents.substr(size);
      const size_t equals = record.find('=');
      const std::string_view key = record.substr(0, equals);
      const std::string_view value =
          equals == std::string_view::npos ? std::string_view() : record.substr(equals + 1);
      if (key.starts_with("GNU.sparse")) refuse("sparse files are not read");
      if (key == "path") long_name_ = value;
      if (key == "size") {
        uint64_t bytes = 0;
        const auto last = std::from_chars(value.data(), value.data() + value.size(), bytes);
        if (value.empty() || last.ec != std::errc() || last.ptr != value.data() + value.size()) {
          refuse("an extended header is damaged");
        }
        long_size_ = bytes;
      }
    }
  }

  void read_entry() {
    if (octal(sum_field) != sum_of(bytes_.data() + at_)) refuse("a header's checksum is wrong");
    const char kind = bytes_[at_ + kind_byte];
    const bool plain = kind == '0' || kind == '\0' || kind == '7';
    const uint64_t size = plain && long_size_ ? *long_size_ : octal(size_field);
    const uint64_t room = bytes_.size() - at_ - tar_block;
    if (size > room) refuse("it ends too early");
    const uint64_t padded = (size + tar_block - 1) / tar_block * tar_block;
    const std::string_view contents = bytes_.substr(at_ + tar_block, size);
    if (kind == 'x' || kind == 'L') {
      if (size > 1 << 20) refuse("a name is too long");
      if (kind == 'x') {
        read_extended(contents);
      } else {
        long_name_ = contents.substr(0, contents.find('\0'));
      }
    } else if (plain) {
      const std::string prefix = text(prefix_field);
      const bool ustar = bytes_.substr(at_ + magic_field.first, 5) == "ustar";
      std::string name = text(name_field);
      if (ustar && bytes_[at_ + magic_field.first + 5] == '\0' && !prefix.empty()) {
        name = prefix + "/" + name;
      }
      if (long_name_) name = *long_name_;
      if (name.empty() || name.size() > most_name) refuse("a name is empty or too long");
      members_.push_back({std::move(name), at_ + tar_block, size});
      long_name_.reset();
      long_size_.reset();
    } else if (kind == '5') {
      long_name_.reset();
      long_size_.reset();
    } else if (kind != 'g') {
      refuse("it contains what is neither a file nor a folder");
    }
    at_ += tar_block;
    at_ += std::min<uint64_t>(padded, bytes_.size() - at_);
  }

  const std::string_view bytes_;
  const std::string& name_;
  size_t at_ = 0;
  std::optional<std::string> long_name_;
  std::optional<uint64_t> long_size_;
  std::vector<TarMember> members_;
};

size_t base_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? 0 : slash + 1;
}

}  // namespace

uint64_t add_member(std::string& archive, const std::string& name, std::string_view contents) {
  const bool plain = name.size() <= name_field.size &&
                     std::all_of(name.begin(), name.end(), [](char c) { return c > 0; });
  if (!plain) add_entry(archive, 'x', "long-name", extended_record("path=" + name));
  return add_entry(archive, '0', plain ? name : "file", contents);
}

void end_archive(std::string& archive) { archive.append(2 * tar_block, '\0'); }

std::vector<TarMember> members_of(std::span<const std::byte> archive, const std::string& name) {
  return TarReader(archive, name).run();
}

std::string member_name(const std::string& path, int64_t number) {
  const size_t base = base_of(path);
  const size_t dot = std::max(base, std::min(path.rfind('.'), path.size()));
  std::string name;
  for (size_t i = 0; i < dot; ++i) {
    if (path[i] == '%') {
      name += "%25";
    } else if (path[i] == '.' && i >= base) {
      name += "%2E";
    } else {
      name += path[i];
    }
  }
  if (number > 0) name += "%-" + std::to_string(number);
  return name + path.substr(dot);
}

std::string listing_path(const std::string& member) {
  const size_t dot = member_key(member).size();
  std::string path;
  for (size_t i = 0; i < dot; ++i) {
    const std::string_view three = std::string_view(member).substr(i, std::min<size_t>(3, dot - i));
    if (three == "%2E" || three == "%25") {
      path += three == "%2E" ? '.' : '%';
      i += 2;
    } else if (three.starts_with("%-") && member.find_first_not_of("0123456789", i + 2) == dot) {
      break;
    } else {
      path += member[i];
    }
  }
  return path + member.substr(dot);
}

std::string member_key(const std::string& member) {
  return member.substr(0, std::min(member.find('.', base_of(member)), member.size()));
}

}  // namespace lockstep
