#include "lockstep/data/datastores/image_listing.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"

namespace lockstep {
namespace {

// Returns the name of the folder that contains the file.
std::string_view holder_of(std::string_view relative, std::string_view root_name) {
  const size_t slash = relative.rfind('/');
  if (slash == std::string_view::npos) return root_name;
  const std::string_view folder = relative.substr(0, slash);
  const size_t before = folder.rfind('/');
  return before == std::string_view::npos ? folder : folder.substr(before + 1);
}

[[noreturn]] void complain_empty_folders(std::vector<std::string> empty) {
  std::sort(empty.begin(), empty.end());
  std::string message = "[image_folder] " + empty[0] + " holds no image";
  if (empty.size() == 2) message += ", nor does " + empty[1];
  if (empty.size() > 2) {
    message += ", nor do " + std::to_string(empty.size() - 1) + " others, such as " + empty[1];
  }
  throw DataError(message, "a class needs images: fill the folder or remove it");
}

[[noreturn]] void complain_empty(const std::string& root, const FolderContents& contents,
                                 const ImageFolderOptions& options) {
  std::string found;
  int64_t files = 0;
  for (const auto& [extension, count] : contents.others) {
    files += count;
    if (!found.empty()) found += ", ";
    found += std::to_string(count) + " " + extension;
  }
  std::string message = "[image_folder] " + root +
                        " holds no .jpg, .jpeg, .png, .pbm, .pgm, .pnm or .ppm file: found " +
                        std::to_string(contents.folders) + " folders and " + std::to_string(files) +
                        " other files";
  if (!found.empty()) message += " (" + found + ")";
  throw DataError(message, options.recursive ? "" : "its subfolders were not searched");
}

}  // namespace

std::string lower_extension(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {};
  std::string extension = name.substr(dot);
  for (char& c : extension) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return extension;
}

bool is_image_extension(const std::string& extension) {
  constexpr std::string_view known[] = {".jpg", ".jpeg", ".png", ".pbm", ".pgm", ".pnm", ".ppm"};
  return std::find(std::begin(known), std::end(known), extension) != std::end(known);
}

ImageListing::ImageListing(std::string root, const std::string& root_name, FolderContents contents,
                           const ImageFolderOptions& options)
    : root_(std::move(root)) {
  if (contents.images.empty()) complain_empty(root_, contents, options);
  if (!options.allow_empty_folders && !contents.empty.empty()) {
    complain_empty_folders(contents.empty);
  }
  names_ = std::move(contents.images);
  std::sort(names_.begin(), names_.end());
  set_labels(root_name);
}

std::vector<std::byte> ImageListing::checked_bytes(int64_t index, Digest& digest) const {
  constexpr int attempts = 3;
  const ImageFacts* const known = facts(index);
  for (int attempt = 0; attempt < attempts; ++attempt) {
    std::vector<std::byte> encoded = bytes(index, attempt > 0);
    digest = digest_of(encoded.data(), encoded.size());
    if (known == nullptr || known->content == digest) return encoded;
  }
  throw DataError(
      "[image_folder] the contents of " + path(index) + " are not those of which the index tells",
      "upload the images again, or remove the index");
}

const ImageFacts* ImageListing::facts(int64_t index) const {
  const size_t i = check(index);
  return !facts_.empty() && facts_[i].channels > 0 ? &facts_[i] : nullptr;
}

Example ImageListing::read(int64_t index) const {
  const std::string file = path(index);
  Digest digest;
  const std::vector<std::byte> encoded = checked_bytes(index, digest);
  return one_input(decode_image(encoded, file), ClassLabel{label(index)}, digest);
}

Digest ImageListing::content_digest(int64_t index) const {
  if (const ImageFacts* const known = facts(index)) return known->content;
  Digest digest;
  checked_bytes(index, digest);
  return digest;
}

std::string ImageListing::path(int64_t index) const {
  return join_path(root_, names_[check(index)]);
}

size_t ImageListing::check(int64_t index) const {
  if (index < 0 || index >= size()) {
    throw InvalidArgument("[datastore] no observation " + std::to_string(index) + " among " +
                          std::to_string(size()) + " (" + describe() + ")");
  }
  return static_cast<size_t>(index);
}

void ImageListing::set_labels(const std::string& root_name) {
  for (const std::string& name : names_) classes_.emplace_back(holder_of(name, root_name));
  std::sort(classes_.begin(), classes_.end());
  classes_.erase(std::unique(classes_.begin(), classes_.end()), classes_.end());
  labels_.reserve(names_.size());
  for (const std::string& name : names_) {
    const auto at = std::lower_bound(classes_.begin(), classes_.end(), holder_of(name, root_name));
    labels_.push_back(at - classes_.begin());
  }
}

}  // namespace lockstep
