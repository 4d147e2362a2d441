# Runs PROGRAM in the folder FOLDER, which is empty at the beginning: files of an earlier run, perhaps
# of another build, must not matter.
#
#   cmake -DFOLDER=... -DPROGRAM=... -P run_in_new_folder.cmake
file(REMOVE_RECURSE "${FOLDER}")
file(MAKE_DIRECTORY "${FOLDER}")
execute_process(COMMAND "${PROGRAM}" WORKING_DIRECTORY "${FOLDER}" COMMAND_ERROR_IS_FATAL ANY)
