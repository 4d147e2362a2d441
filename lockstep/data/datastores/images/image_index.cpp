#include "lockstep/data/datastores/images/image_index.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

// The second kind has the rule of the labels, and the number of files of classes.
constexpr std::string_view plain_mark = "lockstep image index 1\n";
constexpr std::string_view ruled_mark = "lockstep image index 2\n";
static_assert(plain_mark.size() == ruled_mark.size());
constexpr size_t most_text = 65535;
constexpr uint64_t most_bytes = uint64_t{1} << 62;  // sums of two sizes fit 64 bits

class IndexWriter {
 public:
  explicit IndexWriter(std::string_view mark) { bytes(mark.data(), mark.size()); }
  void bytes(const void* data, size_t size) {
    const auto* const begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }
  // Little-endian, `size` bytes.
  void number(uint64_t value, size_t size) {
    for (size_t i = 0; i < size; ++i) bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
  void text(const std::string& text) {
    if (text.size() > most_text) throw DataError("[index] a name is longer than 65,535 bytes");
    number(text.size(), 2);
    bytes(text.data(), text.size());
  }
  void digest(const Digest& digest) {
    number(digest.high, 8);
    number(digest.low, 8);
  }
  // The mark, the contents and their digest.
  std::vector<std::byte> finish() {
    digest(digest_of(bytes_.data() + plain_mark.size(), bytes_.size() - plain_mark.size()));
    return std::move(bytes_);
  }

 private:
  std::vector<std::byte> bytes_;
};

class IndexReader {
 public:
  IndexReader(std::span<const std::byte> bytes, const std::string& name)
      : rest_(bytes), name_(name) {}

  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError("[index] " + printable(name_) + " is damaged: " + what,
                    "write the index again with `lockstep upload` or `lockstep shard`");
  }
  void require(bool holds, const char* what) const {
    if (!holds) refuse(what);
  }

  std::span<const std::byte> take(size_t size) {
    require(size <= rest_.size(), "it ends too early");
    const auto taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }
  uint64_t number(size_t size) {
    uint64_t value = 0;
    const auto taken = take(size);
    for (size_t i = 0; i < size; ++i) value |= static_cast<uint64_t>(taken[i]) << (8 * i);
    return value;
  }
  std::string text() {
    const auto taken = take(static_cast<size_t>(number(2)));
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  Digest digest() {
    Digest digest;
    digest.high = number(8);
    digest.low = number(8);
    return digest;
  }
  // A number of items of at least `least` bytes each, which the rest can hold.
  size_t count(size_t least) {
    const uint64_t count = number(8);
    require(count <= rest_.size() / least, "it announces more items than it has");
    return static_cast<size_t>(count);
  }
  // A path below the root without "..", as listings have them.
  std::string path() {
    std::string path = text();
    require(!path.empty() && path.front() != '/' && path.back() != '/' &&
                path.find('\0') == std::string::npos && path.find("//") == std::string::npos,
            "a name is not a path below the root");
    return path;
  }
  size_t left() const { return rest_.size(); }
  // Removes the checksum at the end, after comparison.
  void check_sum() {
    constexpr size_t size = 16;
    require(rest_.size() >= size, "it ends too early");
    const auto contents = rest_.first(rest_.size() - size);
    rest_ = rest_.subspan(contents.size());
    const Digest told = digest();
    require(told == digest_of(contents.data(), contents.size()), "its checksum is wrong");
    rest_ = contents;
  }

 private:
  std::span<const std::byte> rest_;
  const std::string& name_;
};

void write_facts(IndexWriter& to, const ImageFacts& facts) {
  to.digest(facts.content);
  to.number(static_cast<uint64_t>(facts.height), 2);
  to.number(static_cast<uint64_t>(facts.width), 2);
  to.number(static_cast<uint64_t>(facts.channels), 1);
  for (int64_t c = 0; c < facts.channels; ++c) {
    const ImageFacts::Channel& channel = facts.sums.at(static_cast<size_t>(c));
    to.number(channel.sum, 8);
    to.number(channel.sum_of_squares, 8);
    to.number(channel.min, 1);
    to.number(channel.max, 1);
  }
}

ImageFacts read_facts(IndexReader& from) {
  ImageFacts facts;
  facts.content = from.digest();
  facts.height = static_cast<int64_t>(from.number(2));
  facts.width = static_cast<int64_t>(from.number(2));
  facts.channels = static_cast<int64_t>(from.number(1));
  const bool readable = facts.channels == 1 || facts.channels == 3;
  from.require(readable || facts.channels == 0, "an image has a wrong number of channels");
  const auto side = [&](int64_t n) { return readable ? n >= 1 && n <= max_image_side : n == 0; };
  from.require(side(facts.height) && side(facts.width), "an image has a wrong size");
  const auto pixels = static_cast<uint64_t>(facts.height * facts.width);
  from.require(pixels <= static_cast<uint64_t>(max_image_pixels), "an image has a wrong size");
  for (int64_t c = 0; c < facts.channels; ++c) {
    ImageFacts::Channel& channel = facts.sums.at(static_cast<size_t>(c));
    channel.sum = from.number(8);
    channel.sum_of_squares = from.number(8);
    channel.min = static_cast<uint8_t>(from.number(1));
    channel.max = static_cast<uint8_t>(from.number(1));
    const uint64_t low = channel.min, high = channel.max;
    from.require(low <= high && channel.sum >= low * pixels && channel.sum <= high * pixels &&
                     channel.sum_of_squares >= low * low * pixels &&
                     channel.sum_of_squares <= high * high * pixels,
                 "the sums of an image are impossible");
    // As Cauchy and Schwarz have it, so that deviations are never negative.
    __extension__ using Square = unsigned __int128;
    from.require(Square{channel.sum} * channel.sum <= Square{pixels} * channel.sum_of_squares,
                 "the sums of an image are impossible");
  }
  return facts;
}

}  // namespace

ImageFacts facts_of(const Image& image, const Digest& content) {
  ImageFacts facts{content, image.height, image.width, image.channels, {}};
  const auto channels = static_cast<size_t>(image.channels);
  for (size_t c = 0; c < channels; ++c) {
    ImageFacts::Channel& channel = facts.sums.at(c);
    for (size_t i = c; i < image.pixels.size(); i += channels) {
      const uint8_t value = image.pixels[i];
      channel.sum += value;
      channel.sum_of_squares += uint64_t{value} * value;
      channel.min = std::min(channel.min, value);
      channel.max = std::max(channel.max, value);
    }
  }
  return facts;
}

ImageFacts facts_of_file(std::span<const std::byte> bytes, const std::string& name) {
  const Digest content = digest_of(bytes.data(), bytes.size());
  try {
    return facts_of(decode_image(bytes, name), content);
  } catch (const DataError&) {
    return {.content = content};
  }
}

IndexedImage indexed_image(const Datastore& listing, int64_t index, uint64_t size) {
  IndexedImage image;
  image.name = listing.name(index);
  image.label = static_cast<uint32_t>(listing.label(index));
  image.size = size;
  return image;
}

std::vector<std::byte> write_index(const ImageIndex& index) {
  IndexWriter to(index.labels ? ruled_mark : plain_mark);
  to.text(index.root_name);
  if (index.labels) {
    to.number(static_cast<uint64_t>(*index.labels), 1);
    to.number(static_cast<uint64_t>(index.class_files), 8);
  }
  to.number(index.classes.size(), 8);
  for (const std::string& name : index.classes) to.text(name);
  to.number(index.shards.size(), 8);
  for (const IndexedShard& shard : index.shards) {
    to.text(shard.name);
    to.number(shard.size, 8);
  }
  to.number(index.images.size(), 8);
  for (const IndexedImage& image : index.images) {
    to.text(image.name);
    to.number(image.label, 4);
    to.number(image.size, 8);
    to.number(image.shard, 4);
    to.number(image.offset, 8);
    to.text(image.etag);
    write_facts(to, image.facts);
  }
  return to.finish();
}

ImageIndex read_index(std::span<const std::byte> bytes, const std::string& name) {
  IndexReader from(bytes, name);
  const auto taken = from.take(std::min(bytes.size(), plain_mark.size()));
  const std::string_view mark(reinterpret_cast<const char*>(taken.data()), taken.size());
  if (mark != plain_mark && mark != ruled_mark) {
    throw DataError("[index] " + printable(name) + " is not an index of this version of Lockstep",
                    "write it again with `lockstep upload` or `lockstep shard`");
  }
  from.check_sum();
  ImageIndex index;
  index.root_name = from.text();
  if (mark == ruled_mark) {
    const uint64_t rule = from.number(1);
    from.require(rule < std::size(folder_labels_names), "there is no such rule of labels");
    index.labels = static_cast<FolderLabels>(rule);
    const uint64_t class_files = from.number(8);
    from.require(class_files <= most_bytes, "there are too many files of classes");
    index.class_files = static_cast<int64_t>(class_files);
  }
  for (size_t n = from.count(2); n > 0; --n) index.classes.push_back(from.text());
  from.require(
      std::is_sorted(index.classes.begin(), index.classes.end()) &&
          std::adjacent_find(index.classes.begin(), index.classes.end()) == index.classes.end(),
      "its classes are not in order");
  for (size_t n = from.count(10); n > 0; --n) {
    IndexedShard shard{from.path(), from.number(8)};
    from.require(shard.size <= most_bytes, "a shard is too large");
    from.require(shard.name.find('/') == std::string::npos && shard.name != "..",
                 "a shard lies elsewhere");
    index.shards.push_back(std::move(shard));
  }
  constexpr size_t least = 49;  // of an image
  const size_t images = from.count(least);
  index.images.reserve(images);
  for (size_t i = 0; i < images; ++i) {
    IndexedImage image;
    image.name = from.path();
    image.label = static_cast<uint32_t>(from.number(4));
    image.size = from.number(8);
    image.shard = static_cast<uint32_t>(from.number(4));
    image.offset = from.number(8);
    image.etag = from.text();
    image.facts = read_facts(from);
    from.require(image.label < index.classes.size(), "an image has no class");
    from.require(image.size <= most_bytes && image.offset <= most_bytes, "an image is too large");
    if (index.shards.empty()) {
      from.require(image.shard == 0 && image.offset == 0, "an image lies in no shard");
    } else {
      from.require(image.shard < index.shards.size() &&
                       image.offset + image.size <= index.shards[image.shard].size,
                   "an image lies outside its shard");
    }
    from.require(index.images.empty() || index.images.back().name < image.name,
                 "its images are not in order");
    index.images.push_back(std::move(image));
  }
  from.require(from.left() == 0, "something follows its end");
  return index;
}

}  // namespace lockstep
