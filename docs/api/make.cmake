# Makes the API reference: cmake -DSOURCE=... -DFOLDER=... -DVERSION=... -P make.cmake
#
# SOURCE: the folder of the sources; FOLDER: gets the pages, as html/; VERSION: of the project.
cmake_minimum_required(VERSION 3.25)

foreach(program IN ITEMS doxygen python3)
  find_program(${program} ${program})
  if(NOT ${program})
    message(FATAL_ERROR "${program} is missing: scripts/install-dependencies test installs it")
  endif()
endforeach()

include("${SOURCE}/cmake/PublicHeaders.cmake")
lockstep_public_headers("${SOURCE}" headers)
list(TRANSFORM headers PREPEND "${SOURCE}/")
list(TRANSFORM headers REPLACE "(.+)" "\"\\1\"" OUTPUT_VARIABLE inputs)
list(JOIN inputs " \\\n  " INPUTS)

file(REMOVE_RECURSE "${FOLDER}/html")
file(MAKE_DIRECTORY "${FOLDER}")
configure_file("${SOURCE}/docs/api/Doxyfile.in" "${FOLDER}/Doxyfile" @ONLY)
execute_process(COMMAND "${doxygen}" "${FOLDER}/Doxyfile" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
list(LENGTH headers count)
message(STATUS "${count} headers: ${FOLDER}/html/index.html")
