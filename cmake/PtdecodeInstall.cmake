# libptdecode, its headers, a CMake package, a pkg-config file, and the data of the command line.
#
# The library is made of the objects of these modules, once: the shared and the static library hold the same ones. BUILD_SHARED_LIBS
# chooses which of them is installed; the other is the component `other-library`. The command line and the tests link the modules
# themselves, which also gives them what the library does not export.
include(CMakePackageConfigHelpers)

option(BUILD_SHARED_LIBS "Install libptdecode as a shared library" ON)
set(PTD_MODULES ptd_base ptd_timeline ptd_image ptd_insn ptd_disassembler ptd_decoder ptd_arm ptd_perfio ptd_recording ptd_analysis ptd_capi)
set(PTD_VENDOR_LIBS Zydis capstone opencsd_c_api opencsd elf dw crypto zstd iberty)
if(LZMA_FOUND)
  list(APPEND PTD_VENDOR_LIBS lzma)
endif()
set(PTD_CONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ptdecode)
# The pkg-config file finds its prefix from its own place, so that an installation may be moved.
file(RELATIVE_PATH PTD_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/ptdecode-config.cmake.in ${PROJECT_BINARY_DIR}/ptdecode-config.cmake
  INSTALL_DESTINATION ${PTD_CONFIG_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ptdecode-config-version.cmake COMPATIBILITY SameMinorVersion)

function(ptd_install_library target type)
  add_library(${target} ${type})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ptdecode EXPORT_NAME ptdecode LINKER_LANGUAGE CXX)
  target_compile_features(${target} INTERFACE cxx_std_20)
  target_include_directories(${target} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  foreach(module ${PTD_MODULES})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${module}>)
  endforeach()
  # A program that links the shared library needs none of these; `pkg-config --static` asks for them.
  list(TRANSFORM PTD_VENDOR_LIBS PREPEND "-l" OUTPUT_VARIABLE PTD_PC_PRIVATE_LIBS)
  list(JOIN PTD_PC_PRIVATE_LIBS " " PTD_PC_PRIVATE_LIBS)
  string(APPEND PTD_PC_PRIVATE_LIBS " -pthread")
  set(PTD_PC_LIBS "")
  if(type STREQUAL SHARED)
    set(chosen ${BUILD_SHARED_LIBS})
    set_target_properties(${target} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0)
    target_link_libraries(${target} PRIVATE ${PTD_VENDOR_LIBS} Threads::Threads)
    target_link_options(${target} PRIVATE LINKER:--version-script=${CMAKE_CURRENT_FUNCTION_LIST_DIR}/ptdecode.map LINKER:--no-undefined)
    set_target_properties(${target} PROPERTIES LINK_DEPENDS ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/ptdecode.map)
  else()
    if(NOT BUILD_SHARED_LIBS)
      set(chosen ON)
    endif()
    target_link_libraries(${target} INTERFACE $<INSTALL_INTERFACE:${PTD_VENDOR_LIBS}> $<INSTALL_INTERFACE:pthread>)
    set(PTD_PC_LIBS ${PTD_PC_PRIVATE_LIBS})
  endif()
  set(component "")
  if(NOT chosen)
    set(component COMPONENT other-library EXCLUDE_FROM_ALL)
    if(NOT PTDECODE_TESTS)
      set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
  endif()
  install(TARGETS ${target} EXPORT ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${component}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} ${component})
  # Each library has a file of targets of its own name: CMake generates the files of one folder by their names.
  string(TOLOWER ${type} kind)
  install(EXPORT ${target} NAMESPACE ptdecode:: FILE ptdecode-${kind}-targets.cmake DESTINATION ${PTD_CONFIG_DIR} ${component})
  configure_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/ptdecode.pc.in ${PROJECT_BINARY_DIR}/${target}/ptdecode.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${target}/ptdecode.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig ${component})
  install(FILES ${PROJECT_BINARY_DIR}/ptdecode-config.cmake ${PROJECT_BINARY_DIR}/ptdecode-config-version.cmake DESTINATION ${PTD_CONFIG_DIR}
    ${component})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ptdecode DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${component} FILES_MATCHING PATTERN "*.h")
endfunction()
ptd_install_library(ptdecode_library SHARED)
ptd_install_library(ptdecode_static STATIC)

# What `ptdecode demo` decodes.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/data/kernel DESTINATION ${CMAKE_INSTALL_DATADIR}/ptdecode)

# What --help and the manual page name.
file(GLOB ptd_documents CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/*.md)
install(FILES ${ptd_documents} ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/SECURITY.md ${PROJECT_SOURCE_DIR}/LICENSE
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/docs/ptdecode.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${PROJECT_SOURCE_DIR}/cli/completions/ptdecode.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ptdecode)
install(FILES ${PROJECT_SOURCE_DIR}/cli/completions/_ptdecode DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${PROJECT_SOURCE_DIR}/cli/completions/ptdecode.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
