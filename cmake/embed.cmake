# Writes OUTPUT, a source with the contents of FILES; see PageFiles.cmake.
set(texts "")
set(entries "")
set(number 0)
foreach(file IN LISTS FILES)
  file(READ "${file}" content)
  cmake_path(GET file FILENAME name)
  string(FIND "${content}" ")lockstep\"" ends_early)
  string(FIND "${content}" "</script" ends_script)
  if(NOT ends_early EQUAL -1 OR NOT ends_script EQUAL -1)
    message(FATAL_ERROR "${file} holds the end of a text")
  endif()
  string(APPEND texts "constexpr char file_${number}[] = R\"lockstep(${content})lockstep\";\n")
  string(APPEND entries "    {\"${name}\", {file_${number}, sizeof file_${number} - 1}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUTPUT}" "#include \"lockstep/report/pages/page_files.h\"

#include <string>
#include <utility>

#include \"lockstep/base/error.h\"

namespace lockstep {
namespace {
${texts}
constexpr std::pair<std::string_view, std::string_view> page_file_list[] = {
${entries}};
}  // namespace

std::string_view page_file(std::string_view name) {
  for (const auto& [known, content] : page_file_list) {
    if (known == name) return content;
  }
  throw InvalidArgument(\"[pages] there is no file \" + std::string(name));
}

}  // namespace lockstep
")
