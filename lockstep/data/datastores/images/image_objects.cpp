#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/text.h"
#include "lockstep/data/datastores/images/image_index.h"
#include "lockstep/data/datastores/images/image_listing.h"
#include "lockstep/data/datastores/images/image_shards.h"
#include "lockstep/data/images/image.h"
#include "lockstep/data/images/image_format.h"
#include "lockstep/storage/object_store.h"
#include "lockstep/storage/reading/read_ahead.h"
#include "lockstep/storage/reading/shard_blocks.h"

namespace lockstep {
namespace {

// Bytes of a file: those of the largest image without compression, and a head.
constexpr uint64_t largest_image = (uint64_t{max_image_pixels} << 3) + (uint64_t{1} << 20);

struct ListedObjects {
  std::string bucket, prefix;  // of the keys: "", or ending in '/'
  FolderContents contents = {};
  std::vector<storage::WantedObject> objects = {};   // sorted like the listing
  std::vector<storage::WantedObject> archives = {};  // .tar below the root itself, sorted
  std::optional<ImageIndex> index = {};
};

std::string folder_of_key(const std::string& key) {
  const size_t slash = key.rfind('/');
  return slash == std::string::npos ? "" : key.substr(0, slash);
}

// The folders of keys and their contents.
class ObjectWalk {
 public:
  ObjectWalk(std::string root, const ImageFolderOptions& options)
      : root_(std::move(root)), options_(options) {}

  // Adds a key. For Visited::unknown its first bytes decide: add_image() or leave_out() follows.
  enum class Visited { image, unknown, other };
  Visited visit(const std::string& relative, uint64_t size) {
    // A folder with hidden files alone is a folder as well.
    const std::string hidden = hidden_part(relative);
    const std::string folder = folder_of_key(hidden.empty() ? relative : hidden);
    add_folder(folder);
    if (!options_.recursive && !folder.empty()) return Visited::other;
    if (!hidden.empty()) {
      found_.hidden.insert(hidden);
      return Visited::other;
    }
    if (relative.ends_with('/')) return Visited::other;  // an object that stands for a folder
    if (has_image_name(relative)) {
      add_image(relative);
      return Visited::image;
    }
    if (size > 0 && !has_other_name(relative)) return Visited::unknown;
    found_.leave_out(relative, {});
    return Visited::other;
  }

  void add_image(const std::string& relative) {
    found_.images.push_back(relative);
    for (std::string holder = folder_of_key(relative); !holder.empty();
         holder = folder_of_key(holder)) {
      if (!filled_.insert(holder).second) break;
    }
  }

  void leave_out(const std::string& relative, std::span<const std::byte> first) {
    found_.leave_out(relative, first);
  }

  FolderContents finish() {
    for (const std::string& folder : folders_) {
      const std::string above = folder_of_key(folder);
      const bool topmost = above.empty() || filled_.contains(above);
      const bool is_class = above.empty() || options_.labels != FolderLabels::first;
      if (options_.recursive && topmost && is_class && !filled_.contains(folder)) {
        found_.empty.push_back(join_path(root_, folder));
      }
    }
    found_.folders = static_cast<int64_t>(folders_.size());
    return std::move(found_);
  }

 private:
  void add_folder(const std::string& folder) {
    for (std::string f = folder; !f.empty(); f = folder_of_key(f)) {
      if (!folders_.insert(f).second) break;
    }
  }

  const std::string root_;
  const ImageFolderOptions& options_;
  std::set<std::string> folders_, filled_;
  FolderContents found_;
};

// Reads the first bytes of objects and lists those that are images.
void look_at(const ListedObjects& found, const std::vector<storage::WantedPart>& unknown,
             ObjectWalk& walk) {
  if (unknown.empty()) return;
  const std::vector<storage::ReadObject> first =
      storage::object_store().read_parts(found.bucket, unknown);
  for (size_t i = 0; i < unknown.size(); ++i) {
    const std::string& key = unknown[i].object.key;
    if (!first[i].error.empty()) storage::refuse_object(found.bucket, key, first[i].error);
    const std::string relative = key.substr(found.prefix.size());
    if (recognize_image(as_bytes(first[i].bytes)).readable()) {
      walk.add_image(relative);
    } else {
      walk.leave_out(relative, as_bytes(first[i].bytes));
    }
  }
}

ListedObjects listed(const std::string& text, const ImageFolderOptions& options) {
  const storage::Address address = storage::parsed_address(text);
  ListedObjects result{.bucket = address.bucket, .prefix = address.key};
  while (result.prefix.ends_with('/')) result.prefix.pop_back();
  if (!result.prefix.empty()) result.prefix += '/';
  std::vector<storage::ObjectInfo> objects =
      storage::object_store().list(result.bucket, result.prefix);
  if (objects.empty()) {
    throw FileError("[image_folder] there is no folder " + printable(text) +
                    ": no key begins with `" + printable(result.prefix) + "`");
  }
  // Stores may list in another order, and the order of the listing is the order of training.
  std::sort(objects.begin(), objects.end(),
            [](const auto& a, const auto& b) { return a.key < b.key; });
  ObjectWalk walk(text, options);
  std::map<std::string, storage::WantedObject> candidates;
  std::vector<storage::WantedPart> unknown;  // objects whose names do not tell what they are
  storage::ReadObject index;
  bool indexed = false;
  for (storage::ObjectInfo& object : objects) {
    const std::string relative = object.key.substr(result.prefix.size());
    if (relative.empty()) continue;
    if (relative.starts_with('/') || relative.find("//") != std::string::npos) {
      throw DataError("[image_folder] the key " + printable(object.key) + " in " + printable(text) +
                      " contains a folder without a name");
    }
    if (relative == image_index_name) {
      indexed = true;
      index = std::move(
          storage::object_store().read(result.bucket, {{object.key, object.size, object.etag}})[0]);
      if (!index.error.empty()) storage::refuse_object(result.bucket, object.key, index.error);
      continue;
    }
    storage::WantedObject wanted{std::move(object.key), object.size, std::move(object.etag)};
    if (relative.find('/') == std::string::npos && !relative.starts_with('.') &&
        lower_extension(relative) == ".tar") {
      result.archives.push_back(wanted);
    }
    const bool below = relative.find('/') != std::string::npos;
    if (has_image_name(relative) && wanted.size > largest_image && hidden_part(relative).empty() &&
        (options.recursive || !below)) {
      throw DataError("[image_folder] " +
                      printable(storage::Address{result.bucket, wanted.key}.to_string()) + " has " +
                      std::to_string(wanted.size) + " bytes by the store's listing; " +
                      "an image file has at most " + std::to_string(largest_image));
    }
    const ObjectWalk::Visited visited = walk.visit(relative, wanted.size);
    if (visited == ObjectWalk::Visited::other) continue;
    if (visited == ObjectWalk::Visited::unknown) {
      unknown.push_back({wanted, 0, std::min<uint64_t>(wanted.size, image_format_bytes)});
    }
    candidates.emplace(relative, std::move(wanted));
  }
  look_at(result, unknown, walk);
  result.contents = walk.finish();
  std::sort(result.contents.images.begin(), result.contents.images.end());
  for (const std::string& image : result.contents.images) {
    result.objects.push_back(std::move(candidates.at(image)));
  }
  if (indexed) result.index = read_index(as_bytes(index.bytes), join_path(text, image_index_name));
  return result;
}

// Facts of the objects that are still those of the index.
std::vector<ImageFacts> facts_of_objects(const ListedObjects& found) {
  std::vector<ImageFacts> facts;
  if (!found.index) return facts;
  facts.resize(found.objects.size());
  const std::vector<IndexedImage>& images = found.index->images;
  auto image = images.begin();
  for (size_t i = 0; i < facts.size(); ++i) {  // both are sorted
    const storage::WantedObject& object = found.objects[i];
    const std::string name = object.key.substr(found.prefix.size());
    while (image != images.end() && image->name < name) ++image;
    if (image == images.end()) break;
    const bool same = image->name == name && image->size == object.size && !object.etag.empty() &&
                      image->etag == object.etag;
    if (same) facts[i] = image->facts;
  }
  return facts;
}

std::vector<std::byte> bytes_of_text(const std::string& text) {
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

class ImageObjects final : public ImageListing {
 public:
  ImageObjects(const std::string& address, const std::string& root_name, ListedObjects found,
               const ImageFolderOptions& options)
      : ImageListing(address, root_name, std::move(found.contents), options),
        objects_(found.bucket, storage::whole_objects(found.objects)) {
    set_facts(facts_of_objects(found));
  }

  void expect(const std::vector<int64_t>& indices) const override { objects_.expect(indices); }

 private:
  std::vector<std::byte> bytes(int64_t index, bool again) const override {
    return bytes_of_text(again ? objects_.read_again(index) : objects_.read(index));
  }

  storage::ReadAhead objects_;
};

// Archives in a store. Parts come from blocks in the cache on disk if they fit there, else each
// from a request of its own.
class StoredArchives final : public ShardFiles {
 public:
  StoredArchives(std::string bucket, std::vector<storage::WantedObject> archives)
      : bucket_(std::move(bucket)), archives_(std::move(archives)) {
    if (storage::ShardBlocks::fit(archives_)) blocks_.emplace(bucket_, archives_);
  }

  void set_images(const std::vector<IndexedImage>& images) override {
    if (blocks_) return;
    std::vector<storage::WantedPart> parts;
    for (const IndexedImage& image : images) {
      parts.push_back({archives_.at(image.shard), image.offset, image.size});
    }
    parts_.emplace(bucket_, std::move(parts));
  }
  std::vector<std::byte> whole(uint32_t shard) override {
    const uint64_t size = archives_.at(shard).size;
    if (blocks_) return bytes_of_text(blocks_->read(shard, 0, size));
    storage::ReadObject read =
        std::move(storage::object_store().read(bucket_, {archives_[shard]})[0]);
    if (!read.error.empty()) storage::refuse_object(bucket_, archives_[shard].key, read.error);
    return bytes_of_text(read.bytes);
  }
  std::vector<std::byte> read(int64_t index, const IndexedImage& image, bool again) override {
    if (!blocks_) return bytes_of_text(again ? parts_->read_again(index) : parts_->read(index));
    return bytes_of_text(again ? blocks_->read_again(image.shard, image.offset, image.size)
                               : blocks_->read(image.shard, image.offset, image.size));
  }
  void expect(const std::vector<int64_t>& indices,
              const std::vector<IndexedImage>& images) override {
    if (!blocks_) return parts_->expect(indices);
    for (const int64_t index : indices) {
      const IndexedImage& image = images[static_cast<size_t>(index)];
      blocks_->expect(image.shard, image.offset, image.size);
    }
  }

 private:
  const std::string bucket_;
  const std::vector<storage::WantedObject> archives_;
  std::optional<storage::ShardBlocks> blocks_;
  std::optional<storage::ReadAhead> parts_;
};

}  // namespace

DatastorePtr image_objects(const std::string& address, const ImageFolderOptions& options) {
  ListedObjects found = listed(address, options);
  const std::string folder = found.prefix.substr(0, std::max<size_t>(found.prefix.size(), 1) - 1);
  std::string root_name = folder.empty() ? found.bucket : folder.substr(folder.rfind('/') + 1);
  const bool shards = found.index && !found.index->shards.empty();
  if (shards || (found.contents.images.empty() && !found.archives.empty())) {
    std::vector<ShardFile> files;
    for (const storage::WantedObject& object : found.archives) {
      files.push_back({object.key.substr(found.prefix.size()), object.size});
    }
    return image_shards(address, root_name, files, std::move(found.index),
                        std::make_unique<StoredArchives>(found.bucket, found.archives), options);
  }
  if (found.index) root_name = found.index->root_name;
  return std::make_shared<ImageObjects>(address, root_name, std::move(found), options);
}

}  // namespace lockstep
