# Runs COMMAND with ARGUMENTS, and succeeds when it ends with 1 and says each of the SAID. Both are
# separated by bars.
string(REPLACE "|" ";" arguments "${ARGUMENTS}")
string(REPLACE "|" ";" wanted "${SAID}")
execute_process(
  COMMAND "${COMMAND}" ${arguments}
  OUTPUT_VARIABLE output
  ERROR_VARIABLE output
  RESULT_VARIABLE result)
message(STATUS "${output}")
if(NOT result STREQUAL "1")
  message(FATAL_ERROR "Nothing was noticed (result: ${result})")
endif()
foreach(said IN LISTS wanted)
  string(FIND "${output}" "${said}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "Not noticed: ${said}")
  endif()
endforeach()
