#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/os/file.h"
#include "lockstep/data/datastores/images/image_index.h"
#include "lockstep/data/datastores/images/image_listing.h"
#include "lockstep/data/datastores/images/pixel_labels.h"
#include "lockstep/data/images/image_format.h"
#include "lockstep/storage/object_store.h"

namespace lockstep {
namespace {

using FolderId = std::pair<dev_t, ino_t>;

constexpr size_t max_depth = 256;  // nested folders

// As many bytes as tell the format of an image; none of what cannot be read or is not a file.
std::vector<std::byte> first_bytes(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  std::vector<std::byte> bytes(image_format_bytes);
  const ssize_t taken = ::pread(file.get(), bytes.data(), bytes.size(), 0);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(taken, 0)));
  return bytes;
}

// Collects the relative paths of all images below a folder.
class Walk {
 public:
  Walk(const std::string& root, const ImageFolderOptions& options)
      : root_(root), options_(options) {}

  void run() { enter("", 0); }

  FolderContents found;

 private:
  [[noreturn]] static void refuse(const std::string& path, int code) {
    throw FileError("[image_folder] cannot read " + path + ": " + std::strerror(code));
  }

  void enter(const std::string& relative, size_t depth) {
    const std::string path = relative.empty() ? root_ : join_path(root_, relative);
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) refuse(path, errno);
    const FolderId id{status.st_dev, status.st_ino};
    if (std::find(inside_.begin(), inside_.end(), id) != inside_.end()) return;
    if (depth > max_depth) {
      throw DataError("[image_folder] " + path + ": more than " + std::to_string(max_depth) +
                      " nested folders");
    }
    if (depth > 0) ++found.folders;
    inside_.push_back(id);
    const size_t images_before = found.images.size(), empty_before = found.empty.size();
    std::error_code error;
    std::filesystem::directory_iterator entry(path, error), end;
    for (; !error && entry != end; entry.increment(error)) visit(*entry, relative, depth);
    if (error) refuse(path, error.value());
    inside_.pop_back();
    if (depth == 0 || found.images.size() > images_before) return;
    found.empty.resize(empty_before);
    if (depth == 1 || options_.labels != FolderLabels::first) found.empty.push_back(path);
  }

  void visit(const std::filesystem::directory_entry& entry, const std::string& parent,
             size_t depth) {
    const std::string file = entry.path().filename().string();
    const std::string relative = parent.empty() ? file : parent + '/' + file;
    if (file.starts_with('.')) {
      found.hidden.insert(relative);
      return;
    }
    if (parent.empty() && file == image_index_name) return;
    std::error_code error;
    if (entry.is_directory(error)) {
      if (options_.recursive) {
        enter(relative, depth + 1);
      } else {
        ++found.folders;
      }
      return;
    }
    if (!has_image_name(file)) {
      std::vector<std::byte> first;
      if (!has_other_name(file)) first = first_bytes(entry.path().string());
      if (recognize_image(first).readable()) {
        found.images.push_back(relative);
      } else {
        found.leave_out(relative, first);
      }
      return;
    }
    // Without this error, a broken link would be skipped silently, and a pipe would block the
    // reader.
    if (!entry.is_regular_file(error) && !options_.list_unreadable) {
      throw DataError("[image_folder] " + entry.path().string() +
                      " is not a file (a broken link or a special file)");
    }
    found.images.push_back(relative);
  }

  const std::string& root_;
  const ImageFolderOptions& options_;
  std::vector<FolderId> inside_;  // folders from the root to the current one
};

FolderContents walked(const std::string& path, const ImageFolderOptions& options) {
  if (path.empty()) throw InvalidArgument("[image_folder] the folder's path is empty");
  if (!local_files().exists(path)) {
    throw FileError("[image_folder] there is no folder " + path,
                    "check the path; a relative path starts in the working folder");
  }
  if (!local_files().is_folder(path)) {
    throw FileError("[image_folder] " + path + " is a file, not a folder");
  }
  Walk walk(path, options);
  walk.run();
  return std::move(walk.found);
}

// A file that changes again within this time may keep its times.
constexpr int64_t kYoungSeconds = 2;

class ImageFolder final : public ImageListing {
 public:
  using ImageListing::ImageListing;

  std::optional<Digest> file_state() const override {
    Digester digester;
    digester.add(decoding().upright ? "upright files" : "files");
    if (const LeastSize& least = decoding().least; least.any()) {
      digester.add("at least");
      digester.add(static_cast<uint64_t>(least.height));
      digester.add(static_cast<uint64_t>(least.width));
    }
    if (decoding().labels) digester.add(decoding().labels->digest());
    const int64_t now = std::time(nullptr);
    for (int64_t i = 0; i < size(); ++i) {
      const std::string file = path(i);
      struct stat s {};
      if (::stat(file.c_str(), &s) != 0) return std::nullopt;
      // The time of the last change of the inode cannot be set by programs.
      if (s.st_ctim.tv_sec > now - kYoungSeconds || s.st_mtim.tv_sec > now - kYoungSeconds) {
        return std::nullopt;
      }
      digester.add(std::filesystem::absolute(file).lexically_normal().string());
      for (const int64_t number :
           {static_cast<int64_t>(s.st_dev), static_cast<int64_t>(s.st_ino),
            static_cast<int64_t>(s.st_size), static_cast<int64_t>(s.st_mtim.tv_sec),
            static_cast<int64_t>(s.st_mtim.tv_nsec), static_cast<int64_t>(s.st_ctim.tv_sec),
            static_cast<int64_t>(s.st_ctim.tv_nsec)}) {
        digester.add(static_cast<uint64_t>(number));
      }
    }
    return digester.finish();
  }

 private:
  std::vector<std::byte> bytes(int64_t index, bool) const override {
    return local_files().read(path(index));
  }
};

}  // namespace

std::string root_name_of(const std::string& path) {
  const std::filesystem::path full = std::filesystem::absolute(path).lexically_normal();
  return full.has_filename() ? full.filename().string() : full.parent_path().filename().string();
}

DatastorePtr image_folder(const std::string& path, ImageFolderOptions options) {
  if (storage::is_address(path)) return image_objects(path, options);
  FolderContents contents = walked(path, options);
  if (holds_shards(path, contents)) return image_shards(path, options);
  return std::make_shared<ImageFolder>(path, root_name_of(path), std::move(contents), options);
}

}  // namespace lockstep
