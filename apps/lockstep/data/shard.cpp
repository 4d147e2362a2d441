#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "apps/lockstep/command.h"
#include "apps/lockstep/image_options.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/text.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/images/image_index.h"
#include "lockstep/data/datastores/images/image_listing.h"
#include "lockstep/data/datastores/tar.h"
#include "lockstep/data/images/image_format.h"
#include "lockstep/report/progress.h"
#include "lockstep/storage/object_store.h"
#include "lockstep/storage/s3_files.h"

namespace lockstep::command {
namespace {

struct ShardArguments {
  std::string folder, target, labels = "first";
  int megabytes = 64;
};

// Writes archives of images and, at last, their index.
class ShardWriter {
 public:
  ShardWriter(std::string target, uint64_t most_bytes)
      : target_(std::move(target)), most_bytes_(most_bytes) {}

  // Adds an image, whose offset and shard are set.
  void add(IndexedImage& image, const std::string& member, std::string_view contents) {
    if (!archive_.empty() && archive_.size() + contents.size() > most_bytes_) close();
    image.offset = add_member(archive_, member, contents);
    image.shard = static_cast<uint32_t>(shards_.size());
    add_member(archive_, member_key(member) + ".cls", std::to_string(image.label));
  }

  std::vector<IndexedShard> finish() {
    if (!archive_.empty()) close();
    return shards_;
  }

 private:
  void close() {
    end_archive(archive_);
    const std::string name = fmt::format("shard-{:06}.tar", shards_.size());
    storage::write_file(join_path(target_, name), as_bytes(archive_));
    shards_.push_back({name, archive_.size()});
    archive_.clear();
  }
  const std::string target_;
  const uint64_t most_bytes_;
  std::string archive_;
  std::vector<IndexedShard> shards_;
};

// The member of each image. Numbers distinguish images that differ only in their extension.
std::vector<std::string> members_of_listing(const Datastore& listing) {
  std::map<std::string, int64_t> keys;
  std::vector<std::string> members;
  for (int64_t i = 0; i < listing.size(); ++i) {
    const std::string name = listing.name(i);
    if (!is_utf8(name)) {
      throw DataError("[shard] the name " + printable(name) +
                      " is not UTF-8, so it cannot be a key");
    }
    std::string member = member_name(name, 0);
    const std::string key = member_key(member);
    int64_t& number = keys[key];
    const bool nameless = key.empty() || key.ends_with('/');
    if (number > 0 || nameless) member = member_name(name, number + (nameless ? 1 : 0));
    ++number;
    members.push_back(std::move(member));
  }
  return members;
}

int shard_command(const ShardArguments& a) {
  if (storage::is_address(a.folder)) {
    throw Unsupported("[shard] " + a.folder + " is not a local folder");
  }
  std::string target = a.target;
  while (target.size() > 1 && target.ends_with('/')) target.pop_back();
  FileSystem& files = storage::files_of(target);
  if (storage::is_address(target)) {
    storage::parsed_address(target);
  } else {
    make_folders(files, target);
  }
  const std::string index_path = join_path(target, image_index_name);
  // As for `upload`: readers know whether they use the labels, and refuse what cannot be learned.
  const FolderLabels labels = folder_labels(a.labels);
  const DatastorePtr listing =
      image_folder(a.folder, {.labels = labels, .labeled = false, .allow_empty_folders = true});
  const std::vector<std::string> members = members_of_listing(*listing);
  // Shards hold images of all classes, for readers that shuffle only within a shard: the order is
  // that of the digests of their names.
  std::vector<std::pair<std::string, int64_t>> order;
  for (int64_t i = 0; i < listing->size(); ++i) {
    const std::string name = listing->name(i);
    order.emplace_back(digest_of(name.data(), name.size()).to_string(), i);
  }
  std::sort(order.begin(), order.end());
  files.remove(index_path);  // an earlier index does not fit the shards while they are written
  ImageIndex index;
  index.classes = listing->classes();
  index.root_name = root_name_of(a.folder);
  index.labels = labels;
  index.class_files = dynamic_cast<const ImageListing&>(*listing).class_files();
  index.images.resize(order.size());
  ShardWriter writer(target, static_cast<uint64_t>(a.megabytes) << 20);
  OrientedImages oriented;
  ThreadPool pool(std::min(available_cores(), 1024));
  constexpr size_t at_once = 64;
  for (size_t first = 0; first < order.size(); first += at_once) {
    const size_t count = std::min(at_once, order.size() - first);
    std::vector<std::string> contents(count);
    pool.for_each(static_cast<int64_t>(count), [&](int64_t k, int) {
      const auto i = static_cast<size_t>(order[first + static_cast<size_t>(k)].second);
      const std::string path = join_path(a.folder, listing->name(static_cast<int64_t>(i)));
      std::string& bytes = contents[static_cast<size_t>(k)];
      bytes = read_text(local_files(), path);
      index.images[i] = indexed_image(*listing, static_cast<int64_t>(i), bytes.size());
      index.images[i].facts = facts_of_file(as_bytes(bytes), path);
      if (exif_orientation(as_bytes(bytes)) > 1) oriented.add(static_cast<int64_t>(i));
    });
    for (size_t k = 0; k < count; ++k) {
      const auto i = static_cast<size_t>(order[first + k].second);
      writer.add(index.images[i], members[i], contents[k]);
    }
    if (error_is_terminal()) {
      std::fprintf(stderr, "\r%s of %s images",
                   format_count(static_cast<int64_t>(first + count)).c_str(),
                   format_count(static_cast<int64_t>(order.size())).c_str());
    }
  }
  index.shards = writer.finish();
  if (error_is_terminal()) std::fprintf(stderr, "\n");
  storage::write_file(index_path, write_index(index));
  Notes().print_new({listing});
  if (a.labels != "first") {
    std::fprintf(stderr,
                 "note: readers need the same rule: labels = \"%s\" in [data], or --labels %s\n",
                 a.labels.c_str(), a.labels.c_str());
  }
  if (const std::string text = oriented.notice(*listing); !text.empty()) {
    std::fprintf(stderr, "note: %s: %s\n", printable(a.folder).c_str(), text.c_str());
  }
  const auto images = std::ssize(index.images), shards = std::ssize(index.shards);
  print(fmt::format("{} {} in {} {} in {}\n", format_count(images),
                    images == 1 ? "image" : "images", format_count(shards),
                    shards == 1 ? "shard" : "shards", printable(target)));
  return 0;
}

}  // namespace

void add_shard(Commands& commands) {
  auto a = std::make_shared<ShardArguments>();
  Subcommand sub = commands.add(
      "shard", "Pack a folder of images into tar archives",
      "Writes the images of a folder into tar archives in WebDataset's layout, into an S3 store or "
      "a local folder, and an index of them. The address or folder can then be used in place of "
      "the folder of images, with the same order, labels and receipts. Few large objects are read "
      "much "
      "faster than many small ones. Other archives at the target with the same names are replaced.",
      {{"lockstep shard images s3://my-bucket/shards", "for `train = \"s3://my-bucket/shards\"`"}},
      [a] { return shard_command(*a); });
  sub.add_option("folder", a->folder, "Folder with the images").required().type_name("DIR");
  sub.add_option("target", a->target, "s3://BUCKET/PREFIX or a local folder")
      .required()
      .type_name("ADDRESS");
  add_labels(sub, a->labels);
  sub.add_option("--megabytes", a->megabytes, "Size of a shard in MB")
      .range(1, 1024)
      .type_name("N");
}

}  // namespace lockstep::command
