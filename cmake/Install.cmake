# Installation: library, headers, command, and the package for find_package(lockstep).

include(CMakePackageConfigHelpers)

set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep")

install(TARGETS lockstep EXPORT lockstepTargets)
if(TARGET lockstep_command)
  install(TARGETS lockstep_command)
endif()
if(TARGET lockstep_share)
  set(share "${PROJECT_BINARY_DIR}/share")
  install(FILES "${share}/lockstep.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
  install(FILES "${share}/lockstep"
          DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
  install(FILES "${share}/_lockstep" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
  install(FILES "${share}/lockstep.fish"
          DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
endif()
if(TARGET lockstep_cuda)
  install(TARGETS lockstep_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
# The public headers, as they are when this is installed.
set(install_headers
    [=[
  include("@PROJECT_SOURCE_DIR@/cmake/PublicHeaders.cmake")
  lockstep_public_headers("@PROJECT_SOURCE_DIR@" headers)
  set(includes "@CMAKE_INSTALL_INCLUDEDIR@")
  cmake_path(ABSOLUTE_PATH includes BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}")
  foreach(header IN LISTS headers)
    cmake_path(GET header PARENT_PATH folder)
    file(INSTALL DESTINATION "${includes}/${folder}" TYPE FILE
         FILES "@PROJECT_SOURCE_DIR@/${header}")
  endforeach()
]=])
string(CONFIGURE "${install_headers}" install_headers @ONLY)
install(CODE "${install_headers}")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")

install(
  EXPORT lockstepTargets
  NAMESPACE lockstep::
  DESTINATION "${package_folder}")
configure_package_config_file(cmake/lockstepConfig.cmake.in
                              "${PROJECT_BINARY_DIR}/lockstepConfig.cmake"
                              INSTALL_DESTINATION "${package_folder}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/lockstepConfig.cmake"
              "${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake" cmake/FindWebP.cmake
              cmake/FindxxHash.cmake
        DESTINATION "${package_folder}")
