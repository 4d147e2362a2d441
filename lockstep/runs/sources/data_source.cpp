#include "lockstep/runs/sources/data_source.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/suggest.h"
#include "lockstep/base/text.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/images/image_listing.h"
#include "lockstep/data/datastores/tables/column_match.h"
#include "lockstep/data/images/image_format.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/storage/object_store.h"
#include "lockstep/storage/s3_files.h"

namespace lockstep {
namespace {

constexpr const char* kinds_of_data_hint =
    "use a folder with one folder of images for each class, or a .csv or .tsv file";

class Relabeled final : public DatastoreWrapper {
 public:
  Relabeled(DatastorePtr store, std::vector<std::string> classes)
      : DatastoreWrapper(std::move(store)), classes_(std::move(classes)) {
    const std::vector<std::string>& own = wrapped().classes();
    const std::vector<int64_t> counts = count_each_label(wrapped());
    for (size_t i = 0; i < own.size(); ++i) {
      const auto at = std::find(classes_.begin(), classes_.end(), own[i]);
      if (at == classes_.end() && counts[i] > 0) {
        throw InvalidArgument(
            "[data] " + describe() + " has the class `" + own[i] + "`, which is not among the " +
                counted(static_cast<int64_t>(classes_.size()), "class", "classes") +
                " of the training",
            suggest(own[i], classes_));
      }
      labels_.push_back(at - classes_.begin());
    }
  }
  Example read(int64_t index) const override {
    Example example = wrapped().read(index);
    if (auto* const label = std::get_if<ClassLabel>(&example.target)) {
      label->index = labels_[static_cast<size_t>(label->index)];
    }
    return example;
  }
  int64_t label(int64_t index) const override {
    return labels_[static_cast<size_t>(wrapped().label(index))];
  }
  const std::vector<std::string>& classes() const override { return classes_; }
  const ImageFacts* facts(int64_t index) const override { return wrapped().facts(index); }
  std::optional<Digest> file_state() const override { return wrapped().file_state(); }

 private:
  std::vector<std::string> classes_;
  std::vector<int64_t> labels_;  // indexed by the store's own label
};

// The same examples with the names of another store.
class Named final : public DatastoreWrapper {
 public:
  Named(DatastorePtr store, DatastorePtr names)
      : DatastoreWrapper(std::move(store)), names_(std::move(names)) {}
  std::string name(int64_t index) const override { return names_->name(index); }
  std::optional<Digest> file_state() const override { return wrapped().file_state(); }

 private:
  DatastorePtr names_;
};

// Single images, and the images of folders, objects or archives, without labels.
class Files : public Datastore {
 public:
  explicit Files(const Decoding& decoding) : decoding_(decoding) {}

  void add(const std::string& path) {
    entries_.push_back({nullptr, 0});
    paths_.push_back(path);
  }
  void add(const std::string& path, const DatastorePtr& images) {
    folders_.push_back(images);
    for (int64_t i = 0; i < images->size(); ++i) {
      entries_.push_back({images, i});
      paths_.push_back(join_path(path, images->name(i)));
    }
  }
  int64_t size() const override { return static_cast<int64_t>(paths_.size()); }
  Example read(int64_t index) const override {
    const auto& [images, there] = entry(index);
    if (images) {
      Example example = images->read(there);
      example.target = ClassLabel{0};
      return example;
    }
    const std::vector<std::byte> bytes = storage::files_of(path(index)).read(path(index));
    DecodedFile decoded = decode_file(bytes, path(index), digest_of(bytes.data(), bytes.size()),
                                      decoding_, index, oriented_);
    return one_input(std::move(decoded.image), ClassLabel{0}, decoded.content);
  }
  int64_t label(int64_t index) const override {
    path(index);
    return 0;
  }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string name(int64_t index) const override { return path(index); }
  std::string describe() const override { return counted(std::ssize(paths_), "file"); }
  std::vector<std::string> notices() const override {
    std::vector<std::string> all = notices_of(folders_);
    if (std::string text = oriented_.notice(*this); !text.empty()) all.push_back(std::move(text));
    return all;
  }
  void expect(const std::vector<int64_t>& indices) const override {
    std::map<DatastorePtr, std::vector<int64_t>> wanted;
    for (const int64_t index : indices) {
      const auto& [images, there] = entry(index);
      if (images) wanted[images].push_back(there);
    }
    for (const auto& [images, there] : wanted) images->expect(there);
  }
  Digest content_digest(int64_t index) const override {
    const auto& [images, there] = entry(index);
    if (images) return images->content_digest(there);
    const std::vector<std::byte> bytes = storage::files_of(path(index)).read(path(index));
    const Digest digest = digest_of(bytes.data(), bytes.size());
    return decoded_digest(digest, bytes, decoding_);
  }

 private:
  const Decoding decoding_;
  const std::string& path(int64_t index) const {
    if (index < 0 || index >= size()) {
      throw InvalidArgument("[datastore] no observation with index " + std::to_string(index) +
                            " among " + std::to_string(size()));
    }
    return paths_[static_cast<size_t>(index)];
  }
  const std::pair<DatastorePtr, int64_t>& entry(int64_t index) const {
    path(index);
    return entries_[static_cast<size_t>(index)];
  }
  std::vector<std::pair<DatastorePtr, int64_t>> entries_;  // null: a file of its own
  std::vector<DatastorePtr> folders_;
  mutable OrientedImages oriented_;  // of files of their own
  std::vector<std::string> paths_;
  std::vector<std::string> classes_{""};
};

// Throws for names that are not folders: unknown builtin names, and URLs except s3://.
void check_name(const std::string& name) {
  if (name == builtin_digits_name) return;
  if (name.starts_with("builtin:")) {
    throw InvalidArgument("[data] unknown built-in images `" + name + "`",
                          suggest(name, {builtin_digits_name}));
  }
  if (storage::is_address(name)) {
    storage::parsed_address(name);
  } else if (name.find("://") != std::string::npos) {
    throw Unsupported("[data] URLs such as " + name + " cannot be read",
                      "copy the images into a folder of this machine or into an S3 store first");
  }
}

DatastorePtr open_table(const std::string& name, const TableOptions& tables, size_t input) {
  const auto& inputs = tables.columns.inputs;
  DatastorePtr rows =
      csv_datastore(storage::files_of(name), name, csv_options(tables, input, input == 0));
  return input < inputs.size() ? with_columns(std::move(rows), 0, inputs[input]) : rows;
}

// A folder with a table for each sequence.
DatastorePtr open_sequences(const std::string& name, const ImageFolderOptions& options,
                            const TableOptions& tables, size_t input) {
  check_name(name);
  if (storage::is_address(name) || name == builtin_digits_name || is_table_file(name)) {
    throw InvalidArgument("[data] the network's input is a sequence, but " + name +
                              " is not a folder of this machine",
                          "use a folder with one .csv, .tsv, .npy or .npz file for each sequence, "
                          "in folders with the names of their classes");
  }
  if (options.labels != FolderLabels::first) {
    throw InvalidArgument(
        "[data] labels by other folders than the first are for folders of images, but " + name +
        " has sequences");
  }
  return sequence_folder(name, sequence_options(tables, input, options.labeled));
}

}  // namespace

bool is_table_file(const std::string& name) {
  if (!is_table_name(name)) return false;
  FileSystem& files = storage::files_of(name);
  return files.exists(name) && !files.is_folder(name);
}

void require_existing(const std::string& name) {
  if (name.empty() || name == builtin_digits_name) return;
  FileSystem& files = storage::files_of(name);
  if (files.exists(name) || files.is_folder(name)) return;
  const char* data = std::getenv("LOCKSTEP_DATA");
  throw DataError("[data] " + name + " does not exist",
                  data != nullptr && *data != '\0'
                      ? kinds_of_data_hint
                      : "LOCKSTEP_DATA can name another folder that is searched for data");
}

MissingValues missing_values(const std::string& name) {
  for (size_t i = 0; i < std::size(missing_values_names); ++i) {
    if (name == missing_values_names[i]) return static_cast<MissingValues>(i);
  }
  throw InvalidArgument("[data] missing cannot be `" + name + "`", "refuse, mean or flag");
}

std::vector<bool> sequence_inputs(const Network& network) {
  std::vector<bool> sequences;
  for (const NetworkValue& input : network.inputs()) sequences.push_back(input.sequence);
  return sequences;
}

TableColumns table_columns_of(const Datastore& training) {
  const ExampleSpec spec = training.spec();
  TableColumns columns;
  for (const ValueSpec& input : spec.inputs) columns.inputs.push_back(input.columns);
  columns.label = spec.label_column;
  if (spec.target) columns.target = spec.target->columns;
  columns.means = spec.means;
  return columns.empty() ? TableColumns() : columns;
}

SequenceFolderOptions sequence_options(const TableOptions& tables, size_t input, bool labeled) {
  SequenceFolderOptions options{.labeled = labeled, .header = tables.header};
  if (input > 0) return options;
  options.targets = tables.targets;
  options.known_label = tables.columns.label;
  options.known_targets = tables.columns.target;
  options.categories = tables.categories;
  return options;
}

CsvOptions csv_options(const TableOptions& tables, size_t input, bool labeled) {
  CsvOptions options{
      .labeled = labeled, .header = tables.header, .find_header = tables.find_header};
  if (labeled) options.label_column = tables.label_column;
  if (input == 0) options.known_label = tables.columns.label;
  if (input < tables.columns.inputs.size()) options.known_columns = tables.columns.inputs[input];
  options.known_means = tables.columns.means;
  options.missing = tables.missing;
  if (input > 0) return options;
  options.known_targets = tables.columns.target;
  options.categories = tables.categories;
  options.ignored_columns = tables.ignored_columns;
  if (!tables.target_columns.empty()) {
    options.labeled = false;
    options.target_columns = tables.target_columns;
  }
  return options;
}

std::string resolve_data_path(const std::string& name, const std::string& folder) {
  check_name(name);
  if (name.empty() || name == builtin_digits_name) return name;
  if (storage::is_address(name)) return name.substr(0, name.find_last_not_of('/') + 1);
  const auto text = [](std::string path) {
    if (is_utf8(path)) return path;
    throw InvalidArgument("[data] " + path + " is not UTF-8, so a job cannot contain it",
                          "rename the folder or file, or make a link to it");
  };
  const auto absolute = [](const std::string& path) {
    std::error_code error;
    const std::filesystem::path whole = std::filesystem::absolute(path, error);
    if (error) {
      throw FileError("[data] " + path + " cannot be found from here: " + error.message());
    }
    std::string full = whole.lexically_normal().string();
    while (full.size() > 1 && full.back() == '/') full.pop_back();
    return full;
  };
  const std::string here = absolute(join_path(folder, name));
  const char* data = std::getenv("LOCKSTEP_DATA");
  if (local_files().exists(here) || data == nullptr || *data == '\0') return text(here);
  const std::string there = absolute(join_path(data, name));
  return text(local_files().exists(there) ? there : here);
}

DatastorePtr open_data(const std::string& name, ImageFolderOptions options,
                       const TableOptions& tables) {
  check_name(name);
  if (options.labels != FolderLabels::first &&
      (is_table_file(name) || name == builtin_digits_name)) {
    throw InvalidArgument(
        "[data] labels by other folders than the first are for folders of images, but " + name +
        " has no folders");
  }
  if (is_table_file(name)) return open_table(name, tables, 0);
  const bool builtin = name == builtin_digits_name;
  if (!builtin && !storage::files_of(name).is_folder(name)) {
    require_existing(name);
    throw DataError("[data] " + name + " is not a folder", kinds_of_data_hint);
  }
  if (!tables.label_column.empty()) {
    throw InvalidArgument("[data] the label column `" + tables.label_column +
                          "` is for .csv files, but " + name + " contains images");
  }
  return builtin ? builtin_digits() : image_folder(name, options);
}

std::vector<DatastorePtr> open_inputs(const std::vector<std::string>& names,
                                      ImageFolderOptions options, const TableOptions& tables) {
  if (names.empty()) throw InvalidArgument("[data] no folders or files given");
  const auto is_sequence = [&](size_t i) {
    return i < tables.sequences.size() && tables.sequences[i];
  };
  std::vector<DatastorePtr> stores{is_sequence(0) ? open_sequences(names[0], options, tables, 0)
                                                  : open_data(names[0], options, tables)};
  options.labeled = false;  // the first has the labels
  for (size_t i = 1; i < names.size(); ++i) {
    if (is_sequence(i)) {
      stores.push_back(match_by_name(*stores[0], open_sequences(names[i], options, tables, i)));
      continue;
    }
    const bool rows = is_table_file(names[i]);
    DatastorePtr more = rows ? open_table(names[i], tables, i) : open_data(names[i], options);
    if (!rows && !is_table_file(names[0])) more = match_by_name(*stores[0], std::move(more));
    if (more->size() != stores[0]->size()) {
      throw InvalidArgument("[data] " + names[i] + " has " + counted(more->size(), "observation") +
                                ", but " + names[0] + " has " + std::to_string(stores[0]->size()),
                            "each input needs one for every observation, in the same order");
    }
    stores.push_back(std::move(more));
  }
  return stores;
}

DatastorePtr open_target_images(const Datastore& inputs, const std::string& name,
                                ImageFolderOptions options) {
  return match_by_name(inputs, open_data(name, options));
}

DatastorePtr open_with_label_images(DatastorePtr images, const std::string& name,
                                    ImageFolderOptions options) {
  options.labeled = false;
  options.labels = FolderLabels::first;
  options.least = {};
  DatastorePtr labels = match_by_stem(*images, open_data(name, options));
  return std::make_shared<Named>(with_targets(images, std::move(labels)), images);
}

DatastorePtr join_inputs(std::vector<DatastorePtr> stores) {
  const DatastorePtr first = stores.at(0);
  if (stores.size() == 1) return first;
  return std::make_shared<Named>(combine(std::move(stores)), first);
}

std::vector<DatastorePtr> resized_inputs(std::vector<DatastorePtr> stores, const Network& network) {
  const std::vector<Shape> shapes = network.input_shapes();
  for (size_t i = 0; i < stores.size() && i < shapes.size(); ++i) {
    const bool image = stores[i]->spec().inputs[0].kind == ValueKind::image;
    if (image && shapes[i].rank() == 3) {
      stores[i] = resized(std::move(stores[i]), shapes[i][1], shapes[i][2]);
    }
  }
  return stores;
}

DatastorePtr with_classes(DatastorePtr store, const std::vector<std::string>& classes) {
  if (store->classes() == classes) return store;
  return std::make_shared<Relabeled>(std::move(store), classes);
}

DatastorePtr image_files(const std::vector<std::string>& paths, bool list_unreadable, bool upright,
                         const LeastSize& least) {
  auto files = std::make_shared<Files>(Decoding{.upright = upright, .least = least});
  for (const std::string& path : paths) {
    if (storage::files_of(path).is_folder(path)) {
      files->add(path, image_folder(path, {.labeled = false,
                                           .allow_empty_folders = true,
                                           .list_unreadable = list_unreadable,
                                           .upright = upright,
                                           .least = least}));
    } else {
      files->add(path);
    }
  }
  if (files->size() == 0) throw InvalidArgument("[data] no files given");
  return files;
}

}  // namespace lockstep
