#include "lockstep/data/datastores/images/image_listing.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/suggest.h"
#include "lockstep/base/text.h"
#include "lockstep/data/datastores/images/pixel_labels.h"
#include "lockstep/data/images/image_format.h"

namespace lockstep {
namespace {

// The folders of a file below the root: "a/b" of "./a/b/c.png".
std::string_view folders_of(std::string_view relative) {
  const size_t slash = relative.rfind('/');
  std::string_view folders = slash == std::string_view::npos ? "" : relative.substr(0, slash);
  while (folders == "." || folders.starts_with("./") || folders.starts_with('/')) {
    folders.remove_prefix(std::min(folders.size(), size_t{folders.front() == '.' ? 2U : 1U}));
  }
  return folders;
}

std::string_view class_of(std::string_view relative, std::string_view root_name,
                          FolderLabels labels) {
  const std::string_view folders = folders_of(relative);
  if (folders.empty()) return root_name;
  switch (labels) {
    case FolderLabels::first:
      return folders.substr(0, folders.find('/'));
    case FolderLabels::nearest:
      return folders.substr(folders.rfind('/') + 1);  // npos + 1 is 0
    case FolderLabels::path:
      break;
  }
  return folders;
}

// "2 .txt, 1 no extension"
std::string counted_extensions(const FolderContents& contents) {
  std::string found;
  for (const auto& [extension, count] : contents.others) {
    if (!found.empty()) found += ", ";
    found += std::to_string(count) + " " + printable(extension);
  }
  return found;
}

constexpr const char* nearest_option =
    "labels = \"nearest\" in [data] of a job, --labels nearest of a command";

// What is not in the listing: "left out: 3 TIFF images (such as a/1.tif), 2 hidden names (such as
// .git), 1 other file (1 .txt)", or "".
std::string left_out(const FolderContents& contents) {
  std::vector<std::string> parts;
  for (const auto& [format, unread] : contents.unread) {
    parts.push_back(counted(unread.count, format + " image") + " (such as " +
                    printable(unread.first) + ")");
  }
  if (!contents.hidden.empty()) {
    parts.push_back(counted(static_cast<int64_t>(contents.hidden.size()), "hidden name") +
                    " (such as " + printable(*contents.hidden.begin()) + ")");
  }
  int64_t others = 0;
  for (const auto& [extension, count] : contents.others) others += count;
  if (others > 0) {
    parts.push_back(counted(others, "other file") + " (" + counted_extensions(contents) + ")");
  }
  if (parts.empty()) return "";
  std::string text = "left out: ";
  for (size_t i = 0; i < parts.size(); ++i) text += (i > 0 ? ", " : "") + parts[i];
  return text;
}

[[noreturn]] void complain_empty_folders(std::vector<std::string> empty,
                                         const FolderContents& contents) {
  std::sort(empty.begin(), empty.end());
  std::string message = "[image_folder] " + empty[0] + " holds no image";
  if (empty.size() == 2) message += ", nor does " + empty[1];
  if (empty.size() > 2) {
    message += ", nor do " + std::to_string(empty.size() - 1) + " others, such as " + empty[1];
  }
  if (!contents.unread.empty()) message += " (" + left_out(contents) + ")";
  throw DataError(message, contents.unread.empty()
                               ? "a class needs images: fill the folder or remove it"
                               : "a class needs images: convert those of other formats to PNG, or "
                                 "remove the folder");
}

std::string hint_without_images(const FolderContents& contents, const ImageFolderOptions& options) {
  if (!options.recursive) return "its subfolders were not searched";
  if (!contents.unread.empty()) return "convert the images to PNG";
  for (const char* extension : {".csv", ".tsv", ".npy", ".npz"}) {
    if (!contents.others.contains(extension)) continue;
    return "folders of sequences are for networks that begin with sequence_input without a length; "
           "of a table give the path of its file";
  }
  return "";
}

[[noreturn]] void complain_empty(const std::string& root, const FolderContents& contents,
                                 const ImageFolderOptions& options) {
  int64_t files = 0;
  for (const auto& [extension, count] : contents.others) files += count;
  std::string message =
      "[image_folder] " + root + " holds no JPEG, PNG, WebP, GIF, BMP or PNM image: found " +
      counted(contents.folders, "folder") + " and " + std::to_string(files) + " other files";
  const std::string found = counted_extensions(contents);
  if (!found.empty()) message += " (" + found + ")";
  if (!contents.unread.empty() || !contents.hidden.empty()) message += "; " + left_out(contents);
  throw DataError(message, hint_without_images(contents, options));
}

bool names_part_of_data(std::string name) {
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  constexpr std::string_view parts[] = {"train", "training",   "test", "testing", "val",
                                        "valid", "validation", "dev",  "eval",    "evaluation"};
  return std::find(std::begin(parts), std::end(parts), name) != std::end(parts);
}

}  // namespace

std::string enumerated(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return text;
}

bool are_parts_of_data(const std::vector<std::string>& classes) {
  return std::ranges::all_of(classes, names_part_of_data);
}

FolderLabels folder_labels(const std::string& name) {
  if (name == "first") return FolderLabels::first;
  if (name == "nearest") return FolderLabels::nearest;
  if (name == "path") return FolderLabels::path;
  throw InvalidArgument(
      "[labels] folders that name classes are `first`, `nearest` or `path`, "
      "received `" +
          name + "`",
      suggest(name, {"first", "nearest", "path"}));
}

void FolderContents::leave_out(const std::string& relative, std::span<const std::byte> first) {
  const RecognizedImage recognized = recognize_image(first);
  if (recognized.format == ImageFormat::other) {
    Unread& format = unread[std::string(recognized.name)];
    if (format.count == 0 || relative < format.first) format.first = relative;
    ++format.count;
    return;
  }
  const std::string extension = lower_extension(relative.substr(relative.rfind('/') + 1));
  ++others[extension.empty() ? "no extension" : extension];
}

std::string lower_extension(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {};
  std::string extension = name.substr(dot);
  for (char& c : extension) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return extension;
}

bool has_image_name(const std::string& name) {
  constexpr std::string_view known[] = {".jpg", ".jpeg", ".jpe", ".jfif", ".png",  ".pbm", ".pgm",
                                        ".pnm", ".ppm",  ".bmp", ".dib",  ".webp", ".gif"};
  const std::string extension = lower_extension(name.substr(name.rfind('/') + 1));
  return std::find(std::begin(known), std::end(known), extension) != std::end(known);
}

bool has_other_name(const std::string& name) {
  constexpr std::string_view known[] = {".cls", ".csv",  ".gz",  ".html", ".json", ".jsonl",
                                        ".log", ".md",   ".mp4", ".npy",  ".npz",  ".parquet",
                                        ".pdf", ".py",   ".tar", ".toml", ".tsv",  ".txt",
                                        ".xml", ".yaml", ".yml", ".zip"};
  const std::string extension = lower_extension(name.substr(name.rfind('/') + 1));
  return std::find(std::begin(known), std::end(known), extension) != std::end(known);
}

std::string hidden_part(const std::string& relative) {
  for (size_t begin = 0; begin < relative.size();) {
    const size_t end = std::min(relative.find('/', begin), relative.size());
    const std::string_view name = std::string_view(relative).substr(begin, end - begin);
    if (name.starts_with('.') && name != "." && name != "..") return relative.substr(0, end);
    begin = end + 1;
  }
  return {};
}

Digest decoded_digest(const Digest& digest, std::span<const std::byte> bytes, const Decoding& how) {
  const int orientation = how.upright ? exif_orientation(bytes) : 1;
  if (how.labels) {
    const Digest labels = how.labels->content_of(digest);
    return orientation == 1 ? labels : decoded_digest(labels, bytes, {.upright = true});
  }
  if (orientation == 1 && !how.least.any()) return digest;
  Digester digester;
  digester.add(digest);
  if (orientation != 1) {
    digester.add("orientation");
    digester.add(static_cast<uint64_t>(orientation));
  }
  if (how.least.any()) {
    digester.add("at least");
    digester.add(static_cast<uint64_t>(how.least.height));
    digester.add(static_cast<uint64_t>(how.least.width));
  }
  return digester.finish();
}

DecodedFile decode_file(std::span<const std::byte> bytes, const std::string& name,
                        const Digest& digest, const Decoding& how, int64_t index,
                        OrientedImages& oriented) {
  const int orientation = exif_orientation(bytes);
  LeastSize least = how.least;
  // From 5 on rows become columns.
  if (how.upright && orientation >= 5) std::swap(least.height, least.width);
  DecodedFile result{
      how.labels ? how.labels->decode(bytes, name) : decode_image(bytes, name, least),
      decoded_digest(digest, bytes, how)};
  if (how.upright) {
    result.image = upright(std::move(result.image), orientation);
  } else if (orientation > 1) {
    oriented.add(index);
  }
  return result;
}

void OrientedImages::add(int64_t index) {
  const MutexLock lock(mutex_);
  indices_.insert(index);
}

std::string OrientedImages::notice(const Datastore& store) const {
  const MutexLock lock(mutex_);
  if (indices_.empty()) return {};
  const bool one = indices_.size() == 1;
  return std::to_string(indices_.size()) + (one ? " image" : " images") +
         (one ? " (" : " (such as ") + printable(store.name(*indices_.begin())) + ")" +
         (one ? " has" : " have") +
         " an EXIF orientation, which is ignored: pixels are used as they are stored";
}

ImageListing::ImageListing(std::string root, const std::string& root_name, FolderContents contents,
                           const ImageFolderOptions& options)
    : root_(std::move(root)),
      labeled_(options.labeled),
      decoding_{.upright = options.upright,
                .least = options.least,
                .labels = options.pixel_classes
                              ? std::make_shared<const PixelCoding>(*options.pixel_classes)
                              : nullptr},
      oriented_(std::make_unique<OrientedImages>()) {
  if (contents.images.empty()) complain_empty(root_, contents, options);
  if (!options.allow_empty_folders && !contents.empty.empty()) {
    complain_empty_folders(contents.empty, contents);
  }
  names_ = std::move(contents.images);
  std::sort(names_.begin(), names_.end());
  set_labels(root_name, options.labels);
  if (decoding_.labels) {
    if (options.labeled) {
      throw InvalidArgument("[image_folder] label images have the classes of their pixels",
                            "set labeled = false with pixel_classes");
    }
    classes_ = decoding_.labels->classes().names;
    std::ranges::fill(labels_, 0);
  }
  if (const auto files = contents.others.find(".cls"); files != contents.others.end()) {
    class_files_ = files->second;
  }
  if (options.labeled) check_labels(options);
  if (const std::string text = left_out(contents); !text.empty()) left_out_.push_back(text);
  const auto loose = std::count_if(names_.begin(), names_.end(), [](const std::string& name) {
    return folders_of(name).empty();
  });
  if (options.labeled && loose > 0 && loose < size()) {
    left_out_.push_back(counted(loose, "image") + " next to the folders of classes " +
                        (loose == 1 ? "has" : "have") + " the class `" + printable(root_name) +
                        "`");
  }
  if (options.labeled && options.labels == FolderLabels::first) {
    of_labels_ = notice_of_deeper(root_name);
  }
}

std::string ImageListing::notice_of_deeper(const std::string& root_name) const {
  int64_t deeper = 0, example = 0;
  std::string nearest;
  for (int64_t i = 0; i < size(); ++i) {
    const std::string_view other =
        class_of(names_[static_cast<size_t>(i)], root_name, FolderLabels::nearest);
    if (other == classes_[static_cast<size_t>(label(i))]) continue;
    if (deeper++ > 0) continue;
    example = i;
    nearest = other;
  }
  if (deeper == 0) return {};
  return counted(deeper, "image") +
         (deeper == 1 ? " lies in a folder below that of its class: "
                      : " lie in folders below that of their class: ") +
         printable(name(example)) + " has the class `" +
         printable(classes_[static_cast<size_t>(label(example))]) +
         "` of the first folder, and would have `" + printable(nearest) + "` of the nearest one (" +
         nearest_option + ")";
}

void ImageListing::compare_labels(const std::vector<std::string>& told, FolderLabels rule) {
  if (!labeled_) return;
  int64_t others = 0, example = 0;
  for (int64_t i = 0; i < size(); ++i) {
    if (told.at(static_cast<size_t>(i)) == classes_[static_cast<size_t>(label(i))]) continue;
    if (others++ == 0) example = i;
  }
  if (others == 0) return;
  const std::string by = "\"" + std::string(folder_labels_names[static_cast<size_t>(rule)]) + "\"";
  of_labels_ = "its archives were written for labels = " + by +
               ", and labels are read by another rule here: " + counted(others, "image") +
               (others == 1 ? " has" : " have") + " another class, such as " +
               printable(name(example)) + " `" +
               printable(classes_[static_cast<size_t>(label(example))]) + "` instead of `" +
               printable(told[static_cast<size_t>(example)]) + "` (labels = " + by +
               " in [data] of a job, --labels " + folder_labels_names[static_cast<size_t>(rule)] +
               " of a command)";
}

void ImageListing::check_labels(const ImageFolderOptions& options) const {
  if (options.labels == FolderLabels::first &&
      std::none_of(names_.begin(), names_.end(),
                   [](const std::string& name) { return folders_of(name).empty(); }) &&
      are_parts_of_data(classes_)) {
    throw DataError(
        "[image_folder] " + root_ + " holds " + enumerated(classes_) +
            ": parts of a data set, not classes",
        "name one of them, such as " + join_path(root_, classes_[0]) +
            "; or let the folder that contains an image be its class: " + nearest_option);
  }
  if (class_files_ > 0 && classes_.size() == 1) {
    throw DataError("[image_folder] all " + counted(size(), "image") + " of " + root_ +
                        " would be one class, but there are " + std::to_string(class_files_) +
                        " .cls files, which hold the classes of images (WebDataset)",
                    "classes are learned from folders: put the images of each class into a folder "
                    "of its own, named by the class");
  }
}

std::vector<std::string> ImageListing::notices() const {
  std::vector<std::string> all;
  for (const std::string& text : left_out_) all.push_back(printable(root_) + ": " + text);
  if (!of_labels_.empty()) all.push_back(printable(root_) + ": " + of_labels_);
  if (const std::string text = oriented_->notice(*this); !text.empty()) {
    all.push_back(printable(root_) + ": " + text);
  }
  return all;
}

std::vector<std::byte> ImageListing::checked_bytes(int64_t index, Digest& digest) const {
  constexpr int attempts = 3;
  const ImageFacts* const known = known_facts(index);
  for (int attempt = 0; attempt < attempts; ++attempt) {
    std::vector<std::byte> encoded = bytes(index, attempt > 0);
    digest = digest_of(encoded.data(), encoded.size());
    if (known == nullptr || known->content == digest) return encoded;
  }
  throw DataError("[image_folder] the contents of " + path(index) + " do not match the index",
                  "upload the images again, or remove the index");
}

const ImageFacts* ImageListing::known_facts(int64_t index) const {
  const size_t i = check(index);
  return !facts_.empty() && facts_[i].channels > 0 ? &facts_[i] : nullptr;
}

Example ImageListing::read(int64_t index) const {
  const std::string file = path(index);
  Digest digest;
  const std::vector<std::byte> encoded = checked_bytes(index, digest);
  DecodedFile decoded = decode_file(encoded, file, digest, decoding_, index, *oriented_);
  return one_input(std::move(decoded.image), ClassLabel{label(index)}, decoded.content);
}

Digest ImageListing::content_digest(int64_t index) const {
  if (const ImageFacts* const known = facts(index)) return known->content;
  Digest digest;
  const std::vector<std::byte> encoded = checked_bytes(index, digest);
  return decoded_digest(digest, encoded, decoding_);
}

std::string ImageListing::path(int64_t index) const {
  return join_path(root_, names_[check(index)]);
}

size_t ImageListing::check(int64_t index) const {
  if (index < 0 || index >= size()) {
    throw InvalidArgument("[datastore] no observation with index " + std::to_string(index) +
                          " among " + std::to_string(size()) + " (" + describe() + ")");
  }
  return static_cast<size_t>(index);
}

void ImageListing::set_labels(const std::string& root_name, FolderLabels labels) {
  const auto class_name = [&](const std::string& name) {
    return class_of(name, root_name, labels);
  };
  for (const std::string& name : names_) classes_.emplace_back(class_name(name));
  std::sort(classes_.begin(), classes_.end());
  classes_.erase(std::unique(classes_.begin(), classes_.end()), classes_.end());
  labels_.reserve(names_.size());
  for (const std::string& name : names_) {
    const auto at = std::lower_bound(classes_.begin(), classes_.end(), class_name(name));
    labels_.push_back(at - classes_.begin());
  }
}

}  // namespace lockstep
