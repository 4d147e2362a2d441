# Installs a build into a folder that holds nothing else: cmake -DBUILD=... -DPREFIX=... -P ...
file(REMOVE_RECURSE "${PREFIX}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${PREFIX}"
                        COMMAND_ERROR_IS_FATAL ANY)
