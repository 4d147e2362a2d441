// The reference of job files, as Markdown.
#pragma once

#include <string>
#include <vector>

namespace lockstep::command {

// The whole page, docs/job-file.md. Generated from the field descriptions that read job files.
std::string reference_page();
// The section about one table ("training") or one layer ("relu"). Throws InvalidArgument for other
// names.
std::string reference_of(const std::string& topic);
// The names that reference_of() accepts.
std::vector<std::string> reference_topics();

}  // namespace lockstep::command
