// The index of a listing in a store.
#include "lockstep/data/datastores/images/image_index.h"

#include <algorithm>
#include <cstring>

#include "tests/fuzz/target.h"

namespace lockstep::fuzz {

void parse(std::span<const std::byte> bytes) {
  // With a checksum that fits, so that mutations reach the rest of the reader.
  constexpr size_t mark = 23, sum = 16;
  Bytes fitting(bytes.begin(), bytes.end());
  if (fitting.size() >= mark + sum) {
    const Digest digest = digest_of(fitting.data() + mark, fitting.size() - mark - sum);
    std::memcpy(fitting.data() + fitting.size() - sum, &digest.high, 8);
    std::memcpy(fitting.data() + fitting.size() - 8, &digest.low, 8);
  }
  const ImageIndex index = read_index(fitting, "index");
  // What was read can be written, with the same bytes.
  if (write_index(index) != fitting) throw std::logic_error("another index was written");
}

std::vector<Bytes> seeds() {
  const Image gray{2, 3, 1, {1, 2, 3, 4, 5, 6}};
  const Image color{1, 2, 3, {9, 8, 7, 6, 5, 255}};
  ImageIndex objects{.root_name = "images", .classes = {"a", "b"}};
  objects.images.resize(3);
  objects.images[0] = {.name = "a/1.png", .size = 70, .etag = "0123456789abcdef"};
  objects.images[0].facts = facts_of(gray, digest_of("x", 1));
  objects.images[1] = {.name = "b/1.png", .label = 1, .size = 80, .etag = "fedcba"};
  objects.images[1].facts = facts_of(color, digest_of("y", 1));
  objects.images[2] = {.name = "b/2.png", .label = 1, .size = 90};
  ImageIndex shards = objects;
  shards.shards = {{"shard-000000.tar", 2048}, {"shard-000001.tar", 4096}};
  shards.images[0].offset = 512;
  shards.images[1].shard = shards.images[2].shard = 1;
  ImageIndex ruled = shards;
  ruled.labels = FolderLabels::nearest;
  ruled.class_files = 2;
  return {write_index({}), write_index(objects), write_index(shards), write_index(ruled)};
}

}  // namespace lockstep::fuzz
