#include "lockstep/storage/s3_files.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/storage/object_store.h"

namespace lockstep::storage {
namespace {

// The prefix of the keys in a folder.
Address folder_address(const std::string& path) {
  Address address = parsed_address(path);
  while (address.key.ends_with('/')) address.key.pop_back();
  if (!address.key.empty()) address.key += '/';
  return address;
}

class ObjectFile final : public WritableFile {
 public:
  explicit ObjectFile(Address address) : address_(std::move(address)) {}

  void append(std::span<const std::byte> bytes) override {
    bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void sync() override { object_store().write(address_, bytes_); }

 private:
  const Address address_;
  std::string bytes_;
};

class S3Files final : public FileSystem {
 public:
  std::vector<std::byte> read(const std::string& path) override {
    const std::string bytes = object_store().read(parsed_address(path));
    const auto* const begin = reinterpret_cast<const std::byte*>(bytes.data());
    return {begin, begin + bytes.size()};
  }
  std::unique_ptr<WritableFile> open(const std::string& path, bool append) override {
    if (append) {
      throw Unsupported("[s3] cannot append to " + path + ": objects are only written whole");
    }
    return std::make_unique<ObjectFile>(parsed_address(path));
  }
  void rename(const std::string& from, const std::string& to) override {
    object_store().copy(parsed_address(from), parsed_address(to));
    object_store().remove(parsed_address(from));
  }
  void sync_folder(const std::string&) override {}  // a written object is durable
  void make_folder(const std::string&) override {}  // folders exist by their objects
  bool exists(const std::string& path) override {
    const Address address = parsed_address(path);
    const bool may_be_file = !address.key.empty() && !address.key.ends_with('/');
    return (may_be_file && object_store().look_at(address)) || is_folder(path);
  }
  bool is_folder(const std::string& path) override {
    const Address address = folder_address(path);
    return !object_store().list(address.bucket, address.key, 1).empty();
  }
  std::vector<std::string> list(const std::string& folder) override {
    const Address address = folder_address(folder);
    std::vector<std::string> folders, names;
    for (const ObjectInfo& object :
         object_store().list(address.bucket, address.key, SIZE_MAX, &folders)) {
      if (object.key.size() > address.key.size()) {
        names.push_back(object.key.substr(address.key.size()));
      }
    }
    for (const std::string& name : folders) {
      names.push_back(name.substr(address.key.size(), name.size() - address.key.size() - 1));
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }
  void remove(const std::string& path) override { object_store().remove(parsed_address(path)); }
};

}  // namespace

FileSystem& s3_files() {
  static S3Files* const files = new S3Files;  // never destroyed, like local_files()
  return *files;
}

FileSystem& files_of(const std::string& path) {
  return is_address(path) ? s3_files() : local_files();
}

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  if (!is_address(path)) return write_atomically(local_files(), path, bytes);
  object_store().write(parsed_address(path),
                       {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace lockstep::storage
