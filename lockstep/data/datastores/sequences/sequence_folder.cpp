#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/suggest.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/described.h"
#include "lockstep/data/datastores/images/image_listing.h"
#include "lockstep/data/datastores/other_files.h"
#include "lockstep/data/datastores/sequences/numpy_file.h"
#include "lockstep/data/datastores/sequences/sequence_table.h"
#include "lockstep/data/datastores/tables/category_names.h"

namespace lockstep {
namespace {

// A file below the folder, and its class.
struct SequenceFile {
  std::string name;  // relative
  std::string label;
};

struct FoundFiles {
  std::vector<SequenceFile> files;
  OtherFiles others;
  std::vector<std::string> empty;  // class folders without files
};

constexpr const char* kSequence =
    "a sequence is a .csv or .tsv file with a line for each step, or a .npy or .npz file";

// Folders in folders of classes. More are a link to a folder that contains it.
constexpr int kMostDepth = 32;

// Takes the tables and arrays of one folder, and of those below if it has a class; hidden ones are
// left out.
void take_files(const std::string& root, const std::string& folder, const std::string& label,
                FoundFiles& found, int depth = 0) {
  const std::string path = folder.empty() ? root : join_path(root, folder);
  if (depth > kMostDepth) {
    refuse_sequences(path + " lies in more than " + std::to_string(kMostDepth) + " folders",
                     "a link to a folder that contains it has no end");
  }
  for (const std::string& file : local_files().list(path)) {
    if (file.starts_with('.')) continue;
    const std::string name = folder.empty() ? file : folder + '/' + file;
    if (local_files().is_folder(join_path(path, file))) {
      if (!folder.empty()) take_files(root, name, label, found, depth + 1);
    } else if (is_table_name(file) || is_numpy_name(file)) {
      found.files.push_back({name, label});
    } else {
      found.others.add(file);
    }
  }
}

FoundFiles files_of_folder(const std::string& root, bool labeled) {
  if (!local_files().is_folder(root)) {
    throw FileError("[sequence_folder] there is no folder " + root,
                    "a relative path starts in the working folder");
  }
  FoundFiles found;
  std::vector<std::string> folders;
  for (const std::string& name : local_files().list(root)) {
    if (!name.starts_with('.') && local_files().is_folder(join_path(root, name))) {
      folders.push_back(name);
    }
  }
  std::sort(folders.begin(), folders.end());
  take_files(root, "", "", found);
  if (labeled && !found.files.empty()) {
    refuse_sequences(
        root + " has sequences outside the folders of classes, such as " + found.files.front().name,
        "put each file into a folder with the name of its class");
  }
  if (labeled && !folders.empty() && are_parts_of_data(folders)) {
    refuse_sequences(root + " holds " + enumerated(folders) + ": parts of a data set, not classes",
                     "name one of them, such as " + join_path(root, folders[0]));
  }
  for (const std::string& folder : folders) {
    const size_t before = found.files.size();
    take_files(root, folder, folder, found);
    if (found.files.size() == before) found.empty.push_back(folder);
  }
  std::sort(found.files.begin(), found.files.end(),
            [](const SequenceFile& a, const SequenceFile& b) { return a.name < b.name; });
  return found;
}

std::string text_of(const std::vector<std::string>& columns) {
  std::string text;
  for (const std::string& column : columns) text += (text.empty() ? "" : ", ") + column;
  return text.empty() ? "none" : text;
}

// What the files of a folder have, in their order.
class Reading {
 public:
  // The names of the files are relative to `root`.
  Reading(std::string root, const SequenceFolderOptions& options)
      : root_(std::move(root)), options_(options) {}

  void read(const SequenceFile& file) {
    const std::string whole = root_.empty() ? file.name : join_path(root_, file.name);
    SequenceTable table = read_sequence_table(whole, options_, of_tables_);
    check(whole, table);
    first_ = first_.empty() ? file.name : first_;
    names_.push_back(file.name);
    folders_.push_back(file.label);
    sequences_.push_back(std::move(table.steps));
    if (options_.targets.numbers()) targets_.push_back(std::move(table.targets));
    target_columns_.push_back(std::move(table.target_columns));
    labels_.push_back(std::move(table.labels));
  }

  DatastorePtr finish(std::vector<std::string> notices) {
    for (const auto& [note, count] : of_tables_) {
      notices.push_back("in " + counted(count, "file") + ": " + note);
    }
    const std::string source =
        root_.empty() ? counted(std::ssize(names_), "file") : "folder " + root_;
    DatastorePtr inputs = std::make_shared<Described>(
        sequence_datastore(std::move(sequences_), labels_of_folders()),
        Described::Description{.source = source,
                               .names = names_,
                               .columns = columns_,
                               .label_column = options_.targets.label_column,
                               .notices = std::move(notices)});
    if (!options_.targets.any()) return inputs;
    const bool labels = !options_.targets.label_column.empty();
    std::vector<std::string> columns =
        options_.targets.next_step ? columns_ : options_.targets.columns;
    if (!options_.categories.empty() && !options_.targets.columns.empty()) {
      columns = targets_with_texts();
      for (size_t i = 0; i < targets_.size(); ++i) give_columns(i, columns);
    }
    DatastorePtr targets =
        labels ? step_labels(classes_of_steps()) : sequence_datastore(std::move(targets_));
    return with_targets(
        std::move(inputs),
        std::make_shared<Described>(std::move(targets),
                                    Described::Description{.source = options_.targets.describe(),
                                                           .names = names_,
                                                           .columns = std::move(columns)}));
  }

 private:
  // All files have the same columns.
  void check(const std::string& whole, const SequenceTable& table) {
    const bool array = is_numpy_name(whole);
    if (columns_.empty() && !named_) columns_ = table.columns;
    named_ |= !array;  // a table has names, or says that there are none
    if (sequences_.empty()) return;
    const Shape step = table.steps.shape.without_batch();
    const Shape first = sequences_.front().shape.without_batch();
    if (step != first) {
      refuse_sequences(whole + " has steps of " + step.to_string() + ", but those of " + first_ +
                       " are of " + first.to_string());
    }
    if (table.columns != columns_ && !array) {
      refuse_sequences(whole + " has the columns " + text_of(table.columns) + ", but " + first_ +
                       " has " + text_of(columns_));
    }
  }

  ImageLabels labels_of_folders() const {
    const std::set<std::string> classes(folders_.begin(), folders_.end());
    ImageLabels labels{.classes = {classes.begin(), classes.end()}};
    for (const std::string& folder : folders_) {
      labels.labels.push_back(std::distance(classes.begin(), classes.find(folder)));
    }
    return labels;
  }

  // The columns of the targets, with the texts of all files, or of the training.
  std::vector<std::string> targets_with_texts() const {
    std::set<std::string> all(options_.known_targets.begin(), options_.known_targets.end());
    if (all.empty()) {
      for (const auto& names : target_columns_) all.insert(names.begin(), names.end());
    }
    for (const std::string& column : options_.categories) {
      const auto count = std::ranges::count_if(
          all, [&](const std::string& name) { return is_category_of(name, column); });
      if (static_cast<size_t>(count) <= kMostCategories) continue;
      refuse_sequences("the column `" + column + "` has more than " +
                       std::to_string(kMostCategories) + " different texts");
    }
    return with_categories(options_.targets.columns, options_.categories, {all.begin(), all.end()});
  }

  // Sequence i has 0 in the texts that its file lacks.
  void give_columns(size_t i, const std::vector<std::string>& columns) {
    std::vector<size_t> indices;
    for (const std::string& name : target_columns_[i]) {
      const auto found = std::ranges::find(columns, name);
      if (found == columns.end()) {
        refuse_sequences(names_[i] + " has `" + name + "`, which the training did not have",
                         suggest(name, columns));
      }
      indices.push_back(static_cast<size_t>(found - columns.begin()));
    }
    Array& target = targets_[i];
    const int64_t steps = target.shape[0];
    Array wide{{steps, std::ssize(columns)}, {}};
    wide.values.resize(static_cast<size_t>(wide.shape.elements()), 0);
    for (size_t t = 0; t < static_cast<size_t>(steps); ++t) {
      for (size_t k = 0; k < indices.size(); ++k) {
        wide.values[t * columns.size() + indices[k]] = target.values[t * indices.size() + k];
      }
    }
    target = std::move(wide);
  }

  StepLabels classes_of_steps() const {
    StepLabels labels{.classes = options_.targets.classes};
    if (labels.classes.empty()) {
      std::set<std::string> all;
      for (const auto& steps : labels_) all.insert(steps.begin(), steps.end());
      labels.classes.assign(all.begin(), all.end());
    }
    std::map<std::string, int32_t> indices;
    for (const std::string& name : labels.classes) {
      indices.emplace(name, static_cast<int32_t>(indices.size()));
    }
    for (size_t i = 0; i < labels_.size(); ++i) {
      std::vector<int32_t>& steps = labels.labels.emplace_back();
      for (const std::string& name : labels_[i]) {
        const auto found = indices.find(name);
        if (found == indices.end()) {
          refuse_sequences(names_[i] + ", step " + std::to_string(steps.size() + 1) +
                               ": the class `" + name + "` is not among the " +
                               counted(std::ssize(labels.classes), "class", "classes") +
                               " of the training",
                           suggest(name, labels.classes));
        }
        steps.push_back(found->second);
      }
    }
    return labels;
  }

  const std::string root_;
  const SequenceFolderOptions& options_;
  TableNotes of_tables_;
  std::string first_;  // the first file
  std::vector<std::string> names_, folders_;
  std::vector<Array> sequences_, targets_;
  std::vector<std::vector<std::string>> target_columns_;  // of each file
  std::vector<std::vector<std::string>> labels_;          // of each step
  std::vector<std::string> columns_;
  bool named_ = false;  // whether `columns_` are those of a table
};

DatastorePtr read_sequences(const std::string& root, const std::vector<SequenceFile>& files,
                            const SequenceFolderOptions& options,
                            std::vector<std::string> notices) {
  const StepTargets& targets = options.targets;
  if (!targets.label_column.empty() + !targets.columns.empty() + targets.next_step > 1) {
    throw InvalidArgument("[sequence_folder] targets by step are given in two ways",
                          "a column of classes, columns of numbers, or the next step");
  }
  for (const std::string& column : options.categories) {
    const auto& known = options.known_targets;
    const bool learned =
        targets.columns.empty()
            ? std::ranges::any_of(known,
                                  [&](const auto& name) { return is_category_of(name, column); })
            : std::ranges::find(targets.columns, column) != targets.columns.end();
    if (learned) continue;
    throw InvalidArgument(
        "[sequence_folder] the column of texts `" + column + "` is not one of the targets by step",
        "texts of sequences can be targets: target_columns");
  }
  Reading reading(root, options);
  for (const SequenceFile& file : files) reading.read(file);
  return reading.finish(std::move(notices));
}

// What was left out of a folder.
void add_notices(const FoundFiles& found, const std::string& path,
                 std::vector<std::string>& notices) {
  for (std::string& notice : found.others.notices(path)) notices.push_back(std::move(notice));
  for (const std::string& folder : found.empty) {
    notices.push_back("the folder " + folder + " of " + path + " has no sequences");
  }
}

}  // namespace

std::string StepTargets::describe() const {
  if (!label_column.empty()) return "column `" + label_column + "`";
  if (next_step) return "next step";
  return (columns.size() == 1 ? "column " : "columns ") + enumerated(columns);
}

DatastorePtr sequence_folder(const std::string& path, const SequenceFolderOptions& options) {
  const bool labeled = options.labeled && !options.targets.any();
  FoundFiles found = files_of_folder(path, labeled);
  if (found.files.empty()) {
    refuse_sequences(
        path + " has no sequences" + found.others.counts(),
        std::string(kSequence) + (labeled ? ", in a folder with the name of its class" : ""));
  }
  if (!labeled) {
    for (SequenceFile& file : found.files) file.label.clear();
  }
  std::vector<std::string> notices;
  add_notices(found, path, notices);
  return read_sequences(path, found.files, options, std::move(notices));
}

DatastorePtr sequence_files(const std::vector<std::string>& paths,
                            const SequenceFolderOptions& options) {
  std::vector<SequenceFile> files;
  std::vector<std::string> notices;
  for (const std::string& path : paths) {
    if (!local_files().is_folder(path)) {
      if (!is_table_name(path) && !is_numpy_name(path) && local_files().exists(path)) {
        refuse_sequences(path + " is not a sequence",
                         std::string(kSequence) + ", or a folder of these");
      }
      files.push_back({path, ""});
      continue;
    }
    const FoundFiles found = files_of_folder(path, false);
    add_notices(found, path, notices);
    for (const SequenceFile& file : found.files) {
      files.push_back({join_path(path, file.name), ""});
    }
  }
  if (files.empty()) refuse_sequences("there are no sequences among the files");
  return read_sequences("", files, options, std::move(notices));
}

}  // namespace lockstep
