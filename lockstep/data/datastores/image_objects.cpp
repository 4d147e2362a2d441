#include <algorithm>
#include <set>
#include <utility>

#include "lockstep/base/cloud/object_store.h"
#include "lockstep/base/cloud/read_ahead.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/text.h"
#include "lockstep/data/datastores/image_listing.h"

namespace lockstep {
namespace {

struct ListedObjects {
  std::string bucket, prefix;  // of the keys: "", or ending in '/'
  FolderContents contents = {};
  std::vector<cloud::WantedObject> objects = {};  // sorted like the listing
};

// The folders of keys and their contents.
class ObjectWalk {
 public:
  ObjectWalk(std::string root, const ImageFolderOptions& options)
      : root_(std::move(root)), options_(options) {}

  void visit(const std::string& relative) {
    const size_t slash = relative.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : relative.substr(0, slash);
    add_folder(folder);
    if (relative.ends_with('/')) return;  // an object that stands for a folder
    if (!options_.recursive && !folder.empty()) return;
    const std::string extension = lower_extension(relative.substr(slash + 1));
    if (!is_image_extension(extension)) {
      ++found_.others[extension.empty() ? "no extension" : extension];
      return;
    }
    found_.images.push_back(relative);
    for (std::string holder = folder; !holder.empty(); holder = parent_of(holder)) {
      if (!filled_.insert(holder).second) break;
    }
  }

  FolderContents finish() {
    for (const std::string& folder : folders_) {
      const std::string above = parent_of(folder);
      const bool topmost = above.empty() || filled_.contains(above);
      const bool hidden = folder[folder.rfind('/') + 1] == '.';
      if (options_.recursive && topmost && !hidden && !filled_.contains(folder)) {
        found_.empty.push_back(join_path(root_, folder));
      }
    }
    found_.folders = static_cast<int64_t>(folders_.size());
    return std::move(found_);
  }

 private:
  static std::string parent_of(const std::string& folder) {
    const size_t slash = folder.rfind('/');
    return slash == std::string::npos ? "" : folder.substr(0, slash);
  }
  void add_folder(const std::string& folder) {
    for (std::string f = folder; !f.empty(); f = parent_of(f)) {
      if (!folders_.insert(f).second) break;
    }
  }

  const std::string root_;
  const ImageFolderOptions& options_;
  std::set<std::string> folders_, filled_;
  FolderContents found_;
};

ListedObjects listed(const std::string& text, const ImageFolderOptions& options) {
  const cloud::Address address = cloud::parsed_address(text);
  ListedObjects result{.bucket = address.bucket, .prefix = address.key};
  while (result.prefix.ends_with('/')) result.prefix.pop_back();
  if (!result.prefix.empty()) result.prefix += '/';
  std::vector<cloud::ObjectInfo> objects = cloud::object_store().list(result.bucket, result.prefix);
  if (objects.empty()) {
    throw FileError("[image_folder] there is no folder " + printable(text) +
                    ": no key begins with `" + printable(result.prefix) + "`");
  }
  // Stores may list in another order, and the order of the listing is the order of training.
  std::sort(objects.begin(), objects.end(),
            [](const auto& a, const auto& b) { return a.key < b.key; });
  ObjectWalk walk(text, options);
  for (cloud::ObjectInfo& object : objects) {
    const std::string relative = object.key.substr(result.prefix.size());
    if (relative.empty()) continue;
    if (relative.starts_with('/') || relative.find("//") != std::string::npos) {
      throw DataError("[image_folder] the key " + printable(object.key) + " in " + printable(text) +
                      " contains a folder without a name");
    }
    walk.visit(relative);
    const bool below = relative.find('/') != std::string::npos;
    if (relative.ends_with('/') || (!options.recursive && below)) continue;
    if (is_image_extension(lower_extension(relative.substr(relative.rfind('/') + 1)))) {
      result.objects.push_back({std::move(object.key), object.size, std::move(object.etag)});
    }
  }
  result.contents = walk.finish();
  return result;
}

class ImageObjects final : public ImageListing {
 public:
  ImageObjects(const std::string& address, const std::string& root_name, ListedObjects found,
               const ImageFolderOptions& options)
      : ImageListing(address, root_name, std::move(found.contents), options),
        objects_(std::move(found.bucket), std::move(found.objects)) {}

 private:
  std::vector<std::byte> bytes(int64_t index) const override {
    const std::string text = objects_.read(index);
    const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
    return {begin, begin + text.size()};
  }

  cloud::ReadAhead objects_;
};

}  // namespace

DatastorePtr image_objects(const std::string& address, const ImageFolderOptions& options) {
  ListedObjects found = listed(address, options);
  const std::string folder = found.prefix.substr(0, std::max<size_t>(found.prefix.size(), 1) - 1);
  const std::string root_name =
      folder.empty() ? found.bucket : folder.substr(folder.rfind('/') + 1);
  return std::make_shared<ImageObjects>(address, root_name, std::move(found), options);
}

}  // namespace lockstep
