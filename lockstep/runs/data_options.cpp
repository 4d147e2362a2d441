#include "lockstep/runs/data_options.h"

#include <algorithm>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/sources/data_source.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse_option(const char* field, const char* what) {
  throw InvalidArgument("[data] " + std::string(field) + " is not for " + what);
}

void refuse_options_of_tables(const JobData& data, const char* what) {
  if (!data.categories.empty()) refuse_option("categories", what);
  if (data.category_encoding != JobData().category_encoding) {
    refuse_option("category_encoding", what);
  }
  if (data.embedding_size != JobData().embedding_size) refuse_option("embedding_size", what);
  if (!data.ignored_columns.empty()) refuse_option("ignored_columns", what);
  if (data.missing != JobData().missing) refuse_option("missing", what);
}

void refuse_split_columns(const JobData& data, const char* what) {
  if (!data.group_column.empty()) refuse_option("group_column", what);
  if (!data.time_column.empty()) refuse_option("time_column", what);
}

void check_split_columns(const JobData& data) {
  for (const std::string& name : {data.group_column, data.time_column}) {
    const auto& targets = data.target_columns;
    if (name.empty() || std::ranges::find(targets, name) == targets.end()) continue;
    throw InvalidArgument("[data] the column `" + name +
                          "` has another use already: it is one of target_columns");
  }
  if (!data.header && !(data.group_column.empty() && data.time_column.empty())) {
    throw InvalidArgument(
        "[data] group_column and time_column are names of columns, but header is "
        "false, so columns have no names",
        "write the names into the first line of the file");
  }
  if (data.time_column.empty()) return;
  if (!data.group_column.empty()) {
    throw InvalidArgument("[data] group_column and time_column cannot both be given",
                          "rows are held out by groups or by time");
  }
  if (data.folds > 0) {
    throw InvalidArgument(
        "[data] folds are drawn at random, but time_column holds out the last rows",
        "give validation_fraction and test_fraction");
  }
}

void require_table(const std::string& name) {
  if (is_table_name(name)) require_existing(name);
}

}  // namespace

std::string split_table(const JobData& data) {
  return is_table_file(data.train[0]) ? data.train[0] : data.targets;
}

void refuse_options_of_texts(const JobData& data, const char* what) {
  const JobData plain;
  if (data.tokens != plain.tokens) refuse_option("tokens", what);
  if (data.max_tokens != plain.max_tokens) refuse_option("max_tokens", what);
  if (data.window_length != plain.window_length) refuse_option("window_length", what);
  if (data.window_stride != plain.window_stride) refuse_option("window_stride", what);
  if (!data.text_column.empty()) refuse_option("text_column", what);
}

void refuse_options_of_images(const JobData& data, const char* what) {
  const auto refuse = [&](const char* field) { refuse_option(field, what); };
  if (!data.pixel_classes.names.empty()) refuse("pixel_classes");
  if (data.resize) refuse("resize");
  if (data.resize_shorter > 0) refuse("resize_shorter");
  if (data.crop != "none") refuse("crop");
  if (data.scaled_decoding) refuse("scaled_decoding");
  if (data.labels != JobData().labels) refuse("labels");
  if (data.orientation != JobData().orientation) refuse("orientation");
  if (data.bad_images != JobData().bad_images) refuse("bad_images");
  refuse_options_of_tables(data, what);
  refuse_split_columns(data, what);
}

void refuse_columns(const JobData& data, const char* what) {
  if (!data.label_column.empty()) refuse_option("label_column", what);
  if (!data.text_column.empty()) refuse_option("text_column", what);
}

void check_options_of_tables(const JobData& data) {
  // A mistyped table would be refused as if it were images.
  for (const std::string& name : data.train) require_table(name);
  require_table(data.targets);
  const bool inputs = std::ranges::any_of(data.train, is_table_file);
  if (!inputs && !data.header && is_table_file(data.targets)) {
    throw InvalidArgument(
        "[data] header = false is not for a table of targets, but the targets of the images are " +
            data.targets,
        "write the names of its columns into its first line, and leave header out");
  }
  if (!inputs) {
    JobData others = data;
    // Texts as targets.
    if (is_table_file(data.targets)) others.categories.clear();
    refuse_options_of_tables(others, "images");
  }
  if (!is_table_file(split_table(data))) {
    refuse_split_columns(data, "images without a table of targets");
  }
  check_split_columns(data);
  const bool embeds = data.category_encoding == "embedding";
  if (embeds && data.categories.empty()) {
    throw InvalidArgument("[data] category_encoding = \"embedding\", but no column is a category",
                          "name the columns of texts: categories");
  }
  if (!embeds && data.embedding_size > 0) {
    throw InvalidArgument("[data] embedding_size is given, but category_encoding is \"one-hot\"",
                          "set category_encoding = \"embedding\"");
  }
  const bool to_images = !data.targets.empty() && !is_table_file(data.targets);
  if (data.scaled_decoding && to_images && data.pixel_classes.names.empty()) {
    refuse_option("scaled_decoding", "images with images as targets");
  }
  if (is_table_file(data.train[0]) && is_table_file(data.targets)) {
    throw InvalidArgument(
        "[data] targets is for images and sequences, but " + data.train[0] + " is a table",
        "name its columns with the numbers: target_columns");
  }
  if (!data.target_columns.empty() && !is_table_file(data.train[0]) &&
      !is_table_file(data.targets)) {
    throw InvalidArgument("[data] target_columns needs a table",
                          "set targets to a .csv file whose first column has the images' names");
  }
}

void check_options_of_sequences(const JobData& data) {
  JobData others = data;
  // Texts as targets by step.
  if (!data.target_columns.empty()) others.categories.clear();
  refuse_options_of_images(others, "sequences");
}

void check_options_of_texts(const JobData& data) {
  refuse_options_of_images(data, "texts");
  if (!data.targets.empty()) refuse_option("targets", "texts");
  if (!data.target_columns.empty()) refuse_option("target_columns", "texts");
  if (data.header != JobData().header) refuse_option("header", "texts");
}

void check_folds(const JobData& data) {
  if (data.folds > 0 || data.fold == JobData().fold) return;
  throw InvalidArgument("[data] fold = " + std::to_string(data.fold) + " needs folds",
                        "folds is the number of parts, of which part number fold is validated");
}

}  // namespace lockstep
