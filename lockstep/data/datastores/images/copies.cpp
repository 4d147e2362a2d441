#include "lockstep/data/datastores/images/copies.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/threads/thread_pool.h"

namespace lockstep {
namespace {

// What is known of a file: its size, then also some of its bytes, at last all.
struct FileKey {
  uint64_t size = 0;
  Digest digest = {};

  friend bool operator<(const FileKey& a, const FileKey& b) {
    return std::tie(a.size, a.digest.high, a.digest.low) <
           std::tie(b.size, b.digest.high, b.digest.low);
  }
};

using Keys = std::vector<std::optional<FileKey>>;  // nothing: no image is like it

constexpr size_t kSample = 4096;  // bytes from the middle of a file

std::optional<Digest> digest_of_sample(const std::string& path, uint64_t size) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes(std::min<uint64_t>(size, kSample));
  file.seekg(static_cast<std::streamoff>((size - bytes.size()) / 2));
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) return std::nullopt;
  return digest_of(bytes.data(), bytes.size());
}

std::optional<Digest> digest_of_file(const std::string& path) {
  try {
    Digester digester;
    local_files().read_in_chunks(path, [&](std::span<const std::byte> chunk) {
      digester.bytes(chunk.data(), chunk.size());
    });
    return digester.finish();
  } catch (const FileError&) {
    return std::nullopt;  // reading it as an image says why
  }
}

// Replaces the key of each image that shares it with another by what `better` returns; others are
// like no image.
template <class Better>
void refine(Keys& keys, ThreadPool& pool, Better better) {
  std::map<FileKey, int64_t> counts;
  for (const auto& key : keys) {
    if (key) ++counts[*key];
  }
  pool.for_each(static_cast<int64_t>(keys.size()), [&](int64_t i, int) {
    std::optional<FileKey>& key = keys[static_cast<size_t>(i)];
    if (!key) return;
    if (counts.at(*key) == 1) {
      key.reset();
      return;
    }
    const std::optional<Digest> digest = better(i, *key);
    if (digest) {
      key->digest = *digest;
    } else {
      key.reset();
    }
  });
}

// Keys of images of an index. An image that is no longer that of the index is read.
Keys keys_of_index(const Datastore& images, ThreadPool& pool) {
  Keys keys(static_cast<size_t>(images.size()));
  pool.for_each(images.size(), [&](int64_t i, int) {
    try {
      const ImageFacts* const facts = images.facts(i);
      const Digest content = facts != nullptr ? facts->content : images.content_digest(i);
      keys[static_cast<size_t>(i)] = FileKey{0, content};
    } catch (const Error&) {
      // Reading it as an image says why.
    }
  });
  return keys;
}

}  // namespace

bool have_facts(const Datastore& images) {
  for (int64_t i = 0; i < images.size(); ++i) {
    if (images.facts(i) != nullptr) return true;
  }
  return false;
}

std::vector<int64_t> first_copies(const Datastore& images, const std::string& folder,
                                  ThreadPool& pool) {
  const auto n = static_cast<size_t>(images.size());
  Keys keys(n);
  if (have_facts(images)) {
    keys = keys_of_index(images, pool);
  } else {
    const auto path = [&](int64_t i) { return join_path(folder, images.name(i)); };
    pool.for_each(images.size(), [&](int64_t i, int) {
      std::error_code error;
      const uint64_t size = std::filesystem::file_size(path(i), error);
      if (!error) keys[static_cast<size_t>(i)] = FileKey{size, {}};
    });
    refine(keys, pool,
           [&](int64_t i, const FileKey& key) { return digest_of_sample(path(i), key.size); });
    refine(keys, pool, [&](int64_t i, const FileKey& key) -> std::optional<Digest> {
      if (key.size <= kSample) return key.digest;
      return digest_of_file(path(i));
    });
  }
  std::vector<int64_t> first(n);
  std::map<FileKey, int64_t> seen;
  for (size_t i = 0; i < n; ++i) {
    const auto at = static_cast<int64_t>(i);
    first[i] = keys[i] ? seen.emplace(*keys[i], at).first->second : at;
  }
  return first;
}

}  // namespace lockstep
