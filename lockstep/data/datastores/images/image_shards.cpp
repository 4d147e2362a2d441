#include "lockstep/data/datastores/images/image_shards.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/text.h"
#include "lockstep/data/datastores/tar.h"
#include "lockstep/data/images/image_format.h"

namespace lockstep {
namespace {

thread_local const WatchArchives* watch_of_archives = nullptr;

}  // namespace

WatchArchives::WatchArchives(std::function<void(uint64_t, uint64_t)> progress)
    : progress_(std::move(progress)) {
  watch_of_archives = this;
}
WatchArchives::~WatchArchives() { watch_of_archives = nullptr; }

void tell_of_archives(uint64_t done, uint64_t total) {
  if (watch_of_archives != nullptr) watch_of_archives->progress_(done, total);
}

namespace {

// The images of all archives, in the order of the listing. Adds other members to `rest`.
std::vector<IndexedImage> scanned(const std::string& root, const std::vector<ShardFile>& files,
                                  ShardFiles& contents, FolderContents& rest) {
  std::vector<IndexedImage> images;
  uint64_t done = 0, total = 0;
  for (const ShardFile& file : files) total += file.size;
  for (size_t shard = 0; shard < files.size(); ++shard) {
    tell_of_archives(done, total);
    done += files[shard].size;
    const std::vector<std::byte> archive = contents.whole(static_cast<uint32_t>(shard));
    for (TarMember& member : members_of(archive, join_path(root, files[shard].name))) {
      if (const std::string hidden = hidden_part(member.name); !hidden.empty()) {
        rest.hidden.insert(hidden);
        continue;
      }
      if (!has_image_name(member.name)) {
        const auto first = std::span<const std::byte>(archive).subspan(
            member.offset,
            has_other_name(member.name) ? 0 : std::min<uint64_t>(member.size, image_format_bytes));
        if (!recognize_image(first).readable()) {
          rest.leave_out(member.name, first);
          continue;
        }
      }
      IndexedImage image;
      image.name = listing_path(member.name);
      image.size = member.size;
      image.shard = static_cast<uint32_t>(shard);
      image.offset = member.offset;
      images.push_back(std::move(image));
    }
  }
  tell_of_archives(done, total);
  std::sort(images.begin(), images.end(),
            [](const IndexedImage& a, const IndexedImage& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(
      images.begin(), images.end(), [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice != images.end()) {
    throw DataError("[shards] " + printable(root) + " holds " + printable(twice->name) + " twice");
  }
  return images;
}

FolderContents contents_of(const std::vector<IndexedImage>& images, FolderContents contents) {
  for (const IndexedImage& image : images) contents.images.push_back(image.name);
  return contents;
}

class ImageShards final : public ImageListing {
 public:
  ImageShards(const std::string& root, const std::string& root_name,
              std::vector<IndexedImage> images, FolderContents rest,
              std::unique_ptr<ShardFiles> files, const ImageFolderOptions& options,
              const ImageIndex& index = {})
      : ImageListing(root, root_name, contents_of(images, std::move(rest)), options),
        images_(std::move(images)),
        files_(std::move(files)) {
    std::vector<ImageFacts> known;
    for (const IndexedImage& image : images_) known.push_back(image.facts);
    set_facts(std::move(known));
    if (index.labels) {
      std::vector<std::string> told;
      for (const IndexedImage& image : images_) told.push_back(index.classes.at(image.label));
      compare_labels(told, *index.labels);
    }
    files_->set_images(images_);
  }

  void expect(const std::vector<int64_t>& indices) const override {
    files_->expect(indices, images_);
  }

 private:
  std::vector<std::byte> bytes(int64_t index, bool again) const override {
    return files_->read(index, images_[static_cast<size_t>(index)], again);
  }

  const std::vector<IndexedImage> images_;
  const std::unique_ptr<ShardFiles> files_;
};

class LocalArchives final : public ShardFiles {
 public:
  LocalArchives(std::string folder, const std::vector<ShardFile>& files) {
    for (const ShardFile& file : files) paths_.push_back(join_path(folder, file.name));
  }

  void set_images(const std::vector<IndexedImage>&) override {}
  std::vector<std::byte> whole(uint32_t shard) override {
    return local_files().read(paths_.at(shard));
  }
  std::vector<std::byte> read(int64_t, const IndexedImage& image, bool) override {
    const std::string& path = paths_.at(image.shard);
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::vector<std::byte> bytes(image.size);
    ssize_t taken = file ? 1 : -1;
    for (size_t done = 0; done < bytes.size() && taken > 0; done += static_cast<size_t>(taken)) {
      taken = ::pread(file.get(), bytes.data() + done, bytes.size() - done,
                      static_cast<off_t>(image.offset + done));
      if (taken <= 0) break;
    }
    if (taken > 0) return bytes;
    throw FileError(
        "[shards] cannot read " + path + ": " +
        (taken == 0 ? "it is shorter than its index says" : std::system_category().message(errno)));
  }
  void expect(const std::vector<int64_t>&, const std::vector<IndexedImage>&) override {}

 private:
  std::vector<std::string> paths_;
};

}  // namespace

DatastorePtr image_shards(const std::string& root, const std::string& root_name,
                          const std::vector<ShardFile>& files, std::optional<ImageIndex> index,
                          std::unique_ptr<ShardFiles> contents, const ImageFolderOptions& options) {
  if (!index) {
    FolderContents rest;
    std::vector<IndexedImage> images = scanned(root, files, *contents, rest);
    return std::make_shared<ImageShards>(root, root_name, std::move(images), std::move(rest),
                                         std::move(contents), options);
  }
  // Other archives may lie next to those of the index.
  std::vector<uint32_t> shards;
  for (const IndexedShard& shard : index->shards) {
    const auto at = std::find_if(files.begin(), files.end(),
                                 [&](const ShardFile& file) { return file.name == shard.name; });
    if (at == files.end() || at->size != shard.size) {
      throw DataError("[shards] " + printable(join_path(root, shard.name)) +
                          (at == files.end() ? " is missing" : " is not the one of the index"),
                      "write the shards again with `lockstep shard`");
    }
    shards.push_back(static_cast<uint32_t>(at - files.begin()));
  }
  for (IndexedImage& image : index->images) image.shard = shards[image.shard];
  FolderContents rest;
  if (index->class_files > 0) rest.others[".cls"] = index->class_files;
  std::erase_if(index->images, [&](const IndexedImage& image) {
    const std::string hidden = hidden_part(image.name);
    if (!hidden.empty()) rest.hidden.insert(hidden);
    return !hidden.empty();
  });
  std::vector<IndexedImage> images = std::move(index->images);
  return std::make_shared<ImageShards>(root, index->root_name, std::move(images), std::move(rest),
                                       std::move(contents), options, *index);
}

bool holds_shards(const std::string& folder, const FolderContents& contents) {
  if (!contents.others.contains(".tar")) return false;
  const std::string path = join_path(folder, image_index_name);
  if (!local_files().exists(path)) return contents.images.empty();
  return !read_index(local_files().read(path), path).shards.empty();
}

DatastorePtr image_shards(const std::string& folder, const ImageFolderOptions& options) {
  const std::string path = join_path(folder, image_index_name);
  std::optional<ImageIndex> index;
  if (local_files().exists(path)) index = read_index(local_files().read(path), path);
  std::vector<ShardFile> files;
  for (const std::string& name : local_files().list(folder)) {
    if (lower_extension(name) != ".tar" || name.starts_with('.')) continue;
    std::error_code error;
    const uint64_t size = std::filesystem::file_size(join_path(folder, name), error);
    if (error) throw FileError("[shards] cannot read " + join_path(folder, name));
    files.push_back({name, size});
  }
  auto contents = std::make_unique<LocalArchives>(folder, files);
  return image_shards(folder, root_name_of(folder), files, std::move(index), std::move(contents),
                      options);
}

}  // namespace lockstep
