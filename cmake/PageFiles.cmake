# The scripts and styles of reports and of the dashboard as a source with one text for each file, so
# that the command needs no files beside it. dygraphs, which draws curves, comes from Debian.

find_file(LOCKSTEP_DYGRAPHS dygraph.min.js PATHS /usr/share/javascript/dygraphs NO_CACHE REQUIRED
          NO_DEFAULT_PATH)
find_file(LOCKSTEP_DYGRAPHS_STYLE dygraph.min.css PATHS /usr/share/javascript/dygraphs NO_CACHE REQUIRED
          NO_DEFAULT_PATH)
file(GLOB page_files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/lockstep/report/web/*.js"
     "${PROJECT_SOURCE_DIR}/lockstep/report/web/*.css")
list(APPEND page_files "${LOCKSTEP_DYGRAPHS}" "${LOCKSTEP_DYGRAPHS_STYLE}")
set(page_files_source "${PROJECT_BINARY_DIR}/generated/page_files.cpp")
add_custom_command(
  OUTPUT "${page_files_source}"
  COMMAND "${CMAKE_COMMAND}" "-DFILES=${page_files}" "-DOUTPUT=${page_files_source}" -P
          "${CMAKE_CURRENT_LIST_DIR}/embed.cmake"
  DEPENDS ${page_files} "${CMAKE_CURRENT_LIST_DIR}/embed.cmake"
  COMMENT "Embedding the files of pages"
  VERBATIM)
