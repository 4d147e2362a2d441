#include <fmt/format.h>

#include <memory>

#include "apps/lockstep/command.h"
#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/report/progress.h"

namespace lockstep::command {
namespace {

struct ExportArguments {
  std::string folder;
  int64_t per_class = 0;
};

int export_command(const ExportArguments& a) {
  FileSystem& files = local_files();
  const bool fresh =
      !files.exists(a.folder) || (files.is_folder(a.folder) && files.list(a.folder).empty());
  if (!fresh) {
    throw InvalidArgument("[export-digits] " + a.folder + " exists and is not an empty folder",
                          "choose another folder");
  }
  DatastorePtr digits = builtin_digits();
  if (a.per_class > 0) {
    std::vector<int64_t> taken, count(digits->classes().size(), 0);
    for (int64_t i = 0; i < digits->size(); ++i) {
      if (count[static_cast<size_t>(digits->label(i))]++ < a.per_class) taken.push_back(i);
    }
    digits = subset(digits, std::move(taken));
  }
  export_as_folder(*digits, a.folder);
  print(fmt::format("{} images in {}\n", format_count(digits->size()), a.folder));
  return 0;
}

}  // namespace

void add_export_digits(Commands& commands) {
  auto a = std::make_shared<ExportArguments>();
  Subcommand sub = commands.add(
      "export-digits", "Write the built-in digits as a folder of PNG files",
      "10,000 images of 28 x 28 pixels in one folder for each digit, for `train` and `evaluate`.",
      {{"lockstep export-digits digits --per-class 20", "20 of each digit"}},
      [a] { return export_command(*a); });
  sub.add_option("folder", a->folder, "New folder").required().type_name("DIR");
  sub.add_option("--per-class", a->per_class, "Only the first N of each digit (default: all)")
      .type_name("N")
      .range(1, 1000);
}

}  // namespace lockstep::command
