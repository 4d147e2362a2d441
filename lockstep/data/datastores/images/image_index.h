// The index of a listing of images in a store: what a training needs to know of each image before
// it is read. `lockstep upload` and `lockstep shard` write it next to the images.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/datastores/datastores.h"

namespace lockstep {

// The index's file or object in the folder or below the prefix.
inline constexpr const char* image_index_name = "lockstep-index";

struct IndexedImage {
  std::string name = {};  // path relative to the root
  uint32_t label = 0;     // into `classes`
  uint64_t size = 0;      // encoded bytes
  // In shards: number of the shard, and first byte there.
  uint32_t shard = 0;
  uint64_t offset = 0;
  std::string etag = {};  // of an object of its own; "": not known
  ImageFacts facts = {};
};

struct IndexedShard {
  std::string name;  // path relative to the root
  uint64_t size = 0;
};

struct ImageIndex {
  std::string root_name = {};  // class of images in the root itself
  // Of shards: the rule by which `label` was found, and how many of WebDataset's files of classes
  // lay next to the images. Indices without a rule, as earlier versions wrote them, tell neither.
  std::optional<FolderLabels> labels = {};
  int64_t class_files = 0;
  std::vector<std::string> classes = {};  // sorted bytewise
  std::vector<IndexedShard> shards = {};  // none: each image is a file or an object of its own
  std::vector<IndexedImage> images = {};  // sorted bytewise by name, each name once
};

// Sums over the pixels. `content` is the digest of the encoded bytes.
ImageFacts facts_of(const Image& image, const Digest& content);
// The same for encoded bytes. An image that cannot be decoded has its digest alone: training reads
// it at the start and reports the error.
ImageFacts facts_of_file(std::span<const std::byte> bytes, const std::string& name);
// Name, label and size of one image of a listing, without facts.
IndexedImage indexed_image(const Datastore& listing, int64_t index, uint64_t size);

// The index as bytes, with a checksum at the end.
std::vector<std::byte> write_index(const ImageIndex& index);
// Inverse. The bytes may come from anyone: everything is checked, also that images lie within their
// shards. `name` appears in messages. Throws DataError.
ImageIndex read_index(std::span<const std::byte> bytes, const std::string& name);

}  // namespace lockstep
