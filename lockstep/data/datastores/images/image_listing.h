// A listing of image files with labels: of a folder, or of objects in a store.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/threads/mutex.h"
#include "lockstep/data/datastores/datastores.h"

namespace lockstep {

class PixelCoding;  // pixel_labels.h

// What a folder contains.
struct FolderContents {
  // Images of a format that is not read.
  struct Unread {
    int64_t count = 0;
    std::string first;  // path of one of them
  };
  std::vector<std::string> images = {};        // relative paths
  std::map<std::string, int64_t> others = {};  // number of other files by extension
  std::map<std::string, Unread> unread = {};   // by format
  std::set<std::string> hidden = {};           // topmost files and folders that are left out
  int64_t folders = 0;                         // below the root, without hidden ones
  std::vector<std::string> empty = {};         // topmost folders without images

  // Adds a file that is not listed, by its first bytes and its extension.
  void leave_out(const std::string& relative, std::span<const std::byte> first);
};

// The extension in lower case with its dot; "" if the name has none.
std::string lower_extension(const std::string& name);
// Whether files with this name are images without a look at them.
bool has_image_name(const std::string& name);
// Whether a file with this name need not be looked at to know that it is not an image.
bool has_other_name(const std::string& name);
// The part of a relative path that ends with the first name that begins with '.'; "" if there is
// none. "." and ".." do not count.
std::string hidden_part(const std::string& relative);

// How the files of images are decoded, as in ImageFolderOptions.
struct Decoding {
  bool upright = false;
  LeastSize least = {};
  std::shared_ptr<const PixelCoding> labels = {};  // of label images

  bool changes() const { return upright || least.any() || labels; }
};

// The image in a file's bytes with the digest of its contents, which has the digest `digest`. Adds
// `index` to `oriented` if it has an orientation by which it is not turned.
struct DecodedFile {
  Image image;
  Digest content;
};
class OrientedImages;
DecodedFile decode_file(std::span<const std::byte> bytes, const std::string& name,
                        const Digest& digest, const Decoding& how, int64_t index,
                        OrientedImages& oriented);
// The digest of the contents of an image that is decoded so, from that of its bytes.
Digest decoded_digest(const Digest& digest, std::span<const std::byte> bytes, const Decoding& how);

// The images of a listing that have been read and have an EXIF orientation. Thread-safe.
class OrientedImages {
 public:
  void add(int64_t index) LOCKSTEP_EXCLUDES(mutex_);
  // "12 images, such as a/1.jpg, have an EXIF orientation, ..."; "" if there are none.
  std::string notice(const Datastore& store) const LOCKSTEP_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::set<int64_t> indices_ LOCKSTEP_GUARDED_BY(mutex_);
};

// Images with the classes of their folders. `root` is the folder's path or address in messages, and
// `root_name` the class of images in the root itself. Derived classes read the files.
class ImageListing : public Datastore {
 public:
  // Throws DataError if there are no images, or folders that the options do not allow.
  ImageListing(std::string root, const std::string& root_name, FolderContents contents,
               const ImageFolderOptions& options);

  int64_t size() const override { return static_cast<int64_t>(names_.size()); }
  ExampleSpec spec() const override {
    return decoding_.labels ? ExampleSpec{.inputs = {label_image_spec()}} : ExampleSpec{};
  }
  Example read(int64_t index) const override;
  int64_t label(int64_t index) const override { return labels_[check(index)]; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string name(int64_t index) const override { return names_[check(index)]; }
  std::string describe() const override { return "folder " + root_; }
  Digest content_digest(int64_t index) const override;
  // None if images are turned or decoded at another scale, which the facts do not tell.
  const ImageFacts* facts(int64_t index) const override {
    return decoding_.changes() ? nullptr : known_facts(index);
  }
  std::vector<std::string> notices() const override;
  // WebDataset's files of classes next to the images, from which labels are not read.
  int64_t class_files() const { return class_files_; }

 protected:
  // The encoded bytes of a file whose index is valid. With `again`, from their source instead of a
  // cache, because they did not have the digest of the image's facts.
  virtual std::vector<std::byte> bytes(int64_t index, bool again) const = 0;
  std::string path(int64_t index) const;
  const Decoding& decoding() const { return decoding_; }
  // Facts from an index, one for each image in the order of the listing; those of no channels are
  // unknown. For constructors.
  void set_facts(std::vector<ImageFacts> facts) { facts_ = std::move(facts); }
  // Classes that an index of archives tells for the images, in the order of the listing, by its own
  // rule: notices() names those that this listing has otherwise. Does nothing if labels are not
  // used. For constructors.
  void compare_labels(const std::vector<std::string>& told, FolderLabels rule);

 private:
  size_t check(int64_t index) const;
  const ImageFacts* known_facts(int64_t index) const;
  // Bytes that have the digest of the image's facts, if there are some.
  std::vector<std::byte> checked_bytes(int64_t index, Digest& digest) const;
  void set_labels(const std::string& root_name, FolderLabels labels);
  // What a user should know of the labels of a folder with deeper folders.
  std::string notice_of_deeper(const std::string& root_name) const;
  // Throws DataError for folders that are not classes.
  void check_labels(const ImageFolderOptions& options) const;

  std::string root_;
  std::vector<std::string> left_out_;  // for notices()
  std::string of_labels_;              // for notices()
  bool labeled_ = true;
  const Decoding decoding_;
  int64_t class_files_ = 0;

  std::vector<std::string> names_;  // relative paths, sorted
  std::vector<std::string> classes_;
  std::vector<int64_t> labels_;
  std::vector<ImageFacts> facts_;  // or none
  const std::unique_ptr<OrientedImages> oriented_;
};

// The last name of a local folder's absolute path: the class of images in the folder itself.
std::string root_name_of(const std::string& path);

// Images in tar archives (`lockstep shard`) in a local folder. With an index, nothing is read;
// without one, all archives are. Throws FileError, DataError.
DatastorePtr image_shards(const std::string& folder, const ImageFolderOptions& options);
// Whether a folder's contents are such archives: an index of shards, or archives and no images.
bool holds_shards(const std::string& folder, const FolderContents& contents);

// image_folder() for an address "s3://bucket/prefix", whose objects are images or such archives.
DatastorePtr image_objects(const std::string& address, const ImageFolderOptions& options);

// "a", "a and b", "a, b and c"
std::string enumerated(const std::vector<std::string>& names);
// Whether all classes are called as the parts of a data set are: `train`, `test`, ....
bool are_parts_of_data(const std::vector<std::string>& classes);

}  // namespace lockstep
