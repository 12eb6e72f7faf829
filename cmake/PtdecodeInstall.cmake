# Installs the libraries, the public headers, a CMake package and a pkg-config file.
include(CMakePackageConfigHelpers)

get_property(ptd_libraries GLOBAL PROPERTY PTD_LIBRARIES)
install(TARGETS ${ptd_libraries} EXPORT ptdecode ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

# Every header of include/ptdecode is public, no other is installed.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ptdecode DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

set(PTD_CONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ptdecode)
install(EXPORT ptdecode NAMESPACE ptdecode:: FILE ptdecode-targets.cmake DESTINATION ${PTD_CONFIG_DIR})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/ptdecode-config.cmake.in ${PROJECT_BINARY_DIR}/ptdecode-config.cmake
  INSTALL_DESTINATION ${PTD_CONFIG_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ptdecode-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ptdecode-config.cmake ${PROJECT_BINARY_DIR}/ptdecode-config-version.cmake DESTINATION ${PTD_CONFIG_DIR})

# Static libraries in link order: users first.
set(PTD_PC_LIBS "-lptd_analysis -lptd_recording -lptd_arm -lptd_disassembler -lptd_perfio -lptd_image -lptd_decoder -lptd_timeline -lptd_insn -lptd_base")
configure_file(${CMAKE_CURRENT_LIST_DIR}/ptdecode.pc.in ${PROJECT_BINARY_DIR}/ptdecode.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ptdecode.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# What `ptdecode demo` decodes.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/data/kernel DESTINATION ${CMAKE_INSTALL_DATADIR}/ptdecode)

install(FILES ${PROJECT_SOURCE_DIR}/docs/ptdecode.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${PROJECT_SOURCE_DIR}/cli/completions/ptdecode.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ptdecode)
install(FILES ${PROJECT_SOURCE_DIR}/cli/completions/_ptdecode DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${PROJECT_SOURCE_DIR}/cli/completions/ptdecode.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
