// A listing of image files with labels: of a folder, or of objects in a store.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/datastores/datastores.h"

namespace lockstep {

// What a folder contains.
struct FolderContents {
  std::vector<std::string> images = {};        // relative paths
  std::map<std::string, int64_t> others = {};  // number of other files by extension
  int64_t folders = 0;                         // below the root
  std::vector<std::string> empty = {};         // topmost folders without images, except hidden ones
};

// The extension in lower case with its dot; "" if the name has none.
std::string lower_extension(const std::string& name);
// Whether files with this extension are images.
bool is_image_extension(const std::string& extension);

// Images with the classes of their folders. `root` is the folder's path or address in messages, and
// `root_name` the class of images in the root itself. Derived classes read the files.
class ImageListing : public Datastore {
 public:
  // Throws DataError if there are no images, or empty folders that the options do not allow.
  ImageListing(std::string root, const std::string& root_name, FolderContents contents,
               const ImageFolderOptions& options);

  int64_t size() const override { return static_cast<int64_t>(names_.size()); }
  Example read(int64_t index) const override;
  int64_t label(int64_t index) const override { return labels_[check(index)]; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string name(int64_t index) const override { return names_[check(index)]; }
  std::string describe() const override { return "folder " + root_; }
  Digest content_digest(int64_t index) const override;
  const ImageFacts* facts(int64_t index) const override;

 protected:
  // The encoded bytes of a file whose index is valid. With `again`, from their source instead of a
  // cache, because they did not have the digest of the image's facts.
  virtual std::vector<std::byte> bytes(int64_t index, bool again) const = 0;
  std::string path(int64_t index) const;
  // Facts from an index, one for each image in the order of the listing; those of no channels are
  // unknown. For constructors.
  void set_facts(std::vector<ImageFacts> facts) { facts_ = std::move(facts); }

 private:
  size_t check(int64_t index) const;
  // Bytes that have the digest of the image's facts, if there are some.
  std::vector<std::byte> checked_bytes(int64_t index, Digest& digest) const;
  void set_labels(const std::string& root_name);

  std::string root_;
  std::vector<std::string> names_;  // relative paths, sorted
  std::vector<std::string> classes_;
  std::vector<int64_t> labels_;
  std::vector<ImageFacts> facts_;  // or none
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

}  // namespace lockstep
