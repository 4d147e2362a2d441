#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/data/datastores/datastores.h"

namespace lockstep {
namespace {

using FolderId = std::pair<dev_t, ino_t>;

constexpr size_t max_depth = 256;  // nested folders

std::string lower_extension(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {};
  std::string extension = name.substr(dot);
  for (char& c : extension) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return extension;
}

bool is_image(const std::string& extension) {
  constexpr std::string_view known[] = {".jpg", ".jpeg", ".png", ".pbm", ".pgm", ".pnm", ".ppm"};
  return std::find(std::begin(known), std::end(known), extension) != std::end(known);
}

// Returns the name of the folder that contains the file.
std::string_view holder_of(std::string_view relative, std::string_view root_name) {
  const size_t slash = relative.rfind('/');
  if (slash == std::string_view::npos) return root_name;
  const std::string_view folder = relative.substr(0, slash);
  const size_t before = folder.rfind('/');
  return before == std::string_view::npos ? folder : folder.substr(before + 1);
}

// Collects the relative paths of all images below a folder.
class Walk {
 public:
  Walk(const std::string& root, const ImageFolderOptions& options)
      : root_(root), options_(options) {}

  void run() { enter("", 0); }

  std::vector<std::string> images;
  std::map<std::string, int64_t> others;  // number of other files by extension
  int64_t folders = 0;                    // below the root
  std::vector<std::string> empty;         // topmost folders without images, except hidden ones

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
    if (depth > 0) ++folders;
    inside_.push_back(id);
    const size_t images_before = images.size(), empty_before = empty.size();
    std::error_code error;
    std::filesystem::directory_iterator entry(path, error), end;
    for (; !error && entry != end; entry.increment(error)) visit(*entry, relative, depth);
    if (error) refuse(path, error.value());
    inside_.pop_back();
    if (depth == 0 || images.size() > images_before) return;
    empty.resize(empty_before);
    if (path[path.rfind('/') + 1] != '.') empty.push_back(path);
  }

  void visit(const std::filesystem::directory_entry& entry, const std::string& parent,
             size_t depth) {
    const std::string file = entry.path().filename().string();
    const std::string relative = parent.empty() ? file : parent + '/' + file;
    std::error_code error;
    if (entry.is_directory(error)) {
      if (options_.recursive) {
        enter(relative, depth + 1);
      } else {
        ++folders;
      }
      return;
    }
    const std::string extension = lower_extension(file);
    if (!is_image(extension)) {
      ++others[extension.empty() ? "no extension" : extension];
      return;
    }
    // Without this error, a broken link would be skipped silently, and a pipe would block the
    // reader.
    if (!entry.is_regular_file(error) && !options_.list_unreadable) {
      throw DataError("[image_folder] " + entry.path().string() +
                      " is not a file (a broken link or a special file)");
    }
    images.push_back(relative);
  }

  const std::string& root_;
  const ImageFolderOptions& options_;
  std::vector<FolderId> inside_;  // folders from the root to the current one
};

class ImageFolder final : public Datastore {
 public:
  ImageFolder(const std::string& path, ImageFolderOptions options) : root_(path) {
    if (path.empty()) throw InvalidArgument("[image_folder] the folder's path is empty");
    if (!local_files().exists(path)) {
      throw FileError("[image_folder] there is no folder " + path,
                      "check the path; a relative path starts in the working folder");
    }
    if (!local_files().is_folder(path)) {
      throw FileError("[image_folder] " + path + " is a file, not a folder");
    }
    Walk walk(root_, options);
    walk.run();
    if (walk.images.empty()) complain_empty(walk, options);
    if (!options.allow_empty_folders && !walk.empty.empty()) complain_empty_folders(walk.empty);
    names_ = std::move(walk.images);
    std::sort(names_.begin(), names_.end());
    set_labels();
  }

  int64_t size() const override { return static_cast<int64_t>(names_.size()); }
  Example read(int64_t index) const override {
    const std::vector<std::byte> encoded = bytes(index);
    return one_input(decode_image(encoded, path(index)), ClassLabel{label(index)},
                     digest_of(encoded.data(), encoded.size()));
  }
  int64_t label(int64_t index) const override { return labels_[check(index)]; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string name(int64_t index) const override { return names_[check(index)]; }
  std::string describe() const override { return "folder " + root_; }
  Digest content_digest(int64_t index) const override {
    const std::vector<std::byte> encoded = bytes(index);
    return digest_of(encoded.data(), encoded.size());
  }

 private:
  size_t check(int64_t index) const {
    if (index < 0 || index >= size()) {
      throw InvalidArgument("[datastore] no observation " + std::to_string(index) + " among " +
                            std::to_string(size()) + " (" + describe() + ")");
    }
    return static_cast<size_t>(index);
  }
  std::string path(int64_t index) const { return join_path(root_, names_[check(index)]); }
  std::vector<std::byte> bytes(int64_t index) const { return local_files().read(path(index)); }

  [[noreturn]] static void complain_empty_folders(std::vector<std::string> empty) {
    std::sort(empty.begin(), empty.end());
    std::string message = "[image_folder] " + empty[0] + " holds no image";
    if (empty.size() == 2) message += ", nor does " + empty[1];
    if (empty.size() > 2) {
      message += ", nor do " + std::to_string(empty.size() - 1) + " others, such as " + empty[1];
    }
    throw DataError(message, "a class needs images: fill the folder or remove it");
  }

  [[noreturn]] void complain_empty(const Walk& walk, const ImageFolderOptions& options) const {
    std::string found;
    int64_t files = 0;
    for (const auto& [extension, count] : walk.others) {
      files += count;
      if (!found.empty()) found += ", ";
      found += std::to_string(count) + " " + extension;
    }
    std::string message = "[image_folder] " + root_ +
                          " holds no .jpg, .jpeg, .png, .pbm, .pgm, .pnm or .ppm file: found " +
                          std::to_string(walk.folders) + " folders and " + std::to_string(files) +
                          " other files";
    if (!found.empty()) message += " (" + found + ")";
    throw DataError(message, options.recursive ? "" : "its subfolders were not searched");
  }

  void set_labels() {
    const std::filesystem::path full = std::filesystem::absolute(root_).lexically_normal();
    const std::string root_name =
        full.has_filename() ? full.filename().string() : full.parent_path().filename().string();
    for (const std::string& name : names_) classes_.emplace_back(holder_of(name, root_name));
    std::sort(classes_.begin(), classes_.end());
    classes_.erase(std::unique(classes_.begin(), classes_.end()), classes_.end());
    labels_.reserve(names_.size());
    for (const std::string& name : names_) {
      const auto at =
          std::lower_bound(classes_.begin(), classes_.end(), holder_of(name, root_name));
      labels_.push_back(at - classes_.begin());
    }
  }

  std::string root_;
  std::vector<std::string> names_;  // relative paths, sorted
  std::vector<std::string> classes_;
  std::vector<int64_t> labels_;
};

}  // namespace

DatastorePtr image_folder(const std::string& path, ImageFolderOptions options) {
  return std::make_shared<ImageFolder>(path, options);
}

}  // namespace lockstep
