#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "apps/lockstep/command.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/text.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/datastores/images/image_index.h"
#include "lockstep/data/datastores/images/image_listing.h"
#include "lockstep/data/images/image_format.h"
#include "lockstep/report/progress.h"
#include "lockstep/storage/multipart.h"
#include "lockstep/storage/object_store.h"
#include "lockstep/storage/signature.h"

namespace lockstep::command {
namespace {

constexpr uint64_t largest_object = uint64_t{5} << 40;
constexpr uint64_t batch_bytes = uint64_t{64} << 20;
constexpr size_t batch_objects = 64;

struct UploadArguments {
  std::string folder, address;
};

struct LocalObject {
  std::string relative;  // path below the folder
  uint64_t size = 0;
};

// All files below the folder, sorted bytewise.
std::vector<LocalObject> files_below(const std::string& folder) {
  namespace fs = std::filesystem;
  if (!local_files().is_folder(folder)) {
    throw FileError("[upload] there is no folder " + folder);
  }
  std::map<std::string, uint64_t> found;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::follow_directory_symlink,
                                         error);
  for (const fs::recursive_directory_iterator end; !error && entry != end; entry.increment(error)) {
    const std::string path = entry->path().string();
    if (entry.depth() > 256) throw DataError("[upload] " + path + ": more than 256 nested folders");
    if (entry->is_directory()) continue;
    if (entry.depth() == 0 && entry->path().filename() == image_index_name) continue;
    if (!entry->is_regular_file()) {
      throw DataError("[upload] " + path + " is not a file (a broken link or a special file)");
    }
    if (!is_utf8(path)) {
      throw DataError("[upload] the name of " + path + " is not UTF-8, so it cannot be a key");
    }
    if (entry->file_size() > largest_object) {
      throw Unsupported("[upload] " + path + " is larger than 5 TB, the limit of an object");
    }
    found[entry->path().lexically_relative(folder).generic_string()] = entry->file_size();
  }
  if (error) throw FileError("[upload] cannot read " + folder + ": " + error.message());
  if (found.empty()) throw DataError("[upload] " + folder + " contains no files");
  std::vector<LocalObject> files;
  for (const auto& [relative, size] : found) files.push_back({relative, size});
  return files;
}

// Reads chunks of a file that need not fit the memory.
storage::ObjectContents contents_of_file(const std::string& path) {
  const auto file = std::make_shared<Descriptor>(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file->get() < 0)
    throw FileError("[upload] cannot open " + path + ": " + std::strerror(errno));
  return [file, path](uint64_t offset, uint64_t size) {
    std::string bytes(size, '\0');
    for (size_t done = 0; done < size;) {
      const ssize_t taken =
          ::pread(file->get(), bytes.data() + done, size - done, static_cast<off_t>(offset + done));
      if (taken < 0 && errno == EINTR) continue;
      if (taken < 0) {
        throw FileError("[upload] cannot read " + path + ": " + std::strerror(errno));
      }
      if (taken == 0) throw FileError("[upload] " + path + " has become shorter");
      done += static_cast<size_t>(taken);
    }
    return bytes;
  };
}

// Writes a file that is too large for one request, unless it is there already. Returns whether it
// was written.
bool upload_large(const LocalObject& file, const std::string& path, const storage::Address& to,
                  const std::map<std::string, std::string>& etags) {
  const storage::ObjectContents contents = contents_of_file(path);
  const auto there = etags.find(to.key);
  if (there != etags.end() && there->second == storage::etag_of(file.size, contents)) return false;
  storage::object_store().write(to, file.size, contents);
  return true;
}

// Whether the file is, or may be, an image of the listing.
bool may_be_image(const LocalObject& file) {
  if (!hidden_part(file.relative).empty()) return false;
  if (has_image_name(file.relative)) return true;
  return !has_other_name(file.relative) && !storage::needs_parts(file.size);
}

// Writes the index of the uploaded images, or removes an earlier one if there are none.
void write_index_object(const UploadArguments& a, const storage::Address& target,
                        const std::map<std::string, ImageFacts>& facts,
                        const std::set<std::string>& oriented_names) {
  const storage::Address address{target.bucket, target.key + image_index_name};
  if (facts.empty()) return storage::object_store().remove(address);
  std::map<std::string, storage::ObjectInfo> objects;
  for (storage::ObjectInfo& object : storage::object_store().list(target.bucket, target.key)) {
    const std::string name = object.key.substr(target.key.size());
    objects[name] = std::move(object);
  }
  const DatastorePtr listing =
      image_folder(a.folder, {.labeled = false, .allow_empty_folders = true});
  OrientedImages oriented;
  ImageIndex index;
  index.classes = listing->classes();
  index.root_name = root_name_of(a.folder);
  for (int64_t i = 0; i < listing->size(); ++i) {
    const auto known = facts.find(listing->name(i));
    const auto object = objects.find(listing->name(i));
    if (oriented_names.contains(listing->name(i))) oriented.add(i);
    if (known == facts.end() || object == objects.end()) continue;
    IndexedImage image = indexed_image(*listing, i, object->second.size);
    image.etag = object->second.etag;
    image.facts = known->second;
    index.images.push_back(std::move(image));
  }
  if (const std::string text = oriented.notice(*listing); !text.empty()) {
    std::fprintf(stderr, "note: %s: %s\n", printable(a.folder).c_str(), text.c_str());
  }
  const std::vector<std::byte> bytes = write_index(index);
  storage::object_store().write(address,
                                {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

int upload_command(const UploadArguments& a) {
  if (!storage::is_address(a.address)) {
    throw InvalidArgument("[upload] `" + a.address + "` is not an address s3://BUCKET/PREFIX");
  }
  storage::Address target = storage::parsed_address(a.address);
  while (target.key.ends_with('/')) target.key.pop_back();
  if (!target.key.empty()) target.key += '/';
  const std::vector<LocalObject> files = files_below(a.folder);
  std::map<std::string, std::string> etags;  // of what is there already
  for (const storage::ObjectInfo& object :
       storage::object_store().list(target.bucket, target.key)) {
    etags[object.key] = object.etag;
  }
  int64_t written = 0, present = 0;
  std::map<std::string, ImageFacts> facts;  // of images
  std::set<std::string> oriented;           // names of images with an EXIF orientation
  ThreadPool pool(std::min(available_cores(), 1024));
  for (size_t next = 0; next < files.size();) {
    std::vector<storage::NewObject> batch;
    std::vector<std::pair<std::string, std::string>> images;  // path and contents
    uint64_t bytes = 0;
    for (; next < files.size() && images.size() < batch_objects && batch.size() < batch_objects &&
           bytes < batch_bytes;
         ++next) {
      const std::string key = target.key + files[next].relative;
      const std::string path = join_path(a.folder, files[next].relative);
      if (storage::needs_parts(files[next].size) && !may_be_image(files[next])) {
        ++(upload_large(files[next], path, {target.bucket, key}, etags) ? written : present);
        continue;
      }
      std::string contents = read_text(local_files(), path);
      const bool image =
          may_be_image(files[next]) &&
          (has_image_name(files[next].relative) ||
           recognize_image(as_bytes(contents).first(std::min(contents.size(), image_format_bytes)))
               .readable());
      if (image) images.emplace_back(files[next].relative, contents);
      const auto there = etags.find(key);
      if (there != etags.end() && there->second == storage::hexadecimal(storage::md5(contents))) {
        ++present;
        continue;
      }
      bytes += contents.size();
      batch.push_back({key, std::move(contents)});
    }
    std::vector<ImageFacts> found(images.size());
    pool.for_each(static_cast<int64_t>(images.size()), [&](int64_t i, int) {
      const auto& [name, contents] = images[static_cast<size_t>(i)];
      found[static_cast<size_t>(i)] = facts_of_file(as_bytes(contents), name);
    });
    for (size_t i = 0; i < images.size(); ++i) {
      facts[images[i].first] = found[i];
      if (exif_orientation(as_bytes(images[i].second)) > 1) oriented.insert(images[i].first);
    }
    storage::object_store().write(target.bucket, batch);
    written += static_cast<int64_t>(batch.size());
    if (error_is_terminal()) {
      std::fprintf(stderr, "\r%s of %s files", format_count(written + present).c_str(),
                   format_count(static_cast<int64_t>(files.size())).c_str());
    }
  }
  if (error_is_terminal()) std::fprintf(stderr, "\n");
  write_index_object(a, target, facts, oriented);
  std::string text =
      fmt::format("{} files in {}", format_count(written + present), printable(a.address));
  if (present > 0) text += fmt::format(", of which {} were there already", format_count(present));
  print(text + "\n");
  return 0;
}

}  // namespace

void add_upload(Commands& commands) {
  auto a = std::make_shared<UploadArguments>();
  Subcommand sub = commands.add(
      "upload", "Copy a folder into an S3 store",
      "Writes every file below the folder to an object with its path, 16 at a time. Objects that "
      "have the contents already are left as they are, so an upload that was interrupted is "
      "continued by the same command. The store verifies the MD5 of each object. Files above 64 MB "
      "are written in parts of 16 MB. Other objects below the address are kept. Finally, an index "
      "of the images is written, so that a training begins without reading them.\n\n"
      "Keys and endpoint come from the environment and profile files, as for other tools of AWS.",
      {{"lockstep upload images s3://my-bucket/images", "for `train = \"s3://my-bucket/images\"`"}},
      [a] { return upload_command(*a); });
  sub.add_option("folder", a->folder, "Folder with the files").required().type_name("DIR");
  sub.add_option("address", a->address, "s3://BUCKET/PREFIX").required().type_name("ADDRESS");
}

}  // namespace lockstep::command
